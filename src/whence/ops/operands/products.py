"""Convolutions, pools, matrix products and recurrent layers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

from whence.errors import ModelError
from whence.ops.attributes import get_int, get_ints, get_str
from whence.ops.definition import Check, TypeQuery
from whence.ops.operands.checks import (
    by_types,
    count_of,
    demand,
    demand_broadcast,
    demand_numbers,
    demand_one,
    demand_rank,
    demand_same_elements,
    divided,
    shape_of,
)
from whence.ops.types.spatial_rules import conv
from whence.ops.types.type_rules import broadcast_shapes
from whence.types import Dim, Shape, differ


def _conv(query: TypeQuery) -> None:
    w = _weights(query)
    if w is not None:
        demand(query, 2, (w[0],), "the bias")


def _conv_transpose(query: TypeQuery) -> None:
    x, w, groups = shape_of(query, 0), _weights(query), get_int(query.attrs, "group", 1)
    if w is None:
        return
    if x is not None and len(x) > 1 and differ(x[1], w[0]):
        raise ModelError(f"weights {query.types[1]} do not fit an input {query.types[0]}")
    demand(query, 2, (w[1] * groups if isinstance(w[1], int) else None,), "the bias")


def _weights(query: TypeQuery) -> Shape | None:
    """The shape of a convolution's weights, which fit its data and attributes."""
    demand_rank(query, 0, 3)
    demand_rank(query, 1, 3)
    demand_same_elements(query, 1, 0)
    w = shape_of(query, 1)
    if w is not None:
        divided(w[0], get_int(query.attrs, "group", 1), "channels")
        _kernel(query, shape_of(query, 0), w)
    return w


def _kernel(query: TypeQuery, x: Shape | None, w: Shape) -> None:
    if x is not None and len(x) != len(w):
        raise ModelError(
            f"weights {query.types[1]} do not have as many axes as the input {query.types[0]}"
        )
    given = get_ints(query.attrs, "kernel_shape", ())
    if given and (len(given) != len(w) - 2 or any(map(differ, w[2:], given))):
        raise ModelError(f"kernel_shape {list(given)} is not that of the weights {query.types[1]}")


def _deform_conv(query: TypeQuery) -> None:
    """As Conv, with an offset and a weight for every tap of every group of channels."""
    x, w = shape_of(query, 0), shape_of(query, 1)
    demand_rank(query, 0, 3)
    demand_rank(query, 1, 3)
    if w is None:
        return
    divided(w[0], get_int(query.attrs, "group", 1), "channels")
    _kernel(query, x, w)
    if any(isinstance(dim, int) and dim < 1 for dim in w[2:]):
        raise ModelError(f"weights {query.types[1]} have no taps")
    demand(query, 3, (w[0],), "the bias")
    taps, parts = count_of(w[2:]), get_int(query.attrs, "offset_group", 1)
    if x is None:
        return
    divided(x[1], parts, "channels")
    places = (conv(query).shape or ())[2:]
    if taps is not None:
        demand(query, 2, (x[0], parts * taps * (len(x) - 2), *places), "the offsets")
        demand(query, 4, (x[0], parts * taps, *places), "the mask")


def _einsum(query: TypeQuery) -> None:
    """Axes with one label are of one size, or 1."""
    equation = get_str(query.attrs, "equation", "").replace(" ", "")
    terms = equation.split("->")[0].split(",")
    if len(terms) != len(query.types):
        raise ModelError(
            f"equation {equation!r} has {len(terms)} operands, {len(query.types)} are given"
        )
    sizes: dict[str, Dim] = {}
    for index, term in enumerate(terms):
        shape = shape_of(query, index)
        if shape is None:
            continue
        before, dots, after = term.partition("...")
        named = len(before) + len(after)
        if named > len(shape) or (not dots and named != len(shape)):
            raise ModelError(
                f"{term!r} of equation {equation!r} does not have the axes of {query.types[index]}"
            )
        ends = [*zip(before, shape, strict=False)]
        ends += zip(after, shape[len(shape) - len(after) :], strict=True)
        for label, size in ends:
            if size == 1 or size is None:
                continue
            if differ(sizes.setdefault(label, size), size):
                raise ModelError(
                    f"axis {label!r} of equation {equation!r} is {size} in"
                    f" {query.types[index]}, and {sizes[label]} elsewhere"
                )


def _blocked_conv(query: TypeQuery) -> None:
    """As Conv, whose channels its attributes count."""
    w, outputs = shape_of(query, 1), get_int(query.attrs, "channels_out", 0)
    demand_rank(query, 1, 4, 4)
    demand(query, 2, (outputs,), "the bias")
    if w is not None:
        divided(w[0], get_int(query.attrs, "group", 1), "channels")
        if differ(w[0], outputs):
            raise ModelError(f"weights {query.types[1]} do not make {outputs} channels")
    if not get_int(query.attrs, "plain_input", 0):
        _blocks_of(query, get_int(query.attrs, "channels_in", 0))


