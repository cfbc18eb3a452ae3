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

from whence.graph import Graph, Node, Ref, Rewriter
from whence.graph.search import producer_of
from whence.ops.attributes import get_int, get_ints, get_str
from whence.passes.base import Pass
from whence.passes.const_values import const_bool, const_ints, is_filled_with
from whence.passes.operands import same_shape
from whence.passes.parameters import limits, reduced_axes
from whence.passes.pattern import dtype_of, shape_of
from whence.passes.simplify.forward_sweep import ForwardSweep
from whence.provenance import Reason
from whence.types import DType, OptionalType, same_dim

# Exporters write "to the end" as the largest 32- or 64-bit number.
_TO_THE_END = 2**31 - 1


@dataclass(frozen=True, slots=True)
class RemoveNoOps(Pass):
    name = "remove_no_ops"
    summary = "remove operators that return their input"

    def run(self, rewriter: Rewriter) -> None:
        graph, sweep = rewriter.graph, ForwardSweep(rewriter)
        for node in sweep:
            if node.op in _RETURN_FIRST:
                law, returns_it = _RETURN_FIRST[node.op]
                if returns_it(graph, node):
                    values = [node.inputs[0], *[None] * (len(node.outputs) - 1)]
                    sweep.replace(node, values, reason=Reason.IDENTITY, rule=law)
            elif node.op in _RETURN_SOME:
                law, rule = _RETURN_SOME[node.op]
                value, source = rule(graph, node), producer_of(graph, node.inputs[0])
                if value is None:
                    continue
                done = sweep.replace(node, [value], reason=Reason.IDENTITY, rule=law)
                if done and source is not None and source.id != value.node:
                    sweep.spare(source, reason=Reason.CANCELLED, rule=law, into=value.node)
        sweep.finish()

    def why_skip(self, graph: Graph) -> str:
        if graph.op_counts.keys().isdisjoint(_RETURN_FIRST.keys() | _RETURN_SOME.keys()):
            return "no operator that may return its input"
        return ""


def _same_shape(graph: Graph, node: Node) -> bool:
    """Is the shape certain to be the same before and after?"""
    return same_shape(graph.tensor_type(node.inputs[0]), node.type)


def _is_read(graph: Graph, node: Node, index: int) -> bool:
    return len(node.outputs) > index and bool(graph.uses(node.ref(index)))


# ---- the same value ----


# Identity(x) = x
def _identity(graph: Graph, node: Node) -> bool:
    return True


# Dropout(x) = x outside training
def _dropout(graph: Graph, node: Node) -> bool:
    training = node.operand("training_mode")
    is_off = training is None or const_bool(graph, training) is False
    return is_off and not _is_read(graph, node, 1)


# f(x) = x for f in sum, max, min, mean of one value
def _only_input(graph: Graph, node: Node) -> bool:
    return len(node.inputs) == 1


# Clip(x, -inf, inf) = x
def _clip(graph: Graph, node: Node) -> bool:
    return limits(graph, node) == (-math.inf, math.inf)


# a reduction over nothing, or over axes of length 1 that stay, is x
def _reduce(graph: Graph, node: Node) -> bool:
    listed = const_ints(graph, node.operand("axes"), ())
    if listed == () and get_int(node.attrs, "noop_with_empty_axes", 0):
        return True
    shape = shape_of(graph, node.inputs[0])
    if shape is None or not get_int(node.attrs, "keepdims", 1):
        return False
    axes = reduced_axes(graph, node, len(shape))
    return axes is not None and all(same_dim(shape[axis], 1) for axis in axes)


# ---- the same type ----


# Cast(x: T, T) = x
def _cast(graph: Graph, node: Node) -> bool:
    dtype = dtype_of(graph, node.inputs[0])
    return dtype is not DType.UNDEFINED and dtype == node.attrs.get("to")


# CastLike(x: T, y: T) = x
def _cast_like(graph: Graph, node: Node) -> bool:
    first, second = (dtype_of(graph, ref) for ref in node.inputs)
    return first is second is not DType.UNDEFINED


# ---- the same shape ----


# Reshape(x, shape of x) = x
def _reshape(graph: Graph, node: Node) -> bool:
    if _same_shape(graph, node):
        return True
    before, target = shape_of(graph, node.inputs[0]), const_ints(graph, node.operand("shape"))
    if before is None or target is None or len(before) != len(target):
        return False
    copies = not get_int(node.attrs, "allowzero", 0)
    # When all dimensions but one are proven to stay, so does the one that is worked out from them.
    proven = all(
        (dim == 0 and copies) or dim in (-1, was) for dim, was in zip(target, before, strict=True)
    )
    return proven and target.count(-1) <= 1


# Flatten(x) = x for a matrix, around its axis 1
def _flatten(graph: Graph, node: Node) -> bool:
    before = shape_of(graph, node.inputs[0])
    is_matrix = before is not None and len(before) == 2
    return (is_matrix and get_int(node.attrs, "axis", 1) in (1, -1)) or _same_shape(graph, node)


