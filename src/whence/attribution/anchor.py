"""The operator for which a kernel is there. What the others add can be told; the anchor has the
rest.

1. A group that reduces, convolves, multiplies or pools has an anchor, whose loop nest it takes: that
   one.
2. In a group of elementwise operators and index changes it is the operator at which all that the
   kernel reads comes together: the first whose operands, direct or through other members, are all
   of the kernel's inputs, or most of them by size. An operator that only moves elements is passed
   over while there is one that computes, and a view, which does not even move them, while there is
   any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from whence.attribution.cost_model import VIEWS
from whence.building.program import Program, ProgramStep
from whence.graph import Graph, Node, Ref
from whence.kernels.ir import Member
from whence.ops.definition import Pattern
from whence.ops.registry import REGISTRY, operators
from whence.ops.traits import Trait

ADDED_INPUT: Mapping[str, int] = {
    name: REGISTRY[name].operands.positions["Z"]
    for name in operators(Trait.FUSED)
    if "Z" in REGISTRY[name].operands.positions
}
"""The input of a supernode that is added to the sum, in front of the activation."""
ADDITIONS = operators(Trait.ADDS)
"""The operators that become such an input."""


def anchor_of(program: Program, step: ProgramStep, members: Sequence[Member]) -> Member:
    """One of `members`, which are those of the step that can be charged."""
    entry = program.fused.entry_of(members[0].node)
    if entry is not None and entry.pattern > Pattern.INJECTIVE:
        for member in members:
            if member.node == entry.anchor.id:
                return member
    cones = _cones(program.graph, step)
    working = (
        [member for member in members if member.flops]
        or [member for member in members if member.op not in VIEWS]
        or list(members)
    )
    return max(
        working, key=lambda member: sum(program.graph.nbytes(ref) for ref in cones[member.node])
    )


def main_input(
    graph: Graph, node: Node, inside: frozenset[int], preferred: frozenset[int] = frozenset()
) -> Ref | None:
    """The operand that would stand in for the node's result were the node not there.

    One of a `preferred` member, else one that the kernel makes, else one of the result's type; the
    largest of those.
    """
    refs = [ref for ref in node.inputs if ref is not None and not graph[ref.node].is_const] or [
        ref for ref in node.inputs if ref is not None
    ]
    wanted = node.outputs[0]
    return max(
        refs,
        key=lambda ref: (
            ref.node in preferred,
            ref.node in inside,
            graph.type_of(ref) == wanted,
            graph.nbytes(ref),
        ),
        default=None,
    )


def side_bytes(graph: Graph, node: Node, inside: frozenset[int]) -> int:
    """What the node reads from outside the kernel, its main operand aside."""
    main = main_input(graph, node, inside)
    return sum(
        graph.nbytes(ref)
        for ref in {ref for ref in node.inputs if ref is not None and ref.node not in inside}
        - {main}
    )


def descendants(graph: Graph, nodes: Sequence[int], start: int) -> frozenset[int]:
    """`start` and those of `nodes`, which are in order, that depend on it."""
    found = {start}
    for number in nodes:
        if any(ref is not None and ref.node in found for ref in graph[number].inputs):
            found.add(number)
    return frozenset(found)


def _cones(graph: Graph, step: ProgramStep) -> dict[int, frozenset[Ref]]:
    """By member: what it reads from outside the kernel, also through other members."""
    found: dict[int, frozenset[Ref]] = {}
    for node_id in step.nodes:
        refs = [ref for ref in graph[node_id].inputs if ref is not None]
        found[node_id] = frozenset(ref for ref in refs if ref.node not in found).union(
            *(found[ref.node] for ref in refs if ref.node in found)
        )
    return found
