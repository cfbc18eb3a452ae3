"""What need not run: operators that only the side of a `Choose` needs that is not taken.

A guard is a condition and the value it must have. What runs under several is needed only if all of
them hold; each is decided by what stands before it in the list, so that they are asked in order,
and the first that does not hold decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from whence.graph.iterations import is_true
from whence.graph.node import Node, Ref
from whence.graph.state import BOUNDARY
from whence.ops.definition import Value

if TYPE_CHECKING:
    from whence.graph.graph import Graph

DEEPEST = 31
"""The run-time library keeps what guards want in the bits of an integer. Not more conditions than
this are flattened.
"""


class Guard(NamedTuple):
    """`condition` must have this value."""

    condition: Ref
    wanted: bool


Guards = tuple[Guard, ...]


class RunUnit(NamedTuple):
    """What runs as a whole: a node, or several that became one kernel."""

    nodes: Sequence[Node]
    reads: Sequence[Ref]
    makes: Sequence[Ref]


def holds(guard: Guard, value: Value) -> bool:
    """Does the guard hold when its condition is `value`?"""
    return is_true(value) is guard.wanted


def guards_of_nodes(graph: Graph) -> Mapping[int, Guards]:
    """By node: under which conditions it runs, when each runs by itself. Only of nodes that do not
    always.
    """
    if "Choose" not in graph.op_counts:
        return {}
    nodes = [node for node in graph if node.op not in BOUNDARY]
    work = [
        RunUnit(
            (node,),
            [ref for ref in node.inputs if ref is not None],
            [node.ref(index) for index in range(len(node.outputs))],
        )
        for node in nodes
    ]
    wanted = [ref for node in graph.results for ref in node.inputs if ref is not None]
    return {
        node.id: guards
        for node, guards in zip(nodes, find_guards(work, wanted), strict=True)
        if guards
    }


def find_guards(work: Sequence[RunUnit], results: Iterable[Ref]) -> list[Guards]:
    """Under which guards each part of `work`, which is given in the order in which it runs, must
    run for `results` to be there.

    A condition guards only what runs after it. What runs is never fed with what did not run, except
    a `Choose`, with the side it does not take.
    """
    made_at = {ref: position for position, each in enumerate(work) for ref in each.makes}
    needed: dict[Ref, Guards] = dict.fromkeys(results, ())
    found: list[Guards] = [()] * len(work)
    if not any(_is_choice(each) for each in work):
        return found
    for position in range(len(work) - 1, -1, -1):
        each = work[position]
        wanted = [needed[ref] for ref in each.makes if ref in needed]
        guards = _known(_common(wanted), made_at, position, needed) if wanted else ()
        found[position] = guards
        for ref, extra in _reads(each):
            inner = (*guards, extra) if extra is not None and extra not in guards else guards
            needed[ref] = _common([needed[ref], inner]) if ref in needed else inner
    return found


def _is_choice(work: RunUnit) -> bool:
    return len(work.nodes) == 1 and work.nodes[0].op == "Choose"


def _reads(work: RunUnit) -> Iterable[tuple[Ref, Guard | None]]:
    """What it reads, and under which guard of its own."""
    if not _is_choice(work):
        return [(ref, None) for ref in work.reads]
    condition, then, otherwise = work.nodes[0].inputs
    assert condition is not None
    assert then is not None
    assert otherwise is not None
    return [(condition, None), (then, Guard(condition, True)), (otherwise, Guard(condition, False))]


def _common(paths: Sequence[Guards]) -> Guards:
    """The guards that stand in all of them: whichever is the reason to run, these hold. Each is
    decided by what stands before it in one of them.
    """
    first, *others = sorted(paths, key=len)
    remaining: list[Guard] = []
    for guard in first:
        if all(guard in path for path in others) and any(
            set(path[: path.index(guard)]) <= set(remaining) for path in paths
        ):
            remaining.append(guard)
    return tuple(remaining)


def _known(
    guards: Guards, made_at: dict[Ref, int], position: int, needed: dict[Ref, Guards]
) -> Guards:
    """The guards that are decided when they are asked.

    Behind one that is not, only what the caller gives, or what is needed whatever happens, is sure
    to be there: other conditions may be made by something that runs under the one left out.
    """
    remaining: list[Guard] = []
    for place, guard in enumerate(guards):
        made = made_at.get(guard.condition, -1)
        if made < position and (
            made < 0 or needed.get(guard.condition) == () or len(remaining) == place
        ):
            remaining.append(guard)
    return tuple(remaining[:DEEPEST])
