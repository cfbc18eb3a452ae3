"""Transposes that undo each other, do nothing, or move nothing.

1. T(T(x, p), q) = T(x, p then q), and x itself when that leaves every axis in place
2. T(x, identity) = x
3. T(x) that only moves axes of size 1 = Reshape(x)
4. Reshape(T(Reshape(x))) that merges axes, moves them as one and splits them again = T'(x), or
   T'(Reshape(x))
5. T(Reshape(T(x))) that adds or drops axes of size 1 between and leaves the others in their order =
   Reshape(x)
"""

from __future__ import annotations

from dataclasses import dataclass

from whence.graph import Node, Ref, Rewriter
from whence.graph.search import producer_of
from whence.passes.base import RulePass
from whence.passes.layout.axes import (
    Perm,
    compose,
    inverse_perm,
    is_identity,
    perm_of,
    reshape_target,
)
from whence.passes.pattern import dtype_of, few_consumers, same_but_one, same_dim, shape_of
from whence.passes.simplify.forward_sweep import ForwardSweep
from whence.provenance import Reason
from whence.types import Shape, TensorType, same_shape

_MANY = 64


@dataclass(frozen=True, slots=True)
class CancelTransposes(RulePass):
    """Compose transposes and drop those that do nothing."""

    name = "cancel_transposes"
    summary = "merge transposes that follow each other"
    anchors = frozenset({"Transpose"})

    def visit(self, node: Node, rewriter: Rewriter) -> None:
        if (
            not compose_transposes(node, rewriter)
            and not _move_nothing(node, rewriter)
            and not _move_back(node, rewriter)
        ):
            _move_as_one(node, rewriter)


# 1. T(T(x, p), q) = T(x, p then q)
# 2. T(x, identity) = x
def compose_transposes(node: Node, rewriter: Rewriter) -> bool:
    """Merge a Transpose with the one before it, or remove it when it is the identity. True when
    something was done.
    """
    graph = rewriter.graph
    perm, source = perm_of(graph, node), node.first_input
    if perm is None:
        return False
    if is_identity(perm):
        rule = "transpose(x, identity) = x"
        return rewriter.bypass(node, source, reason=Reason.IDENTITY, rule=rule)
    before = producer_of(graph, source, "Transpose")
    first = None if before is None else perm_of(graph, before)
    if before is None or first is None:
        return False
    total, x = compose(first, perm), before.first_input
    if is_identity(total):
        undone = [before]
        return rewriter.bypass(node, x, reason=Reason.CANCELLED, rule=_UNDONE, undone=undone)
    edit = rewriter.edit(before, node, rule="transpose(transpose(x, p), q) = transpose(x, pq)")
    return edit.finish(node, edit.node("Transpose", [x], {"perm": total}))


_UNDONE = "transpose(transpose(x)) = x"


# 1. T(T(x, p), q) = x, where p then q leaves every axis in place
def cancel_pairs(rewriter: Rewriter) -> None:
    """Remove transposes that undo each other as neighbours, all in one walk: thousands of edits
    would each look at their own surroundings.
    """
    graph, sweep = rewriter.graph, ForwardSweep(rewriter)
    for node in sweep:
        if node.op != "Transpose":
            continue
        before = producer_of(graph, node.inputs[0], "Transpose")
        if before is None:
            continue
        x, first, second = before.first_input, perm_of(graph, before), perm_of(graph, node)
        if (
            first is not None
            and second is not None
            and is_identity(compose(first, second))
            and not is_identity(second)
            and sweep.replace(node, [x], reason=Reason.CANCELLED, rule=_UNDONE)
        ):
            sweep.spare(before, reason=Reason.CANCELLED, rule=_UNDONE, into=x.node)
    sweep.finish()


# 3. T(x) that only moves axes of size 1 = Reshape(x)
def _move_nothing(node: Node, rewriter: Rewriter) -> bool:
    graph = rewriter.graph
    perm, source = perm_of(graph, node), node.first_input
    before, after = shape_of(graph, source), shape_of(graph, node.ref())
    if perm is None or before is None or after is None:
        return False
    users = few_consumers(graph, node, _MANY) or []
    if any(user.op == "Transpose" for user in users):
        # The next one will take this one in, and may undo it.
        return False
    moving = [axis for axis in perm if not same_dim(before[axis], 1)]
    target = reshape_target(before, after)
    if moving != sorted(moving) or target is None:
        return False
    edit = rewriter.edit(node, rule="transpose of axes of size 1 = reshape")
    made = edit.node("Reshape", [source, edit.sizes(target)], types=node.outputs)
    return edit.finish(node, made)


