"""Cutting and joining along an axis, cleaned up.

1. Slices of slices become one slice.
2. A slice that lies within one part of a concatenation is a slice of that part, or the part itself.
3. A concatenation of all parts of a split, in order, is what was split.
4. A concatenation of neighbouring slices of one value is one slice of it, or the value itself.
5. A concatenation of concatenations along the same axis is one concatenation.
6. A split of a concatenation at its seams yields the parts.
7. An element taken from a concatenation is taken from the part it lies in.
8. Taking all elements along an axis, in order, is a reshape.

Lengths must be known where a rule compares them. A value with other readers stays; it is only read
less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from whence.extent import is_symbolic
from whence.graph import Edit, Graph, Node, Ref, Rewriter
from whence.graph.change import contradict
from whence.graph.search import producer_of
from whence.ops.registry import one_of
from whence.passes.base import RulePass
from whence.passes.const_values import const_ints
from whence.passes.layout.axes import reshape_target
from whence.passes.parameters import Cut, cuts_of
from whence.passes.pattern import only_user, shape_of
from whence.provenance import Reason
from whence.types import TensorType, ValueType

_LARGEST = 2**63 - 1
# Looking for the part an element lies in walks over the parts; a concatenation of thousands has
# thousands of readers.
_MAX_PARTS = 256


@dataclass(frozen=True, slots=True)
class SimplifySlices(RulePass):
    name = "simplify_slices"
    summary = "simplify slices, splits and concatenations that undo or repeat each other"
    anchors = one_of("Slice", "Concat", "Split", "Gather")

    def visit(self, node: Node, rewriter: Rewriter) -> None:
        if node.retained:
            return
        if node.op == "Slice":
            _merge_slices(node, rewriter) or _slice_of_concat(node, rewriter)
        elif node.op == "Concat":
            _concat_of_split(node, rewriter) or _concat_of_slices(
                node, rewriter
            ) or _concat_of_concats(node, rewriter)
        elif node.op == "Split":
            _split_of_concat(node, rewriter)
        else:
            _gather_of_concat(node, rewriter) or _gather_of_all(node, rewriter)


# ---- what is known ----


def _dim(graph: Graph, ref: Ref, axis: int) -> int | None:
    shape = shape_of(graph, ref)
    if shape is None or not 0 <= axis < len(shape):
        return None
    dim = shape[axis]
    # What is counted out here needs numbers: of an expression nothing is known.
    return dim if isinstance(dim, int) and not is_symbolic(dim) else None


def _axis(graph: Graph, node: Node, ref: Ref | None) -> int | None:
    """The node's `axis` counted from the front of `ref`; `None` when that is not known."""
    kind = graph.tensor_type(ref)
    rank = None if kind is None else kind.rank
    axis = node.attrs.get("axis", 0)
    if not isinstance(axis, int) or (axis < 0 and rank is None):
        return None
    return axis if axis >= 0 or rank is None else axis + rank


def _parts(graph: Graph, node: Node) -> list[tuple[Ref, int]] | None:
    """The inputs of a `Concat` and their lengths along its axis; `None` unless all are known."""
    axis = _axis(graph, node, node.inputs[0])
    if axis is None or len(node.inputs) > _MAX_PARTS:
        return None
    found = [
        (ref, length)
        for ref in node.inputs
        if ref is not None and (length := _dim(graph, ref, axis)) is not None
    ]
    return found if len(found) == len(node.inputs) else None


def _may_stand_for(graph: Graph, ref: Ref, node: Node) -> bool:
    """A type that the file declares may be wrong. Then nothing is concluded from it."""
    return not contradict(node.type, graph.type_of(ref))


def _slice_node(edit: Edit, source: Ref, cuts: Mapping[int, Cut], kind: ValueType) -> Node:
    numbers = edit.sizes
    axes = sorted(cuts)
    starts, ends, steps = ([cuts[axis][field] for axis in axes] for field in range(3))
    inputs = [source, numbers(starts), numbers(ends), numbers(axes)]
    if any(step != 1 for step in steps):
        inputs.append(numbers(steps))
    return edit.node("Slice", inputs, types=kind)


# ---- rules; each returns whether it applied ----


# x[a:b][c:d] = x[a+c : min(b, a+d)]
def _merge_slices(node: Node, rewriter: Rewriter) -> bool:
    graph = rewriter.graph
    consumer = only_user(graph, node, "Slice")
    if (
        consumer is not None
        and consumer.inputs[0] == node.ref()
        and cuts_of(graph, consumer) is not None
    ):
        # The last of a chain takes in all before it, so that a long chain is rewritten once.
        return False
    cuts, chain = cuts_of(graph, node), [node]
    while cuts is not None:
        inner = producer_of(graph, chain[-1].inputs[0], "Slice")
        inner_cuts = cuts_of(graph, inner) if inner is not None and len(inner._uses) == 1 else None
        combined = (
            None
            if inner is None or inner_cuts is None
            else _compose(graph, inner, inner_cuts, cuts)
        )
        if inner is None or combined is None:
            break
        chain.append(inner)
        cuts = combined
    source = chain[-1].first_input
    if cuts is None or len(chain) == 1:
        return False
    edit = rewriter.edit(*reversed(chain), rule="a slice of a slice is a slice")
    return edit.finish(node, _slice_node(edit, source, cuts, node.type))


