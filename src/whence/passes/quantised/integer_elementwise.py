"""LiteRT's elementwise arithmetic of codes, in 32-bit integers.

1. q(dq(a) ± dq(b)) = tail(scale(a' · 2^k) ± scale(b' · 2^k)), a' and b' without their zero points,
   k = 20 for 8 bits and 15 for 16
2. q(dq(a) · dq(b)) = tail(a' · b')
3. q(prelu(dq(x), dq(slope))) = cast(clip(where(x' ≥ 0, scale(x'), scale(x' · slope')) + zero))
4. q(f(dq(x))) = cast(clip(scale(x') + zero)) for codes of 16 bits, f being nothing, Relu or Clip;
   for LeakyRelu as in 3
5. q(dq(x)) = cast(clip(scale(x') + zero)) where either is of 32 bits

ONNX has no arithmetic of its own for these: dequantise, compute, quantise is what ONNX Runtime
does.
"""

from __future__ import annotations

import math

import numpy as np

from whence.graph import Node, Ref, Rewriter
from whence.graph.maker import Maker
from whence.ops.attributes import get_float
from whence.ops.quantised.quantise import integer_range, is_fixed_point
from whence.passes.origins import absorbing
from whence.passes.parameters import limits
from whence.passes.quantised.fixed_point import fixed_point
from whence.passes.quantised.integer_sums import narrowed
from whence.passes.quantised.quantised_op import (
    CODES,
    QuantisedOp,
    QuantisedOperand,
    coding_of,
    operand_of,
)
from whence.types import DType

_RULE = "quantise(f(dequantise(x))) = f in integers"


def rewrite_sum(match: QuantisedOp, rewriter: Rewriter) -> bool:
    """Rule 1. True when it applied."""
    a, b = match.alike(0), match.alike(1)
    if a is None or b is None:
        return False
    # As LiteRT has it: both are brought to half of the larger scale, so that their sum stays within
    # 32 bits.
    bits = 15 if match.result.dtype is DType.I16 else 20
    step_a, step_b, result = (
        np.float64(step) for step in (a.coding.step, b.coding.step, match.result.step)
    )
    both = 2.0 * max(step_a, step_b)
    scales = fixed_point(np.array([step_a / both, step_b / both, both / (2.0**bits * result)]))
    if scales is None:
        return False
    make = _maker(match, rewriter)
    *to_both, to_result = zip(*scales, strict=True)
    parts = []
    for operand, scale in zip((a, b), to_both, strict=True):
        shifted = make("Mul", _centred(make, operand), np.int32(1 << bits))
        parts.append(make("FixedPointScale", shifted, *scale))
    return _finish(make, match, make("FixedPointScale", make(match.op.op, *parts), *to_result))


def rewrite_multiplication(match: QuantisedOp, rewriter: Rewriter) -> bool:
    """Rule 2. True when it applied."""
    a, b = match.alike(0), match.alike(1)
    if a is None or b is None:
        return False
    scale = fixed_point(float(a.coding.step * b.coding.step / match.result.step))
    if scale is None:
        return False
    make = _maker(match, rewriter)
    product = make("Mul", _centred(make, a), _centred(make, b))
    return _finish(make, match, make("FixedPointScale", product, *scale))


def rewrite_prelu(match: QuantisedOp, rewriter: Rewriter) -> bool:
    """Rule 3. True when it applied."""
    x, slope = match.alike(0), match.alike(1)
    if x is None or slope is None:
        return False
    above = fixed_point(float(x.coding.step / match.result.step))
    below = fixed_point(float(x.coding.step * slope.coding.step / match.result.step))
    if above is None or below is None:
        return False
    make = _maker(match, rewriter)
    centred = _centred(make, x)
    product = make("Mul", centred, _centred(make, slope))
    positive = make("FixedPointScale", centred, *above)
    negative = make("FixedPointScale", product, *below)
    return _finish(make, match, _by_sign(make, centred, positive, negative))


def rewrite_wide_unary(match: QuantisedOp, rewriter: Rewriter) -> bool:
    """Rule 4. True when it applied."""
    x = match.operand(0)
    if x is None or x.coding.dtype is not DType.I16 or not x.coding.is_single:
        return False
    above = fixed_point(float(x.coding.step / match.result.step))
    alpha = np.float32(get_float(match.op.attrs, "alpha", 0.01))
    below = fixed_point(float(x.coding.step * alpha / match.result.step))
    if above is None or below is None:
        return False
    ends = (
        limits(rewriter.graph, match.op) if match.op.is_a("Relu", "Clip") else (-math.inf, math.inf)
    )
    if ends is None:
        return False
    make = _maker(match, rewriter)
    centred = _centred(make, x)
    value = make("FixedPointScale", centred, *above)
    if match.op.op == "LeakyRelu":
        value = _by_sign(make, centred, value, make("FixedPointScale", centred, *below))
    else:
        match = match.limited_to(ends)
    return _finish(make, match, value)


def _maker(match: QuantisedOp, rewriter: Rewriter) -> Maker:
    return Maker(absorbing(rewriter, match.matched, _RULE), match.matched)


def _centred(make: Maker, operand: QuantisedOperand) -> Ref:
    """The codes less their zero point, in int32."""
    if operand.value is not None:
        return make.edit.const(operand.value.astype(np.int32) - np.int32(operand.coding.zero))
    value = operand.codes
    if operand.coding.dtype is not DType.I32:
        value = make.cast(value, DType.I32)
    return make("Sub", value, np.int32(operand.coding.zero)) if operand.coding.zero else value


def _by_sign(make: Maker, x: Ref, above: Ref, below: Ref) -> Ref:
    return make("Where", make("GreaterOrEqual", x, np.int32(0)), above, below)


def _finish(make: Maker, match: QuantisedOp, value: Ref) -> bool:
    return make.edit.finish(match.last.ref(), narrowed(make, value, match))


def rewrite_requantisation(last: Node, rewriter: Rewriter) -> bool:
    """Rules 4, with nothing between, and 5. True when one applied."""
    graph = rewriter.graph
    x, result = operand_of(graph, last.first_input), coding_of(graph, last, last.ref())
    if (
        x is None
        or result is None
        or not {x.coding.dtype, result.dtype} <= {*CODES, DType.I32}
        or not (x.coding.dtype in {DType.I16, DType.I32} or result.dtype is DType.I32)
        or not x.coding.is_single
        or not result.is_single
    ):
        return False
    scale = fixed_point(np.float64(x.coding.step) / np.float64(result.step))
    if not is_fixed_point(last.attrs) or scale is None:
        return False
    match = QuantisedOp(
        x.node, (), last, (x,), result, *integer_range(result.dtype), is_fixed_point=True
    )
    make = _maker(match, rewriter)
    return _finish(make, match, make("FixedPointScale", _centred(make, x), *scale))
