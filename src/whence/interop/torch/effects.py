"""What AOTAutograd does around a compiled graph, whether a graph needs it, and what it leaves.

It writes new values back to arguments, makes results that share memory with arguments, unwraps
subclasses of tensors. In nearly all graphs of inference there is nothing to do, and it still goes
through the arguments, of which a network has hundreds.

It does not look after results that are views of one tensor: the kernels of a graph write each to
memory of its own, and a program that writes to one of two and reads the other would notice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

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


class _View(NamedTuple):
    result: int
    """Which of the results."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @property
    def end(self) -> int:
        steps = zip(self.shape, self.strides, strict=True)
        return self.offset + 1 + sum((size - 1) * stride for size, stride in steps)


class SharedResults:
    """Results that are views of the same memory."""

    def __init__(self, views: Sequence[_View]) -> None:
        first = min(view.offset for view in views)
        self._views = [view._replace(offset=view.offset - first) for view in views]
        self._elements = max(view.end for view in self._views)

    def join(self, results: list[Any]) -> None:
        """Make views of one tensor of the results, in place."""
        whole = results[self._views[0].result].new_empty(self._elements)
        for index, shape, strides, offset in self._views:
            view = whole.as_strided(shape, strides, offset)
            results[index] = view.copy_(results[index])


def shared_results(lowered: FxGraph) -> list[SharedResults]:
    """Those of a graph with fixed sizes; where sizes are open, where views lie is not known."""
    inputs = {_storage(node) for node in lowered.find_nodes(op="placeholder")}
    output = lowered.output_node()
    results = list(output.args[0])
    described = output.meta.get("desc") or [None] * len(results)
    groups: dict[Any, list[_View]] = {}
    for index, (result, description) in enumerate(zip(results, described, strict=True)):
        key = _storage(result)
        # What is written back to an argument is copied there.
        if key is None or key in inputs or hasattr(description, "mutated_input"):
            continue
        value = result.meta["val"]
        view = _View(index, tuple(value.shape), tuple(value.stride()), value.storage_offset())
        if value.numel() and all(
            isinstance(each, int) for each in (*view.shape, *view.strides, view.offset)
        ):
            groups.setdefault((key, value.dtype), []).append(view)
    return [SharedResults(views) for views in groups.values() if len(views) > 1]


def _storage(node: Any) -> Any:
    """What tells the memory of a node's tensor from that of others, while PyTorch traces."""
    value: Any = node.meta.get("val") if hasattr(node, "meta") else None
    return value.untyped_storage()._cdata if hasattr(value, "untyped_storage") else None