def _compose(
    graph: Graph, inner: Node, first: Mapping[int, Cut], second: Mapping[int, Cut]
) -> dict[int, Cut] | None:
    """The cuts of `first`, made by `inner`, and of `second`, made after it, in one."""
    combined = {**first, **second}
    for axis in first.keys() & second.keys():
        (a, b, step), (c, d, next_step) = first[axis], second[axis]
        dim = _dim(graph, inner.first_input, axis)
        if dim is not None:
            taken = range(dim)[a:b:step][c:d:next_step]
            # An end before the first element is written as one past it from the other side.
            combined[axis] = (
                Cut(taken.start, taken.stop if taken.stop >= 0 else -dim - 1, taken.step)
                if taken
                else Cut(0, 0, 1)
            )
        elif step == next_step == 1 and min(a, b, c, d) >= 0:
            combined[axis] = Cut(min(a + c, _LARGEST), min(b, a + d), 1)
        else:
            return None
    return combined


# [x, y][0 : len x] = x
def _slice_of_concat(node: Node, rewriter: Rewriter) -> bool:
    graph, source = rewriter.graph, producer_of(rewriter.graph, node.inputs[0], "Concat")
    cuts, parts = cuts_of(graph, node), _parts(graph, source) if source is not None else None
    axis = _axis(graph, source, source.inputs[0]) if source is not None else None
    if cuts is None or parts is None or axis is None or axis not in cuts or cuts[axis].step != 1:
        return False
    taken = range(sum(length for _, length in parts))[cuts[axis].start : cuts[axis].end]
    offset = 0
    for ref, length in parts:
        if taken and offset <= taken.start and taken.stop <= offset + length:
            if len(cuts) == 1 and len(taken) == length and _may_stand_for(graph, ref, node):
                rule = "a slice that is one part of a concatenation is that part"
                return rewriter.bypass(node, ref, reason=Reason.CANCELLED, rule=rule)
            edit = rewriter.edit(
                node, rule="a slice within one part of a concatenation is a slice of that part"
            )
            within = {**cuts, axis: Cut(taken.start - offset, taken.stop - offset, 1)}
            return edit.finish(node, _slice_node(edit, ref, within, node.type))
        offset += length
    return False


# Concat(Split(x)) = x
def _concat_of_split(node: Node, rewriter: Rewriter) -> bool:
    graph = rewriter.graph
    split = producer_of(graph, node.inputs[0], "Split")
    if split is None or node.inputs != tuple(map(split.ref, range(len(split.outputs)))):
        return False
    whole = split.first_input
    # Outputs that nobody reads may be missing from the node.
    sizes = const_ints(graph, split.operand("split"))
    complete = (
        len(sizes) == len(split.outputs)
        if sizes is not None
        else split.attrs.get("num_outputs", len(split.outputs)) == len(split.outputs)
    )
    if (
        (sizes is None and split.operand("split") is not None)
        or not complete
        or _axis(graph, node, node.inputs[0]) != _axis(graph, split, whole)
    ):
        return False
    if not _may_stand_for(graph, whole, node):
        return False
    rule = "a concatenation of all parts of a split is what was split"
    return rewriter.bypass(node, whole, reason=Reason.CANCELLED, rule=rule, undone=[split])


# [x[a:b], x[b:c]] = x[a:c]
def _concat_of_slices(node: Node, rewriter: Rewriter) -> bool:
    graph = rewriter.graph
    axis = _axis(graph, node, node.inputs[0])
    if axis is None or len(node.inputs) < 2:
        return False
    source: Ref | None = None
    pieces: list[Node] = []
    taken = range(0)
    for ref in node.inputs:
        piece = producer_of(graph, ref, "Slice")
        cuts = cuts_of(graph, piece) if piece is not None else None
        if piece is None or cuts is None or cuts.keys() != {axis} or cuts[axis].step != 1:
            return False
        dim = _dim(graph, piece.first_input, axis)
        if dim is None or source not in (None, piece.first_input):
            return False
        part = range(dim)[cuts[axis].start : cuts[axis].end]
        if source is None:
            taken = part
        elif part.start != taken.stop:
            return False
        source, taken = piece.first_input, range(taken.start, max(part.stop, part.start))
        pieces.append(piece)
    if source is None:
        return False
    if len(taken) == _dim(graph, source, axis) and _may_stand_for(graph, source, node):
        rule = "a concatenation of all slices of a value is the value"
        return rewriter.bypass(node, source, reason=Reason.CANCELLED, rule=rule, undone=pieces)
    edit = rewriter.edit(*pieces, node, rule="a concatenation of neighbouring slices is one slice")
    made = _slice_node(edit, source, {axis: Cut(taken.start, taken.stop, 1)}, node.type)
    return edit.finish(node, made)


