"""Means and sums over axes of codes.

1. q(reduce_mean(dq(x))) = tail(reduce_sum(int32(x)) - count · zero), the tail's scale divided by
   the count
2. q(reduce_sum(dq(x))) likewise, without the count
3. q(global_average_pool(dq(x))) is 1 over the spatial axes
4. q(average_pool(dq(x))) = average_pool(x) in integers, by LiteRT's arithmetic and with one coding
   on both sides
"""

from __future__ import annotations

import math

import numpy as np

from whence.graph import Rewriter
from whence.graph.maker import Maker
from whence.ops.attributes import get_int
from whence.ops.registry import operators
from whence.ops.traits import Trait
from whence.passes.origins import absorbing, consts_with_origin
from whence.passes.parameters import reduced_axes
from whence.passes.quantised.fixed_point import FixedPoint, fixed_point
from whence.passes.quantised.integer_codes import limited
from whence.passes.quantised.integer_sums import scale_of, tail
from whence.passes.quantised.quantised_op import CODES, QuantisedOp
from whence.types import DType

REDUCTIONS = operators(Trait.SUMS)


def rewrite_reduction(match: QuantisedOp, rewriter: Rewriter) -> bool:
    """Rules 1 to 3. True when one applied."""
    graph, node, x = rewriter.graph, match.op, match.operand(0)
    if x is None or not x.coding.is_single or x.coding.dtype not in CODES or x.shape is None:
        return False
    axes = reduced_axes(graph, node, len(x.shape))
    sizes = [size for axis in axes or () if isinstance(size := x.shape[axis], int) and size > 0]
    if not axes or len(sizes) < len(axes):
        return False
    count = math.prod(sizes)
    scale = _scale(match, x.coding.step, 1 if node.op == "ReduceSum" else count)
    if scale is None or count * (1 << x.coding.dtype.bits) >= 1 << 31:
        return False
    rule = f"quantise({node.op}(dequantise(x))) = integer sum, scaled"
    edit = absorbing(rewriter, match.matched, rule)
    make, keep = Maker(edit, [x.node, node]), get_int(node.attrs, "keepdims", 1)
    value = make(
        "ReduceSum", make.cast(x.codes, DType.I32), np.array(axes, np.int64), keepdims=keep
    )
    if x.coding.zero:
        value = make("Sub", value, np.int32(count * x.coding.zero))
    return edit.finish(match.last.ref(), tail(edit, match, value, scale))


def _scale(match: QuantisedOp, step: np.float32, count: int) -> FixedPoint | np.ndarray | None:
    if not match.is_fixed_point:
        return scale_of(match, np.asarray(step / (match.result.step * np.float32(count))))
    fixed = fixed_point(float(np.float64(step) / np.float64(match.result.step)))
    if fixed is None:
        return None
    multiplier, shift = map(int, fixed)
    if count > 1:
        # LiteRT divides the multiplier by the count, after as much of the count as is a power of
        # two has gone into the shift.
        bits = min(count.bit_length() - 1, 32, 31 + shift)
        multiplier, shift = (multiplier << bits) // count, shift - bits
    return FixedPoint(np.array(multiplier, np.int32), np.array(shift, np.int32))


def rewrite_average_pool(match: QuantisedOp, rewriter: Rewriter) -> bool:
    """Rule 4. True when it applied."""
    graph, node, x = rewriter.graph, match.op, match.operand(0)
    if (
        x is None
        or not match.is_fixed_point
        or not x.coding.equals(match.result)
        or get_int(node.attrs, "count_include_pad", 0)
    ):
        return False
    edit = rewriter.edit(
        *consts_with_origin(graph, node.inputs),
        *match.matched,
        rule="quantise(average_pool(dequantise(x))) = average_pool(x)",
    )
    value = edit.node(node.op, [x.codes], node.attrs, of=[x.node, node], name=node.name).ref()
    return edit.finish(match.last.ref(), limited(edit, value, match))