# Squeeze(x, no axes) = Unsqueeze(x, no axes) = x
def _squeeze(graph: Graph, node: Node) -> bool:
    return const_ints(graph, node.operand("axes")) == () or _same_shape(graph, node)


# Transpose(x, 0 1 2 ...) = x
def _transpose(graph: Graph, node: Node) -> bool:
    perm, shape = node.attrs.get("perm"), shape_of(graph, node.inputs[0])
    if isinstance(perm, tuple):
        return perm == tuple(range(len(perm if shape is None else shape)))
    return shape is not None and len(shape) <= 1


# Expand(x, a shape that x covers) = x
def _expand(graph: Graph, node: Node) -> bool:
    before, target = shape_of(graph, node.inputs[0]), const_ints(graph, node.operand("shape"))
    if before is None or target is None or len(target) > len(before):
        return _same_shape(graph, node)
    return all(
        dim in (1, was) for dim, was in zip(reversed(target), reversed(before), strict=False)
    )


# Tile(x, 1 1 ...) = x
def _tile(graph: Graph, node: Node) -> bool:
    repeats = const_ints(graph, node.operand("repeats"))
    return repeats is not None and all(count == 1 for count in repeats)


# Pad(x, nothing) = x
def _pad(graph: Graph, node: Node) -> bool:
    pads = const_ints(graph, node.operand("pads"))
    return pads is not None and not any(pads)


# x[0:] = x
def _slice(graph: Graph, node: Node) -> bool:
    starts = const_ints(graph, node.operand("starts"))
    ends = const_ints(graph, node.operand("ends"))
    steps = const_ints(graph, node.operand("steps"), ())
    if starts is None or steps is None or any(step != 1 for step in steps):
        return False
    if ends is not None and not any(starts) and all(end >= _TO_THE_END for end in ends):
        return True
    # With steps of one, only the whole is as long as the whole; but every slice of nothing is
    # nothing.
    return _same_static_shape(graph, node)


def _same_static_shape(graph: Graph, node: Node) -> bool:
    before = shape_of(graph, node.inputs[0])
    return (
        before is not None
        and all(isinstance(dim, int) for dim in before)
        and _same_shape(graph, node)
    )


# Split(x) into one part = x
def _split(graph: Graph, node: Node) -> bool:
    if node.operand("split") is None:
        return len(node.outputs) == get_int(node.attrs, "num_outputs", 1) == 1
    sizes = const_ints(graph, node.operand("split"))
    return len(node.outputs) == 1 and sizes is not None and len(sizes) == 1


# blocks of one element move nothing
def _blocks(graph: Graph, node: Node) -> bool:
    return get_int(node.attrs, "blocksize", 0) == 1


# ---- sampling and pooling ----


# Resize(x, scale 1) = x
def _resize(graph: Graph, node: Node) -> bool:
    mode = get_str(node.attrs, "coordinate_transformation_mode", "half_pixel")
    scales = graph.const_value(node.operand("scales"))
    if mode.startswith("tf_"):
        return False
    if scales is not None and scales.size:
        return is_filled_with(scales, 1)
    sizes, shape = const_ints(graph, node.operand("sizes")), shape_of(graph, node.inputs[0])
    if sizes is None or shape is None:
        return False
    return [shape[axis] for axis in get_ints(node.attrs, "axes", tuple(range(len(shape))))] == [
        *sizes
    ]


# pooling over windows of one element, one by one, is x
def _pool(graph: Graph, node: Node) -> bool:
    plain = get_str(node.attrs, "auto_pad", "NOTSET") in ("NOTSET", "VALID") and not any(
        get_ints(node.attrs, "pads")
    )
    sizes = (*get_ints(node.attrs, "kernel_shape", (0,)), *get_ints(node.attrs, "strides"))
    return plain and all(size == 1 for size in sizes) and not _is_read(graph, node, 1)


# the mean or the maximum of one element is the element
def _global_pool(graph: Graph, node: Node) -> bool:
    shape = shape_of(graph, node.inputs[0])
    return shape is not None and len(shape) > 2 and all(same_dim(dim, 1) for dim in shape[2:])


# ---- one of several, or what was wrapped ----


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


_RETURN_FIRST: Mapping[str, tuple[str, Callable[[Graph, Node], bool]]] = {
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
}
"""By operator: a law, and whether it returns its first input unchanged."""
_RETURN_SOME: Mapping[str, tuple[str, Callable[[Graph, Node], Ref | None]]] = {
    "Concat": ("a concatenation of one is that one", _concat),
    "OptionalGetElement": ("what is put into an optional comes out", _optional_get),
    "SequenceAt": ("what is put into a sequence comes out", _sequence_at),
    "ConcatFromSequence": ("what is put into a sequence comes out", _concat_from_sequence),
}
"""Likewise, with the value that it returns, `None` when it computes something."""
