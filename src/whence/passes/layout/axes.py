"""Permutations of axes: reading, composing and inverting them."""

from __future__ import annotations

from collections.abc import Sequence

from whence.graph import Graph, Node, Rewriter
from whence.passes.pattern import rank_of, same_dim
from whence.types import Shape

Perm = tuple[int, ...]
"""Axis `i` of the result is axis `perm[i]` of the source."""


def perm_of(graph: Graph, transpose: Node) -> Perm | None:
    """What a Transpose does; `None` when that depends on a rank nobody knows, or if it is wrong,
    which is said where its type is inferred.
    """
    perm, rank = transpose.attrs.get("perm"), rank_of(graph, transpose.input(0))
    if not isinstance(perm, tuple) or not perm:
        return None if rank is None else tuple(reversed(range(rank)))
    found = tuple(int(axis) for axis in perm)
    rank = len(found) if rank is None else rank
    return found if sorted(found) == list(range(rank)) else None


def is_identity(perm: Sequence[int]) -> bool:
    return all(axis == index for index, axis in enumerate(perm))


def compose(first: Sequence[int], second: Sequence[int]) -> Perm:
    """Doing `first`, then `second`."""
    return tuple(first[axis] for axis in second)


def inverse_perm(perm: Sequence[int]) -> Perm:
    """What undoes `perm`."""
    return tuple(sorted(range(len(perm)), key=lambda index: perm[index]))


def to_last(rank: int) -> Perm:
    """From (N, C, spatial...) to (N, spatial..., C)."""
    return (0, *range(2, rank), 1)


def to_second(rank: int) -> Perm:
    """From (N, spatial..., C) to (N, C, spatial...)."""
    return (0, rank - 1, *range(1, rank - 1))


def last_two_swapped(rank: int) -> Perm:
    """What transposes each of a stack of matrices."""
    return (*range(rank - 2), rank - 1, rank - 2)


def in_other_order(rewriter: Rewriter, node: Node, perm: Perm, op: str, rule: str) -> None:
    """f(x) = transpose(op(transpose(x, perm))), of the first operand alone."""
    edit = rewriter.edit(node, rule=rule)
    before = edit.node("Transpose", [node.inputs[0]], {"perm": perm})
    made = edit.node(op, [before.ref(), *node.inputs[1:]], node.attrs, name=node.name)
    back = {"perm": inverse_perm(perm)}
    edit.finish(node, edit.node("Transpose", [made.ref()], back, node.outputs))


def reshape_target(before: Shape, after: Shape) -> tuple[int, ...] | None:
    """What to tell a Reshape that makes `after` of a value of shape `before`, or `None` when
    numbers cannot say it.

    A dimension without a number may be a copy (0) of the one in its place, and one more may be left
    to be worked out (-1).
    """
    if 0 in before or 0 in after:
        return None
    target = [
        dim
        if isinstance(dim, int)
        else 0
        if index < len(before) and same_dim(dim, before[index])
        else -1
        for index, dim in enumerate(after)
    ]
    return tuple(target) if target.count(-1) <= 1 else None
