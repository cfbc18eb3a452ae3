"""Operators that return their input leave.

1. Identity; Dropout outside training, when nobody reads its mask.
2. Cast and CastLike to the type a value has; BitCast likewise.
3. Reshape, Flatten, Squeeze, Unsqueeze, Expand, Tile that leave the shape; Transpose that leaves
   the order of the axes.
4. Pad by nothing, Slice of everything, Concat of one, others being empty, Split into one,
   DepthToSpace and SpaceToDepth with blocks of one.
5. Resize by one. Pooling over windows of one element.
6. Sum, Max, Min, Mean of one value; Clip without bounds; a reduction over no axes, or over axes of
   length 1 that are kept.
7. What is put into an optional or a sequence and taken out again.

Rules hold for what is proven from types and constants; a named dimension equals itself, an unknown
one equals nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from whence.graph import Graph, Node, Ref, Rewriter
from whence.ops.attributes import get_int, get_str
from whence.passes.base import Pass
from whence.passes.const_values import const_bool, const_ints, is_filled_with
from whence.passes.parameters import limits, reduced_axes
from whence.passes.pattern import dtype_of, shape_of
from whence.passes.simplify.forward_sweep import ForwardSweep
from whence.provenance import Reason
from whence.types import DType, OptionalType, TensorType, same_dim, same_shape

# Exporters write "to the end" as the largest 32- or 64-bit number.
_TO_THE_END = 2**31 - 1


@dataclass(frozen=True, slots=True)
class RemoveNoOps(Pass):
    name = "remove_no_ops"
    summary = "operators that return their input leave"

    def run(self, rewriter: Rewriter) -> None:
        graph, sweep = rewriter.graph, ForwardSweep(rewriter)
        for node in sweep:
            found = _RULES.get(node.op)
            if found is None:
                continue
            law, rule = found
            value = rule(graph, node)
            if value is not None:
                source = graph[node.inputs[0].node] if node.inputs[0] is not None else None
                done = sweep.replace(
                    node,
                    [value] + [None] * (len(node.outputs) - 1),
                    reason=Reason.IDENTITY,
                    rule=law,
                )
                if done and source is not None and source.id != value.node:
                    sweep.spare(source, reason=Reason.CANCELLED, rule=law, into=value.node)
        sweep.finish()

    def why_skip(self, graph: Graph) -> str:
        if _RULES.keys().isdisjoint(graph.op_counts):
            return "no operator that may return its input"
        return ""


_Rule: TypeAlias = Callable[[Graph, Node], Ref | None]
"""The value a node returns unchanged, or `None` when it computes something."""


def _same_shape(graph: Graph, node: Node) -> bool:
    """Is the shape certain to be the same before and after?"""
    before, kind = shape_of(graph, node.inputs[0]), node.outputs[0]
    return (
        before is not None
        and None not in before
        and isinstance(kind, TensorType)
        and same_shape(before, kind.shape)
    )


def _is_read(graph: Graph, node: Node, index: int) -> bool:
    return len(node.outputs) > index and bool(graph.uses(node.ref(index)))


# ---- the same value ----


# Identity(x) = x
def _identity(graph: Graph, node: Node) -> Ref | None:
    return node.inputs[0]


# Dropout(x) = x outside training
def _dropout(graph: Graph, node: Node) -> Ref | None:
    training = (
        node.operand("training_mode") is not None
        and const_bool(graph, node.operand("training_mode")) is not False
    )
    return None if training or _is_read(graph, node, 1) else node.inputs[0]


# f(x) = x for f in sum, max, min, mean of one value
def _only_input(graph: Graph, node: Node) -> Ref | None:
    return node.inputs[0] if len(node.inputs) == 1 else None


# Clip(x, -inf, inf) = x
def _clip(graph: Graph, node: Node) -> Ref | None:
    return node.inputs[0] if limits(graph, node) == (-math.inf, math.inf) else None


# a reduction over nothing, or over axes of length 1 that stay, is x
def _reduce(graph: Graph, node: Node) -> Ref | None:
    listed = const_ints(graph, node.operand("axes"), ())
    if listed == () and get_int(node.attrs, "noop_with_empty_axes", 0):
        return node.inputs[0]
    shape = shape_of(graph, node.inputs[0])
    if shape is None or not get_int(node.attrs, "keepdims", 1):
        return None
    axes = reduced_axes(graph, node, len(shape))
    is_same = axes is not None and all(same_dim(shape[axis], 1) for axis in axes)
    return node.inputs[0] if is_same else None


# ---- the same type ----


# Cast(x: T, T) = x
def _cast(graph: Graph, node: Node) -> Ref | None:
    dtype = dtype_of(graph, node.inputs[0])
    is_cast = dtype is DType.UNDEFINED or dtype != node.attrs.get("to")
    return None if is_cast else node.inputs[0]


# CastLike(x: T, y: T) = x
def _cast_like(graph: Graph, node: Node) -> Ref | None:
    first, second = (dtype_of(graph, ref) for ref in node.inputs)
    return node.inputs[0] if first is second is not DType.UNDEFINED else None


# ---- the same shape ----


# Reshape(x, shape of x) = x
def _reshape(graph: Graph, node: Node) -> Ref | None:
    if _same_shape(graph, node):
        return node.inputs[0]
    before, target = shape_of(graph, node.inputs[0]), const_ints(graph, node.operand("shape"))
    if before is None or target is None or len(before) != len(target):
        return None
    copies = not get_int(node.attrs, "allowzero", 0)
    # When all dimensions but one are proven to stay, so does the one that is worked out from them.
    proven = all(
        (dim == 0 and copies) or dim in (-1, was) for dim, was in zip(target, before, strict=True)
    )
    return node.inputs[0] if proven and target.count(-1) <= 1 else None


# Flatten(x) = x for a matrix, around its axis 1
def _flatten(graph: Graph, node: Node) -> Ref | None:
    before = shape_of(graph, node.inputs[0])
    matrix = before is not None and len(before) == 2 and get_int(node.attrs, "axis", 1) in (1, -1)
    return node.inputs[0] if matrix or _same_shape(graph, node) else None


# Squeeze(x, no axes) = Unsqueeze(x, no axes) = x
def _squeeze(graph: Graph, node: Node) -> Ref | None:
    if const_ints(graph, node.operand("axes")) == () or _same_shape(graph, node):
        return node.inputs[0]
    return None


# Transpose(x, 0 1 2 ...) = x
def _transpose(graph: Graph, node: Node) -> Ref | None:
    perm, shape = node.attrs.get("perm"), shape_of(graph, node.inputs[0])
    if isinstance(perm, tuple):
        rank = len(perm) if shape is None else len(shape)
        return node.inputs[0] if perm == tuple(range(rank)) else None
    return node.inputs[0] if shape is not None and len(shape) <= 1 else None


# Expand(x, a shape that x covers) = x
def _expand(graph: Graph, node: Node) -> Ref | None:
    before, target = shape_of(graph, node.inputs[0]), const_ints(graph, node.operand("shape"))
    if before is None or target is None or len(target) > len(before):
        return node.inputs[0] if _same_shape(graph, node) else None
    if all(dim in (1, was) for dim, was in zip(reversed(target), reversed(before), strict=False)):
        return node.inputs[0]
    return None


# Tile(x, 1 1 ...) = x
def _tile(graph: Graph, node: Node) -> Ref | None:
    repeats = const_ints(graph, node.operand("repeats"))
    return node.inputs[0] if repeats is not None and all(count == 1 for count in repeats) else None


# Pad(x, nothing) = x
def _pad(graph: Graph, node: Node) -> Ref | None:
    pads = const_ints(graph, node.operand("pads"))
    return node.inputs[0] if pads is not None and not any(pads) else None


# x[0:] = x
def _slice(graph: Graph, node: Node) -> Ref | None:
    starts = const_ints(graph, node.operand("starts"))
    ends = const_ints(graph, node.operand("ends"))
    steps = const_ints(graph, node.operand("steps"), ())
    if steps is None or any(step != 1 for step in steps):
        return None
    if (
        starts is not None
        and ends is not None
        and not any(starts)
        and all(end >= _TO_THE_END for end in ends)
    ):
        return node.inputs[0]
    # With steps of one, only the whole is as long as the whole; but every slice of nothing is
    # nothing.
    return node.inputs[0] if starts is not None and _same_static_shape(graph, node) else None


def _same_static_shape(graph: Graph, node: Node) -> bool:
    before = shape_of(graph, node.inputs[0])
    return (
        before is not None
        and all(isinstance(dim, int) for dim in before)
        and _same_shape(graph, node)
    )


# Concat(x, []) = Concat(x) = x
def _concat(graph: Graph, node: Node) -> Ref | None:
    axis = get_int(node.attrs, "axis", 0)
    shapes = [shape_of(graph, ref) for ref in node.inputs]
    parts = [
        ref
        for ref, shape in zip(node.inputs, shapes, strict=True)
        if shape is None or not -len(shape) <= axis < len(shape) or not same_dim(shape[axis], 0)
    ]
    return parts[0] if len(parts) == 1 else None if parts else node.inputs[0]


# Split(x) into one part = x
def _split(graph: Graph, node: Node) -> Ref | None:
    if len(node.outputs) != 1:
        return None
    if node.operand("split") is None:
        return node.inputs[0] if get_int(node.attrs, "num_outputs", 1) == 1 else None
    sizes = const_ints(graph, node.operand("split"))
    return node.inputs[0] if sizes is not None and len(sizes) == 1 else None


# blocks of one element move nothing
def _blocks(graph: Graph, node: Node) -> Ref | None:
    return node.inputs[0] if get_int(node.attrs, "blocksize", 0) == 1 else None


# ---- sampling and pooling ----


# Resize(x, scale 1) = x
def _resize(graph: Graph, node: Node) -> Ref | None:
    if get_str(node.attrs, "coordinate_transformation_mode", "half_pixel").startswith("tf_"):
        return None
    scales = graph.const_value(node.operand("scales"))
    if scales is not None and scales.size:
        return node.inputs[0] if is_filled_with(scales, 1) else None
    sizes, shape = const_ints(graph, node.operand("sizes")), shape_of(graph, node.inputs[0])
    if sizes is None or shape is None:
        return None
    axes = node.attrs.get("axes")
    chosen = (
        [shape[int(axis)] for axis in axes] if isinstance(axes, tuple) and axes else list(shape)
    )
    return node.inputs[0] if chosen == list(sizes) else None


# pooling over windows of one element, one by one, is x
def _pool(graph: Graph, node: Node) -> Ref | None:
    def all_are(name: str, item: int) -> bool:
        value = node.attrs.get(name, ())
        return isinstance(value, tuple) and all(each == item for each in value)

    plain = get_str(node.attrs, "auto_pad", "NOTSET") in ("NOTSET", "VALID") and all_are("pads", 0)
    window = "kernel_shape" in node.attrs and all_are("kernel_shape", 1) and all_are("strides", 1)
    return node.inputs[0] if plain and window and not _is_read(graph, node, 1) else None


# the mean or the maximum of one element is the element
def _global_pool(graph: Graph, node: Node) -> Ref | None:
    shape = shape_of(graph, node.inputs[0])
    if shape is not None and len(shape) > 2 and all(same_dim(dim, 1) for dim in shape[2:]):
        return node.inputs[0]
    return None


# ---- wrappers ----


# get(Optional(x)) = x
def _optional_get(graph: Graph, node: Node) -> Ref | None:
    source = node.inputs[0]
    if source is None:
        return None
    inner = graph[source.node]
    if inner.op == "Optional" and inner.inputs:
        return inner.inputs[0]
    return (
        None
        if inner.op == "Optional"
        or isinstance(graph.type_of(source), OptionalType)
        or not _is_tensor(graph, source)
        else source
    )


def _is_tensor(graph: Graph, ref: Ref) -> bool:
    return dtype_of(graph, ref) is not DType.UNDEFINED


# SequenceAt([x0, x1, ...], i) = xi
def _sequence_at(graph: Graph, node: Node) -> Ref | None:
    items, index = _items(graph, node), const_ints(graph, node.operand("position"))
    if (
        items is None
        or index is None
        or len(index) != 1
        or not -len(items) <= index[0] < len(items)
    ):
        return None
    return items[index[0]]


# ConcatFromSequence([x]) = x
def _concat_from_sequence(graph: Graph, node: Node) -> Ref | None:
    items = _items(graph, node)
    if items is not None and len(items) == 1 and not get_int(node.attrs, "new_axis", 0):
        return items[0]
    return None


def _items(graph: Graph, node: Node) -> tuple[Ref | None, ...] | None:
    source = node.inputs[0]
    producer = graph[source.node] if source is not None else None
    return producer.inputs if producer is not None and producer.op == "SequenceConstruct" else None


_RULES: Mapping[str, tuple[str, _Rule]] = {
    "Identity": ("Identity returns its input", _identity),
    "Dropout": ("Dropout returns its input outside training", _dropout),
    "Cast": ("a cast to the type a value has returns it", _cast),
    "BitCast": ("a cast to the type a value has returns it", _cast),
    "CastLike": ("a cast to the type a value has returns it", _cast_like),
    "Reshape": ("a reshape to the shape a value has returns it", _reshape),
    "Flatten": ("a reshape to the shape a value has returns it", _flatten),
    "Squeeze": ("a squeeze of no axes returns its input", _squeeze),
    "Unsqueeze": ("an unsqueeze of no axes returns its input", _squeeze),
    "Transpose": ("a transpose that keeps the order of axes returns its input", _transpose),
    "Expand": ("an expansion to the shape a value has returns it", _expand),
    "Tile": ("one repetition of a value is the value", _tile),
    "Pad": ("padding by nothing returns the input", _pad),
    "Slice": ("a slice of everything is everything", _slice),
    "Concat": ("a concatenation of one is that one", _concat),
    "Split": ("a split into one part is the whole", _split),
    "DepthToSpace": ("blocks of one element move nothing", _blocks),
    "SpaceToDepth": ("blocks of one element move nothing", _blocks),
    "Resize": ("a resize by one returns its input", _resize),
    "MaxPool": ("pooling over windows of one returns the input", _pool),
    "AveragePool": ("pooling over windows of one returns the input", _pool),
    "GlobalAveragePool": ("pooling over windows of one returns the input", _global_pool),
    "GlobalMaxPool": ("pooling over windows of one returns the input", _global_pool),
    "Sum": ("the sum of one value is the value", _only_input),
    "Max": ("the maximum of one value is the value", _only_input),
    "Min": ("the minimum of one value is the value", _only_input),
    "Mean": ("the mean of one value is the value", _only_input),
    "Clip": ("clipping without bounds returns the input", _clip),
    "ReduceSum": ("a reduction over nothing returns the input", _reduce),
    "ReduceMean": ("a reduction over nothing returns the input", _reduce),
    "ReduceMax": ("a reduction over nothing returns the input", _reduce),
    "ReduceMin": ("a reduction over nothing returns the input", _reduce),
    "ReduceProd": ("a reduction over nothing returns the input", _reduce),
    "OptionalGetElement": ("what is put into an optional comes out", _optional_get),
    "SequenceAt": ("what is put into a sequence comes out", _sequence_at),
    "ConcatFromSequence": ("what is put into a sequence comes out", _concat_from_sequence),
}
