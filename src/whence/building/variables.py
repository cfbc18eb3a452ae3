"""State in a program: which steps assign to variables, and what a variable begins with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whence.building.allocate import is_planned, root
from whence.building.memory_layout import Aliasing, MemoryLayout
from whence.building.program import Variable
from whence.building.program_parts import block_of
from whence.building.reference_fallback import shared_views
from whence.building.weights import Weights
from whence.graph import Graph, Node
from whence.graph.state import GIVEN, initial_value
from whence.kernels.group import Group
from whence.kernels.loops.copy_parts import lower_copy_parts
from whence.kernels.lower import Step, reference_step


def assignments(graph: Graph, steps: Sequence[Step], aliasing: Aliasing) -> list[Step]:
    """A step for each `Assign` whose value cannot be made where the variable lies: what the caller
    gives or gets, constants, other variables, part of another value, or assigned twice.

    They come last, when everything has read what the variables were.
    """
    if not graph.assigns:
        return []
    within = {**aliasing.views, **shared_views(graph, steps), **aliasing.parts}
    taken = {root(within, output.first_input).parent for output in graph.outputs}
    found = []
    for node in graph.assigns:
        ref = node.first_input
        lies = root(within, ref)
        source = graph[lies.parent.node]
        is_free = (
            source.op not in GIVEN
            and not source.is_const
            and lies.parent not in taken
            and is_planned(graph, lies.parent)
            and lies.offset == 0
            and graph.nbytes(lies.parent) == graph.nbytes(ref)
        )
        taken.add(lies.parent)
        if not is_free:
            found.append(_copy(graph, node))
    return found


def _copy(graph: Graph, node: Node) -> Step:
    ref = node.first_input
    target = graph.variable(str(node.attrs["variable"])).ref()
    if not graph[ref.node].is_const and not is_planned(graph, ref):
        why = f"what is assigned is {graph.type_of(ref)}, whose size is known only at run time"
        return reference_step(0, node, why, (target,))
    group = Group(graph, "assign", (node,), (ref,), (target,))
    return Step(group.name, 0, (node,), (ref,), (target,), lower_copy_parts(group, node, [0]))


def variables_of(graph: Graph, layout: MemoryLayout, weights: Weights) -> tuple[Variable, ...]:
    """The variables of a program, their initial values among its constants."""
    assigned = {node.attrs["variable"] for node in graph.assigns}
    found = []
    for index, node in enumerate(graph.variables):
        pattern = _pattern(node)
        found.append(
            Variable(
                block_of(graph, node.name, node.ref()),
                weights.bytes_at(pattern) if pattern.size else 0,
                pattern.size,
                node.name in assigned,
                index in layout.in_place,
            )
        )
    return tuple(found)


def _pattern(node: Node) -> np.ndarray:
    """The bytes that, repeated, are the initial value; none when all are zero."""
    initial = node.attrs.get("initial")
    value = np.ascontiguousarray(
        initial_value(node) if initial is None or np.ndim(initial) else initial
    )
    if initial is None or not value.view(np.uint8).any():
        return np.empty(0, np.uint8)
    return value.reshape(-1).view(np.uint8)
