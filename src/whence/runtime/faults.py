"""What went wrong in native code, in the user's words.

A kernel that reads an index outside its axis goes on with another one, notes the fault, and the run
ends behind the kernel: which operator it was, the step's members tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whence.errors import InputError, ModelError, WhenceError

if TYPE_CHECKING:
    from whence.building.program import Program
    from whence.graph import Node


def index_fault(program: Program, number: int) -> WhenceError:
    """The error of a run that ended behind step `number`, for an index outside its axis."""
    # A run that goes well needs no graph.
    from whence.graph.display_name import display_name
    from whence.ops.registry import operators
    from whence.ops.traits import Trait

    graph = program.graph
    nodes = [graph[node] for node in program.steps[number].nodes]
    named = [node for node in nodes if node.op in operators(Trait.CHECKS_INDICES)] or nodes
    kinds = [str(graph.type_of(ref)) for ref in named[0].inputs[:2] if ref is not None]
    others = f", or one of the {len(named) - 1} after it" if len(named) > 1 else ""
    if named[0].operand("sequence_lens") is not None:
        return ModelError(
            f"operator {display_name(named[0])}{others}: sequence_lens of this run are not lengths"
            f" of its sequences, {kinds[0]}"
        )
    if (wrong := _size_error(program, named[0])) is not None:
        return wrong
    return ModelError(
        f"operator {display_name(named[0])}{others}: an index in this run is outside its axis; it"
        f" reads {' and '.join(kinds)}"
    )


def _size_error(program: Program, node: Node) -> InputError | None:
    """Where a size of the call is larger than the axis that is looked up: what is looked up by
    position, such as position embeddings, ends there.
    """
    from whence.graph.display_name import display_name
    from whence.types import TensorType

    table = node.inputs[0]
    kind = None if table is None else program.graph.type_of(table)
    axis = node.attrs.get("axis", 0)
    shape = kind.static_shape if isinstance(kind, TensorType) else None
    if program.template is None or not shape or not isinstance(axis, int):
        return None
    limit = shape[axis]
    for dimension, size in program.sizes.items():
        if size <= limit:
            continue
        for name, dims in program.template.inputs.items():
            if any(str(dim) == dimension for dim in dims or ()):
                label = program.template.dimensions.labels.get(dimension, dimension)
                return InputError(
                    f"input '{name}' has size {size} in dimension '{label}', and operator"
                    f" {display_name(node)} has only {limit} to look up: an index is outside its axis"
                )
    return None