# 5. T(Reshape(T(x))) that adds or drops axes of size 1 between and leaves the others in their order
#    = Reshape(x)
def _move_back(node: Node, rewriter: Rewriter) -> bool:
    graph = rewriter.graph
    between = producer_of(graph, node.inputs[0], "Reshape")
    first = None if between is None else producer_of(graph, between.inputs[0], "Transpose")
    if between is None or first is None:
        return False
    there, back, x = perm_of(graph, first), perm_of(graph, node), first.first_input
    before, after = shape_of(graph, x), shape_of(graph, node.ref())
    transposed, reshaped = shape_of(graph, first.ref()), shape_of(graph, between.ref())
    if (
        there is None
        or back is None
        or before is None
        or after is None
        or transposed is None
        or reshaped is None
    ):
        return False
    kept_sizes, kept_places = (
        tuple(size for size in shape if not same_dim(size, 1)) for shape in (transposed, reshaped)
    )
    if not same_shape(kept_sizes, kept_places) or None in transposed:
        return False
    # The axes of x that are not of size 1, in the order that the first Transpose, and so the
    # Reshape, has them.
    moving = [axis for axis, size in zip(there, transposed, strict=True) if not same_dim(size, 1)]
    places = [place for place, size in enumerate(reshaped) if not same_dim(size, 1)]
    result = [moving[places.index(place)] for place in back if not same_dim(reshaped[place], 1)]
    target = reshape_target(before, after)
    if result != sorted(result) or target is None:
        return False
    edit = rewriter.edit(
        first, between, node, rule="transpose(reshape(transpose(x))) of axes of size 1 = reshape(x)"
    )
    return edit.finish(node, edit.node("Reshape", [x, edit.sizes(target)], types=node.outputs))


# 4. Reshape(T(Reshape(x))) that merges axes, moves them as one and splits them again =
#    T'(Reshape'(x))
def _move_as_one(node: Node, rewriter: Rewriter) -> None:
    graph = rewriter.graph
    perm = perm_of(graph, node)
    first = producer_of(graph, node.inputs[0], "Reshape")
    users = graph.consumers(node) if len(node._uses) == 1 else []
    if (
        perm is None
        or first is None
        or not users
        or users[0].op != "Reshape"
        or users[0].inputs[0] != node.ref()
    ):
        return
    last, x = users[0], first.first_input
    moved, split = shape_of(graph, node.ref()), shape_of(graph, last.ref())
    groups = None if moved is None or split is None else _groups(moved, split)
    if groups is None or split is None:
        return
    # The axes of the result, in the order in which they lie in front of the Transpose.
    order = [axis for merged in inverse_perm(perm) for axis in groups[merged]]
    shape: Shape = tuple(split[axis] for axis in order)
    before = shape_of(graph, x)
    if before is None:
        return
    target = () if same_but_one(before, shape) else reshape_target(before, shape)
    if target is None or len(split) == len(moved or ()):
        return
    edit = rewriter.edit(
        first,
        node,
        last,
        rule="reshape(transpose(reshape(x))) = transpose(reshape(x)): merged axes move as one",
    )
    source: Ref = x
    if target:
        kind = TensorType(dtype_of(graph, x), shape)
        source = edit.node("Reshape", [x, edit.sizes(target)], types=kind, of=[first]).ref()
    full: Perm = inverse_perm(order)
    made = edit.node("Transpose", [source], {"perm": full}, of=[node, last] if target else None)
    edit.finish(last, made)


def _groups(merged: Shape, split: Shape) -> list[list[int]] | None:
    """For each axis of `merged`, the axes of `split` it certainly was split into. Axes equal on
    both sides pair off; one takes the rest.
    """
    # One axis of `merged` is left over, so that axes of size 1 that come from nowhere have
    # somewhere to go.
    pairs = min(len(merged) - 1, len(split))
    front = 0
    while front < pairs and same_dim(merged[front], split[front]):
        front += 1
    back = 0
    while back < pairs - front and same_dim(merged[-1 - back], split[-1 - back]):
        back += 1
    if (
        len(merged) - front - back != 1
        or len(split) - front - back < 1
        or 0 in merged
        or 0 in split
    ):
        return None
    groups = [[axis] for axis in range(front)]
    groups.append(list(range(front, len(split) - back)))
    groups += [[axis] for axis in range(len(split) - back, len(split))]
    return groups