def _blocks_of(query: TypeQuery, channels: int) -> None:
    x = shape_of(query, 0)
    if x is None or len(x) != 5 or not isinstance(x[1], int) or not isinstance(x[4], int):
        return
    if not 0 <= channels <= x[1] * x[4]:
        raise ModelError(f"{query.types[0]} does not hold {channels} channels")


def _integer_conv(query: TypeQuery) -> None:
    """Channels are last; zero points are one number, or one for each filter."""
    w = shape_of(query, 1)
    demand_one(query, 2, "the zero point of the input")
    _zero_points(query, 3, None if w is None or query.op.endswith("Transpose") else w[0])


def _matmul_integer(query: TypeQuery) -> None:
    a, b = shape_of(query, 0), shape_of(query, 1)
    for index in (2, 3):
        demand_same_elements(query, index, index - 2)
    if a and b:
        inner = b[-2] if len(b) > 1 else b[0]
        if differ(a[-1], inner):
            raise ModelError(f"inner dimensions differ in {query.types[0]} and {query.types[1]}")
        broadcast_shapes(query.op, a[:-2], b[:-2])
    rows = None if a is None else a[-2] if len(a) > 1 else 1
    columns = None if b is None else b[-1] if len(b) > 1 else 1
    _matrix_zero_points(query, 2, a, rows, (rows, 1))
    _matrix_zero_points(query, 3, b, columns, (1, columns))


def _matrix_zero_points(
    query: TypeQuery, index: int, matrix: Shape | None, count: Dim, spread: tuple[Dim, Dim]
) -> None:
    """One number, one for each row (or column), or a matrix of those for each matrix of a batch."""
    found = shape_of(query, index)
    if found is not None and len(found) > 1 and matrix is not None and len(matrix) > 1:
        demand(query, index, (*matrix[:-2], *spread), f"input {index}")
    else:
        _zero_points(query, index, count)


def _zero_points(query: TypeQuery, index: int, count: Dim) -> None:
    found = shape_of(query, index)
    if found is None or not found or (len(found) == 1 and (found[0] == 1 or count is None)):
        return
    demand(query, index, (count,), f"input {index}")


def _gemm(query: TypeQuery) -> None:
    a, b = shape_of(query, 0), shape_of(query, 1)
    if a is not None and b is not None and len(a) == len(b) == 2:
        rows = a[1 if get_int(query.attrs, "transA", 0) else 0]
        columns = b[0 if get_int(query.attrs, "transB", 0) else 1]
        demand_broadcast(query, 2, (rows, columns), "the addend")
        demand_same_elements(query, 2, 0)


def _pool(query: TypeQuery, fewest: int) -> None:
    demand_rank(query, 0, fewest)
    demand_numbers(query, 0)


def _norm_pool(query: TypeQuery) -> None:
    """(sum of |x|^p)^(1/p) of a window, or of a whole image."""
    _pool(query, fewest=2 if query.op == "GlobalLpPool" else 3)
    power = query.attrs.get("p", 2)
    if not isinstance(power, int | float) or not 1 <= power < math.inf:
        raise ModelError(f"p is {power!r}, and should be at least 1")


_WINDOWS = ("MaxPool", "AveragePool", "ChannelsLastMaxPool", "ChannelsLastAveragePool")

RULES: Mapping[str, Check] = {
    "Conv": _conv,
    "FusedConv": _conv,
    "ConvTranspose": _conv_transpose,
    "FusedConvTranspose": _conv_transpose,
    "DeformConv": _deform_conv,
    "Einsum": _einsum,
    "BlockedConv": _blocked_conv,
    "FromBlocked": lambda query: _blocks_of(query, get_int(query.attrs, "channels", 0)),
    "ToBlocked": by_types,
    "IntegerConv": _integer_conv,
    "IntegerConvTranspose": _integer_conv,
    "MatMul": by_types,
    "FusedMatMul": by_types,
    "MatMulInteger": _matmul_integer,
    "Gemm": _gemm,
    "FusedGemm": _gemm,
    **dict.fromkeys(_WINDOWS, partial(_pool, fewest=3)),
    **dict.fromkeys(("LpPool", "GlobalLpPool"), _norm_pool),
    **dict.fromkeys(("BlockedMaxPool", "BlockedAveragePool"), by_types),
    **dict.fromkeys(("GlobalMaxPool", "GlobalAveragePool"), partial(_pool, fewest=2)),
}
