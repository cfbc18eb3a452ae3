"""What the memory of a run allows: views that are none, and kernels that cannot reach their
operands, are done by reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from whence.building.allocate import is_planned
from whence.building.memory_layout import SubBuffer
from whence.graph import Graph, Ref
from whence.kernels.lower import Step, reference_step

_SIZED_LATE = (
    "it reads or makes a value whose size, or the size of whose elements, is known only at run time"
)


def is_native(graph: Graph, step: Step) -> bool:
    """Does the step have a kernel, and planned memory for all that the kernel reads and writes?"""
    return step.kernel is not None and all(
        graph[ref.node].is_const or is_planned(graph, ref) for ref in (*step.inputs, *step.outputs)
    )


def with_reference_steps(
    graph: Graph, steps: Sequence[Step], refused: Mapping[int, str]
) -> list[Step]:
    """The steps, those that cannot run as they are replaced by reference steps, one for each
    member.

    `refused` says, by position, why a kernel has no native code.
    """
    found: list[Step] = []
    shared = shared_views(graph, steps)
    for position, step in enumerate(steps):
        if step.is_view:
            good = step.outputs[0] in shared
        else:
            good = step.kernel is None or (position not in refused and is_native(graph, step))
        if good:
            found.append(step)
        else:
            why = refused.get(position, _SIZED_LATE)
            # What an assignment makes is a variable's.
            outputs = step.outputs if step.members[0].op == "Assign" else None
            found += [reference_step(step.entry, node, why, outputs) for node in step.members]
    return found


def shared_views(graph: Graph, steps: Sequence[Step]) -> dict[Ref, SubBuffer]:
    """Views that can lie where their sources do."""
    views = {step.outputs[0]: step.inputs[0] for step in steps if step.is_view}
    return {
        view: SubBuffer(source)
        for view, source in views.items()
        if is_planned(graph, view)
        and is_planned(graph, source)
        and graph.nbytes(source) == graph.nbytes(view)
    }
