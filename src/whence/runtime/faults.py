"""What went wrong in native code, in the user's words.

A kernel that reads an index outside its axis goes on with another one, notes the fault, and the run
ends behind the kernel: which operator it was, the step's members tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whence.errors import ModelError

if TYPE_CHECKING:
    from whence.building.program import Program


def index_fault(program: Program, number: int) -> ModelError:
    """The error of a run that ended behind step `number`, for an index outside its axis."""
    # A run that goes well needs no graph.
    from whence.graph.display_name import display_name
    from whence.ops.registry import operators
    from whence.ops.traits import Trait

    graph = program.graph
    nodes = [graph[node] for node in program.steps[number].nodes]
    named = [node for node in nodes if node.op in operators(Trait.CHECKS_INDICES)] or nodes
    read = [ref for ref in named[0].inputs[:2] if ref is not None]
    kinds = " and ".join(str(graph.type_of(ref)) for ref in read)
    others = f", or one of the {len(named) - 1} after it" if len(named) > 1 else ""
    return ModelError(
        f"operator {display_name(named[0])}{others}: {named[0].op}: an index in this run is outside its"
        f" axis; it reads {kinds}"
    )
