"""Sums of products of codes: in which units they are, the bias in these units, and the tail that
follows: scaling, the zero point, the limits, and the type of the result.

LiteRT:  cast(clip(fixed_point_scale(sum) + zero))                          in integers
         cast(clip(round(double(sum) · (scales in / scale out)) + zero))    for some sums of 64 bits, halves away from zero
ONNX:    cast(clip(round(float(sum) · (scales in / scale out)) + zero))     in float32, halves to even
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whence.graph import Graph, Node, Ref
from whence.graph.edit import Edit
from whence.graph.maker import Maker
from whence.passes.quantised.fixed_point import FixedPoint, fixed_point
from whence.passes.quantised.quantised_op import QuantisedOp, QuantisedOperand, operand_of
from whence.types import DType, TensorType

WEIGHTS = frozenset({DType.I8, DType.U8, DType.I4, DType.U4, DType.I2, DType.U2})
_BYTES = frozenset({np.dtype(np.int8), np.dtype(np.uint8)})


class Bias(NamedTuple):
    """Integers to add to sums, and the DequantizeLinear they came through, if any."""

    value: np.ndarray
    source: Node | None


def whole_bytes(codes: np.ndarray) -> np.ndarray:
    """Codes of fewer than 8 bits in a type that kernels know; other codes as they are. The order in
    memory is that of the axes.
    """
    return np.ascontiguousarray(codes if codes.dtype in _BYTES else codes.astype(np.int8))


def zero_points(edit: Edit, operand: QuantisedOperand, dtype: np.dtype[np.generic]) -> Ref | None:
    """A constant of one zero point, or one for each channel; `None` when all are zero."""
    points = operand.coding.zero_point.astype(dtype)
    if not np.any(points):
        return None
    return edit.const(points.reshape(()) if operand.coding.is_single else points)


def combined_scales(
    match: QuantisedOp, x: QuantisedOperand, w: QuantisedOperand, *, in_double: bool
) -> np.ndarray:
    """The scale of a sum over that of the result. LiteRT multiplies the scales in single precision
    in some operators and in double in others.
    """
    step, scales, result = x.coding.step, w.coding.scale, match.result.step
    # What overflows has no tail, and says so itself.
    with np.errstate(over="ignore"):
        if not match.is_fixed_point:
            return np.asarray(step * scales / result, np.float32)
        products = (
            np.float64(step) * scales.astype(np.float64)
            if in_double
            else (step * scales).astype(np.float64)
        )
        return np.asarray(products / np.float64(result))


def bias_of(
    graph: Graph,
    ref: Ref | None,
    x: QuantisedOperand,
    w: QuantisedOperand,
    *,
    is_fixed_point: bool,
) -> Bias | None:
    """A bias as integers in units of the sums of x · w, zero where there is none; `None` when it
    cannot be said so.
    """
    if ref is None:
        return Bias(np.zeros((), np.int32), None)
    operand = operand_of(graph, ref)
    units = np.float64(x.coding.step) * w.coding.scale.astype(np.float64)
    kind = graph.tensor_type(ref)
    if kind is None or kind.elements is None or units.size not in {1, kind.elements}:
        return None
    if operand is None:
        value = graph.const_value(ref)
        if value is None or is_fixed_point or value.dtype != np.float32:
            return None
        return _rounded(value.reshape(-1) / units, None)
    if operand.value is None:
        return None
    codes = operand.value.reshape(-1)
    scale, zeros = operand.coding.scale.astype(np.float64), operand.coding.zero_point
    is_sum = operand.coding.dtype in {DType.I32, DType.I64} and not np.any(zeros)
    # LiteRT takes the codes for sums without looking at their scale; elsewhere it must be that of
    # the sums, but for its own rounding.
    if is_sum and (is_fixed_point or np.allclose(scale, units, rtol=1e-4, atol=0.0)):
        fits = codes.dtype != np.int32 or _has_headroom(codes.astype(np.int64))
        return Bias(codes, operand.node) if fits else None
    if is_fixed_point:
        return None
    return _rounded((codes.astype(np.int64) - zeros) * scale / units, operand.node)


def _has_headroom(bias: np.ndarray) -> bool:
    """Do sums of 32 bits hold it and what it is added to?"""
    return bool(np.all(np.abs(bias) < 2.0**30))


def _rounded(exact: np.ndarray, source: Node | None) -> Bias | None:
    if not _has_headroom(exact):
        return None
    return Bias(np.rint(exact).astype(np.int32), source)


def makers_of_sums(nodes: list[Node], bias: Bias) -> list[Node]:
    """The nodes whose work the sums do. Zeros are added by no node of their own: their source is
    one of these.
    """
    if bias.source is None or np.any(bias.value):
        return nodes
    return [*nodes, bias.source]


def biased(edit: Edit, sums: Ref, bias: Bias, of: list[Node]) -> Ref:
    """Sums plus bias, in the type of the sums."""
    kind = edit.type_of(sums)
    assert isinstance(kind, TensorType)
    if not np.any(bias.value):
        return sums
    return edit.node(
        "Add",
        [sums, edit.const(bias.value.astype(kind.dtype.numpy))],
        of=of if bias.source is None else [*of, bias.source],
    ).ref()


def scale_of(
    match: QuantisedOp, reals: np.ndarray, *, in_double: bool = False
) -> FixedPoint | np.ndarray | None:
    """What a tail multiplies a sum by: `reals`, one number or one for each element of the last
    axis, in fixed point, or in float64 or float32; `None` when they are out of range.
    """
    reals = reals.reshape(() if reals.size == 1 else -1)
    if match.is_fixed_point and not in_double:
        return fixed_point(reals)
    factor = reals.astype(np.float64 if match.is_fixed_point else np.float32)
    return factor if np.all(np.isfinite(factor)) else None


def tail(
    edit: Edit,
    match: QuantisedOp,
    sums: Ref,
    scale: FixedPoint | np.ndarray,
    rounding: str = "double",
) -> Ref:
    """The codes made of `sums`, an integer value of `edit`. A product in fixed point is rounded as
    often as `rounding` says, see FixedPointScale.
    """
    make = Maker(edit, [*match.activations, match.last])
    if isinstance(scale, FixedPoint):
        attrs = {} if rounding == "double" else {"rounding": rounding}
        return narrowed(make, make("FixedPointScale", sums, *scale, **attrs), match)
    value = make("Mul", make.cast(sums, DType.of(scale)), scale)
    if scale.dtype == np.float32:
        return narrowed(make, make("Round", value), match)
    whole = make("Floor", make("Add", make("Abs", value), np.float64(0.5)))
    return narrowed(make, make("Mul", make("Sign", value), whole), match)


def narrowed(make: Maker, value: Ref, match: QuantisedOp) -> Ref:
    """A value in units of the result's scale as codes of the result: plus the zero point, limited,
    in its type.
    """
    kind = make.edit.type_of(value)
    assert isinstance(kind, TensorType)
    zero, low, high = (
        np.asarray(number, kind.dtype.numpy)
        for number in (match.result.zero, match.low, match.high)
    )
    if match.result.zero:
        value = make("Add", value, zero)
    return make.cast(make("Clip", value, low, high), match.result.dtype)
