"""Groups anchored at a softmax or a normalisation, as passes over rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from whence.errors import UnsupportedError
from whence.graph import Node, Ref
from whence.kernels.elements import Elements, Indices, Rule
from whence.kernels.expressions import apply, cast, compute_type, position, select, within
from whence.kernels.ir import Expr, Fn, Kernel, Literal
from whence.kernels.loops.row_nest import Make, RowNest
from whence.kernels.rules.elementwise import add, div, like, mul, sub
from whence.ops.attributes import get_float, get_int, get_ints
from whence.ops.limits import MAX_UNROLLED
from whence.types import DType

if TYPE_CHECKING:
    from whence.kernels.group import Group


def _axis(group: Group, anchor: Node) -> int:
    return get_int(anchor.attrs, "axis", -1) % max(len(group.shape(anchor.first_input)), 1)


def _along(
    group: Group, anchor: Node, axes: Sequence[int], shape: Sequence[int] | None = None
) -> RowNest:
    """The passes along these axes of the input, or of a finer division of its dimensions."""
    row = RowNest(group, anchor, group.shape(anchor.first_input) if shape is None else shape, axes)
    row.keep_costly()
    return row


def _top(row: RowNest) -> Expr:
    """The largest element, where a NaN need not win: what is computed from it is NaN anyway."""
    if row.dtype is not DType.F32:
        return row.fold("top", Fn.MAX, -math.inf, row.x)
    best = row.fold(
        "best",
        Fn.MAX,
        -(1 << 31),
        lambda index: apply(Fn.ORDER, row.x(index), dtype=DType.I32),
        DType.I32,
    )
    return row.hold("top", apply(Fn.UNORDER, best, dtype=DType.F32))


def _softmax(group: Group, anchor: Node) -> Kernel:
    # exp(x - max) / Σ exp(x - max)
    row = _along(group, anchor, [_axis(group, anchor)])
    top = _top(row)
    total, stored = row.fold_stored(
        "total", lambda index: apply(Fn.EXP_DOWN, sub(row.x(index), top))
    )
    inverse = row.hold("inverse", div(like(1.0, total), total))
    return row.finish(lambda index: mul(stored(index), inverse))


def _log_softmax(group: Group, anchor: Node) -> Kernel:
    # x - (max + log Σ exp(x - max))
    row = _along(group, anchor, [_axis(group, anchor)])
    top = _top(row)
    total = row.fold("total", Fn.ADD, 0.0, lambda index: apply(Fn.EXP_DOWN, sub(row.x(index), top)))
    logarithm = row.hold("logarithm", apply(Fn.LOG, total))
    return row.finish(lambda index: sub(sub(row.x(index), top), logarithm))


def _hardmax(group: Group, anchor: Node) -> Kernel:
    # 1 at the first of the largest elements, 0 elsewhere
    axis = _axis(group, anchor)
    row = _along(group, anchor, [axis])
    top = row.fold("top", Fn.MAX, -math.inf, row.x)
    far = Literal(row.count, DType.I64)

    def place(index: Indices) -> Expr:
        x = row.x(index)
        hit = apply(Fn.OR, apply(Fn.EQ, x, top), apply(Fn.ISNAN, x))
        return select(hit, position(index[axis]), far)

    first = row.fold("first", Fn.MIN, row.count, place, DType.I64)
    return row.finish(
        lambda index: select(
            apply(Fn.EQ, position(index[axis]), first),
            Literal(1.0, row.dtype),
            Literal(0.0, row.dtype),
        )
    )


def _mean(row: RowNest, total: Expr) -> Expr:
    return div(total, like(row.count, total))


def _moments(row: RowNest) -> tuple[Expr, Expr]:
    """The mean, and the variance."""
    mean = row.hold("mean", _mean(row, row.fold("total", Fn.ADD, 0.0, row.x)))

    def square(index: Indices) -> Expr:
        centred = sub(row.x(index), mean)
        return mul(centred, centred)

    return mean, _mean(row, row.fold("power", Fn.ADD, 0.0, square))


def _centred(row: RowNest, mean: Expr, inverse: Expr) -> Make:
    return lambda index: mul(sub(row.x(index), mean), inverse)


def _inverse_root(row: RowNest, variance: Expr) -> Expr:
    """1 / sqrt(variance + epsilon)"""
    epsilon = get_float(row.anchor.attrs, "epsilon", 1e-5)
    return row.hold("inverse", apply(Fn.RSQRT, add(variance, like(epsilon, variance))))


def _finish_scaled(
    row: RowNest, normal: Make, place: Callable[[Ref, Indices], Expr], numbers: Sequence[Expr] = ()
) -> Kernel:
    """The last pass: normalised elements times the scale, plus the bias, as far as these are
    given, each at its `place`.
    """
    scale, bias = row.anchor.operand("Scale", "scale"), row.anchor.operand("B", "bias")

    def make(index: Indices) -> Expr:
        value = normal(index)
        if scale is not None:
            value = mul(value, cast(place(scale, index), row.dtype))
        return value if bias is None else add(value, cast(place(bias, index), row.dtype))

    return row.finish(make, numbers)


def _trailing(group: Group, anchor: Node) -> range:
    return range(_axis(group, anchor), len(group.shape(anchor.first_input)))


def _layer_norm(group: Group, anchor: Node) -> Kernel:
    # (x - mean) / sqrt(var + epsilon) · scale + bias
    row = _along(group, anchor, _trailing(group, anchor))
    mean, variance = _moments(row)
    inverse = _inverse_root(row, variance)
    broadcast = row.elements.broadcast
    return _finish_scaled(row, _centred(row, mean, inverse), broadcast, (mean, inverse))


def _rms_norm(group: Group, anchor: Node) -> Kernel:
    # x / sqrt(mean(x²) + epsilon) · scale
    row = _along(group, anchor, _trailing(group, anchor))
    power = row.fold("power", Fn.ADD, 0.0, lambda index: mul(row.x(index), row.x(index)))
    inverse = _inverse_root(row, _mean(row, power))
    return _finish_scaled(row, lambda index: mul(row.x(index), inverse), row.elements.broadcast)


def _channel_norm(row: RowNest) -> Kernel:
    """As a layer norm, with scale and bias for each channel."""
    mean, variance = _moments(row)
    normal = _centred(row, mean, _inverse_root(row, variance))
    return _finish_scaled(row, normal, lambda ref, index: row.elements.value(ref, (index[1],)))


def _instance_norm(group: Group, anchor: Node) -> Kernel:
    rank = len(group.shape(anchor.first_input))
    return _channel_norm(_along(group, anchor, range(2, rank)))


def _group_norm(group: Group, anchor: Node) -> Kernel:
    batch, channels, *rest = group.shape(anchor.first_input)
    groups = get_int(anchor.attrs, "num_groups", 1)
    shape = (batch, groups, channels // groups, *rest)
    return _channel_norm(_along(group, anchor, range(2, len(shape)), shape))


def _lp_norm(group: Group, anchor: Node) -> Kernel:
    # x / ‖x‖, and a row of zeros stays one
    row = _along(group, anchor, [_axis(group, anchor)])
    if get_int(anchor.attrs, "p", 2) == 1:
        norm = row.fold("norm", Fn.ADD, 0.0, lambda index: apply(Fn.ABS, row.x(index)))
    else:
        norm = apply(
            Fn.SQRT, row.fold("norm", Fn.ADD, 0.0, lambda index: mul(row.x(index), row.x(index)))
        )
    divisor = row.hold(
        "divisor", select(apply(Fn.EQ, norm, like(0.0, norm)), like(1.0, norm), norm)
    )
    return row.finish(lambda index: div(row.x(index), divisor))


def _mean_variance_norm(group: Group, anchor: Node) -> Kernel:
    # (x - mean) / (sqrt(var) + 1e-9)
    given = get_ints(anchor.attrs, "axes", (0, 2, 3))
    rank = len(group.shape(anchor.first_input))
    row = _along(group, anchor, sorted({axis % rank for axis in given}))
    mean, variance = _moments(row)
    deviation = add(apply(Fn.SQRT, variance), like(1e-9, variance))
    inverse = row.hold("inverse", div(like(1.0, variance), deviation))
    return row.finish(_centred(row, mean, inverse))


_ROWS: Mapping[str, Callable[[Group, Node], Kernel]] = {
    "Softmax": _softmax,
    "LogSoftmax": _log_softmax,
    "Hardmax": _hardmax,
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm,
    "InstanceNormalization": _instance_norm,
    "GroupNormalization": _group_norm,
    "LpNormalization": _lp_norm,
    "MeanVarianceNormalization": _mean_variance_norm,
}
ROW_OPS = frozenset(_ROWS)


def lower_rows(group: Group, anchor: Node) -> Kernel:
    """A kernel for a group whose anchor is a softmax or a normalisation of floating-point
    values.
    """
    source = anchor.first_input
    if compute_type(group.dtype(source)) not in (DType.F32, DType.F64):
        raise UnsupportedError(f"{anchor.op} '{anchor.name}' of {group.dtype(source)}")
    if 0 in group.shape(source):
        raise UnsupportedError(f"{anchor.op} '{anchor.name}' of no elements")
    return _ROWS[anchor.op](group, anchor)


def _local_response(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    # x · (bias + alpha / size · Σ x²)^-beta, the sum over neighbouring channels
    source = node.first_input
    size, channels = get_int(node.attrs, "size", 1), elements.shape(source)[1]
    x = elements.value(source, index)
    total: Expr = like(0.0, x)
    # A neighbour further away than there are channels does not exist.
    before, after = min((size - 1) // 2, channels - 1), min(size // 2, channels - 1)
    if before + after >= MAX_UNROLLED:
        raise UnsupportedError(
            f"LRN '{node.name}' over {before + after + 1} channels, and kernels have at most"
            f" {MAX_UNROLLED}"
        )
    for offset in range(-before, after + 1):
        channel = index[1] + offset
        neighbour = elements.value(source, (index[0], channel, *index[2:]))
        total = add(
            total, select(within(channel, 0, channels), mul(neighbour, neighbour), like(0.0, x))
        )
    bias, alpha = get_float(node.attrs, "bias", 1.0), get_float(node.attrs, "alpha", 1e-4)
    base = add(like(bias, x), mul(total, like(alpha / size, x)))
    beta = get_float(node.attrs, "beta", 0.75)
    if beta == 0:
        # base^0 = 1, also where the base is 0, which has no logarithm
        return x
    if beta == 0.75:
        # base^0.75 without a logarithm
        root = apply(Fn.SQRT, base)
        return div(x, mul(root, apply(Fn.SQRT, root)))
    if bias < 0 or alpha < 0:
        # A negative base has whole powers, and no logarithm.
        return div(x, apply(Fn.POW, base, like(beta, x)))
    return mul(x, apply(Fn.EXP, mul(like(-beta, x), apply(Fn.LOG, base))))


RULES: Mapping[str, Rule] = {"LRN": _local_response}
