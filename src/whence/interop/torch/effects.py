"""What AOTAutograd does around a compiled graph, and whether a graph needs it.

It writes new values back to arguments, makes results that share memory with arguments or with each
other, unwraps subclasses of tensors. In nearly all graphs of inference there is nothing to do,
and it still goes through the arguments, of which a network has hundreds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.fx import Graph as FxGraph


def is_free_of_effects(lowered: FxGraph, example_inputs: Sequence[Any]) -> bool:
    """Are the results of the lowered graph what the caller gets, and its inputs what the caller
    gives? To be asked while AOTAutograd compiles. What it found out about the graph is not
    documented: where anything is missing from it the answer is no.
    """
    import torch

    ordinary = (torch.Tensor, torch.nn.Parameter)
    if any(
        isinstance(each, torch.Tensor) and type(each) not in ordinary for each in example_inputs
    ):
        return False
    positions = input_positions(lowered)
    if positions != list(range(len(example_inputs))):
        return False
    output = lowered.output_node()
    try:
        known = torch._guards.TracingContext.get().fw_metadata
        return (
            known is not None
            and len(known.input_info) == len(positions)
            and len(known.output_info) == len(output.args[0])
            and not any(each.mutates_data or each.mutates_metadata for each in known.input_info)
            and all(each.output_type.name == "non_alias" for each in known.output_info)
            # Dimensions that are to stay open behind a graph break are noted on the results.
            and not any(each.dynamic_dims for each in known.output_info)
            and not known.num_intermediate_bases
            and known.grad_enabled_mutation is None
            and not known.is_rng_op_functionalized
            and not known.act_input_indices
            and not known.tokens
        )
    except (AttributeError, AssertionError):
        return False


def input_positions(lowered: FxGraph) -> list[int | None]:
    """Which input of the traced graph each input of the lowered one is. Arguments that share
    memory, and are written to, become one input, which is none of them.
    """
    described = [node.meta.get("desc") for node in lowered.find_nodes(op="placeholder")]
    if not any(described):
        return list(range(len(described)))
    found = [getattr(each, "idx", None) for each in described]
    return [index if isinstance(index, int) else None for index in found]


def written_inputs(lowered: FxGraph) -> frozenset[int]:
    """The inputs of the traced graph that it writes to: their new values are among its results."""
    found = set()
    for description in lowered.output_node().meta.get("desc") or ():
        written = getattr(description, "mutated_input", None)
        if written is not None and hasattr(written, "idx"):
            found.add(int(written.idx))
    return frozenset(found)