# [[x, y], z] = [x, y, z]
def _concat_of_concats(node: Node, rewriter: Rewriter) -> bool:
    graph = rewriter.graph
    consumer = only_user(graph, node, "Concat")
    if (
        consumer is not None
        and _joins(graph, node.ref(), _axis(graph, consumer, node.ref())) is not None
    ):
        # The last of a chain takes in all before it, so that a long chain is rewritten once.
        return False
    axis = _axis(graph, node, node.inputs[0])
    absorbed: list[Node] = []
    inputs: list[Ref | None] = []
    waiting = list(reversed(node.inputs))
    while waiting:
        ref = waiting.pop()
        inner = _joins(graph, ref, axis)
        if inner is None:
            inputs.append(ref)
        else:
            absorbed.append(inner)
            waiting.extend(reversed(inner.inputs))
    if not absorbed:
        return False
    absorbed.sort(key=lambda each: each._order)
    edit = rewriter.edit(
        *absorbed, node, rule="a concatenation of concatenations is one concatenation"
    )
    return edit.finish(node, edit.node("Concat", inputs, node.attrs, node.outputs))


def _joins(graph: Graph, ref: Ref | None, axis: int | None) -> Node | None:
    """The concatenation behind `ref` when it runs along `axis` and is read once, else `None`."""
    inner = producer_of(graph, ref, "Concat")
    if inner is None or axis is None or inner.retained or graph.use_count(inner) != 1:
        return None
    return inner if _axis(graph, inner, inner.inputs[0]) == axis else None


# Split([x, y]) at len x = x, y
def _split_of_concat(node: Node, rewriter: Rewriter) -> bool:
    graph, source = rewriter.graph, producer_of(rewriter.graph, node.inputs[0], "Concat")
    parts = _parts(graph, source) if source is not None else None
    axis = _axis(graph, node, node.inputs[0])
    if (
        source is None
        or parts is None
        or axis is None
        or axis != _axis(graph, source, source.inputs[0])
        or len(parts) != len(node.outputs)
    ):
        return False
    if [length for _, length in parts] != [
        _dim(graph, node.ref(index), axis) for index in range(len(parts))
    ]:
        return False
    if any(
        contradict(kind, graph.type_of(ref))
        for kind, (ref, _) in zip(node.outputs, parts, strict=True)
    ):
        return False
    edit = rewriter.edit(node, rule="a split of a concatenation at its seams yields the parts")
    for index, (ref, _) in enumerate(parts):
        edit.replace(node.ref(index), ref)
    edit.tombstone(node, Reason.CANCELLED, into=parts[0][0].node)
    return edit.apply()


# [x, y][i] = y[i - len x]
def _gather_of_concat(node: Node, rewriter: Rewriter) -> bool:
    graph, source = rewriter.graph, producer_of(rewriter.graph, node.inputs[0], "Concat")
    index = graph.const_value(node.operand("indices"))
    if source is None or index is None or index.ndim != 0:
        return False
    parts, axis = _parts(graph, source), _axis(graph, node, node.inputs[0])
    if parts is None or axis is None or axis != _axis(graph, source, source.inputs[0]):
        return False
    total = sum(length for _, length in parts)
    if not -total <= int(index) < total:
        return False
    part, place = _locate(parts, int(index) % total)
    wrapper = producer_of(graph, part, "Unsqueeze")
    # Unsqueeze(x, a)[0] along a = x
    if (
        wrapper is not None
        and const_ints(graph, wrapper.operand("axes")) == (axis,)
        and _may_stand_for(graph, wrapper.first_input, node)
    ):
        rule = "an element of a concatenation is the value it was made of"
        return rewriter.bypass(node, wrapper.first_input, reason=Reason.CANCELLED, rule=rule)
    edit = rewriter.edit(node, rule="an element of a concatenation is an element of one part")
    made = edit.node(
        "Gather", [part, edit.const(np.array(place, index.dtype))], node.attrs, node.outputs
    )
    return edit.finish(node, made)


# x[0, 1, ..., n - 1] = x, in the shape of the indices
def _gather_of_all(node: Node, rewriter: Rewriter) -> bool:
    graph, data = rewriter.graph, node.first_input
    index, kind = graph.const_value(node.operand("indices")), node.outputs[0]
    axis = _axis(graph, node, data)
    length = None if axis is None else _dim(graph, data, axis)
    if (
        index is None
        or not length
        or index.size != length
        or not isinstance(kind, TensorType)
        or kind.shape is None
        or not np.array_equal(np.where(index < 0, index + length, index).ravel(), range(length))
    ):
        return False
    shape = shape_of(graph, data)
    target = None if shape is None else reshape_target(shape, kind.shape)
    if target is None:
        return False
    edit = rewriter.edit(node, rule="all elements along an axis, in order, are the value itself")
    return edit.finish(node, edit.node("Reshape", [data, edit.sizes(target)], types=node.outputs))


def _locate(parts: Sequence[tuple[Ref, int]], place: int) -> tuple[Ref, int]:
    """The part that element `place` lies in, and its place there."""
    for ref, length in parts:
        if place < length:
            return ref, place
        place -= length
    raise IndexError(place)
