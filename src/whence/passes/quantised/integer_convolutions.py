"""Convolutions of codes, channels last.

1. q(conv(dq(x), dq(w), dq(b))) = tail(integer_conv(x, w) + b); likewise for transposed convolutions
2. conv_integer(x, w, zeros) = integer_conv(x, w, zeros)

Between two convolutions whose channels come second, the transposes that this puts around each meet
and cancel.
"""

from __future__ import annotations

import numpy as np

from whence.graph import Node, Rewriter
from whence.ops.attributes import get_int, get_ints
from whence.ops.definition import Attr
from whence.passes.layout.axes import to_last, to_second
from whence.passes.origins import absorbing
from whence.passes.pattern import is_number_or_absent, rank_of
from whence.passes.quantised.integer_sums import (
    WEIGHTS,
    bias_of,
    biased,
    combined_scales,
    makers_of_sums,
    scale_of,
    tail,
    whole_bytes,
    zero_points,
)
from whence.passes.quantised.quantised_op import CODES, QuantisedOp, scales_along
from whence.types import DType


# q(conv(dq(x), dq(w), dq(b))) = tail(integer_conv(x, w) + b)
def rewrite_convolution(match: QuantisedOp, rewriter: Rewriter) -> bool:
    """True when the rule applied."""
    graph, node = rewriter.graph, match.op
    x, w = match.operand(0), match.operand(1)
    transposed, last = node.op.endswith("Transpose"), node.op.startswith("ChannelsLast")
    if (
        x is None
        or w is None
        or w.value is None
        or not x.coding.is_single
        or x.coding.dtype not in CODES
        or w.coding.dtype not in WEIGHTS
    ):
        return False
    rank = w.value.ndim
    if (
        x.shape is None
        or len(x.shape) != rank
        or rank < 3
        or scales_along(w, 1 if transposed else 0) is None
    ):
        return False
    if transposed and (
        get_int(node.attrs, "group", 1) != 1 or get_ints(node.attrs, "output_shape")
    ):
        return False
    bias = bias_of(graph, node.operand("B"), x, w, is_fixed_point=match.is_fixed_point)
    scale = scale_of(match, combined_scales(match, x, w, in_double=x.coding.dtype is not DType.U8))
    if scale is None or bias is None:
        return False
    rule = f"quantise({node.op}(dequantise(x))) = integer sums, scaled"
    edit = absorbing(rewriter, match.matched, rule)
    of = makers_of_sums([x.node, w.node, node], bias)
    codes = (
        x.codes if last else edit.node("Transpose", [x.codes], {"perm": to_last(rank)}, of=of).ref()
    )
    weights = whole_bytes(
        np.moveaxis(w.value, 0, -1) if transposed else np.moveaxis(w.value, 1, -1)
    )
    inputs = [
        codes,
        edit.const(weights, name=graph[w.codes.node].name),
        zero_points(edit, x, x.coding.dtype.numpy),
        zero_points(edit, w, weights.dtype),
    ]
    attrs: dict[str, Attr] = {
        name: value for name, value in node.attrs.items() if name != "kernel_shape"
    }
    sums = edit.node(
        "IntegerConvTranspose" if transposed else "IntegerConv",
        inputs,
        attrs,
        of=of,
        name=node.name,
    ).ref()
    sums = biased(edit, sums, bias, of)
    result = tail(edit, match, sums, scale)
    if not last:
        result = edit.node("Transpose", [result], {"perm": to_second(rank)}, of=[match.last]).ref()
    return edit.finish(match.last.ref(), result)


# conv_integer(x, w, zeros) = integer_conv(x, w, zeros)
def rewrite_conv_integer(node: Node, rewriter: Rewriter) -> None:
    graph = rewriter.graph
    rank, weights = rank_of(graph, node.inputs[0]), graph.const_value(node.operand("w"))
    if rank is None or weights is None or weights.ndim != rank or rank < 3:
        return
    if not is_number_or_absent(graph, node.operand("x_zero_point")):
        return
    edit = absorbing(rewriter, [node], "conv_integer(x) = integer_conv(x), channels last")
    codes = edit.node("Transpose", [node.inputs[0]], {"perm": to_last(rank)}).ref()
    constant = edit.const(np.ascontiguousarray(np.moveaxis(weights, 1, -1)))
    attrs = {name: value for name, value in node.attrs.items() if name != "kernel_shape"}
    sums = edit.node("IntegerConv", [codes, constant, *node.inputs[2:]], attrs)
    made = edit.node("Transpose", [sums.ref()], {"perm": to_second(rank)}, node.outputs)
    edit.finish(node, made)
