"""Output types of convolutions, pools and Gemm, worked out here because the `onnx` package takes
too long over large graphs.

As in `type_rules`, a dimension that cannot be known is `None`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from whence.errors import ModelError
from whence.ops.attributes import get_int, get_ints
from whence.ops.definition import Attrs, TypeQuery
from whence.ops.neural.window import Transposition, Window, make_transposition, make_window
from whence.ops.types.type_rules import broadcast_shapes, common_dtype, is_absent, tensor_type
from whence.types import Dim, DType, Shape, TensorType, differ

# Stands for an unknown length while the geometry of the known axes is worked out; every kernel fits
# into it.
_ANY_LENGTH = 1 << 40
_Geometry: TypeAlias = Callable[[str, Attrs, Sequence[int], Sequence[int]], Window | Transposition]


def _spatial(query: TypeQuery, sizes: Shape, kernel: Shape, geometry: _Geometry) -> Shape:
    """The output of spatial sizes and kernel, axis by axis; unknown where either is unknown."""
    if len(kernel) != len(sizes):
        raise ModelError(f"a kernel of {len(kernel)} axes does not fit {len(sizes)} spatial axes")
    known = [
        (size, reach) if isinstance(size, int) and isinstance(reach, int) else None
        for size, reach in zip(sizes, kernel, strict=True)
    ]
    axes = [each or (_ANY_LENGTH, 1) for each in known]
    lengths, reaches = [size for size, _ in axes], [reach for _, reach in axes]
    output = geometry(query.op, query.attrs, lengths, reaches).output
    return tuple(size if each else None for size, each in zip(output, known, strict=True))


def conv(query: TypeQuery) -> TensorType:
    """Inputs x and w, as for Conv: (N, C, ...) and (M, C / group, ...) give (N, M, ...)."""
    x, w = tensor_type(query, 0), tensor_type(query, 1)
    if x.shape is not None and w.shape is not None and len(x.shape) > 2:
        (_, inputs, *_), (_, per_group, *_) = x.shape, w.shape
        group = get_int(query.attrs, "group", 1)
        if isinstance(per_group, int) and differ(inputs, per_group * group):
            raise ModelError(f"weights {w} in {group} groups do not fit an input {x}")
    return _convolved(query, None if w.shape is None else w.shape[0], make_window)


def conv_transpose(query: TypeQuery) -> TensorType:
    """As for ConvTranspose: x (N, C, ...) and w (C, M / group, ...) give (N, M, ...)."""
    w = tensor_type(query, 1)
    per_group, group = None if w.shape is None else w.shape[1], get_int(query.attrs, "group", 1)
    channels = per_group * group if isinstance(per_group, int) else None
    return _convolved(query, channels, make_transposition)


def _convolved(query: TypeQuery, channels: Dim, geometry: _Geometry) -> TensorType:
    x, w = tensor_type(query, 0), tensor_type(query, 1)
    if x.shape is None:
        return TensorType(x.dtype, None if w.shape is None else (None,) * len(w.shape))
    known = (None,) * (len(x.shape) - 2) if w.shape is None else w.shape[2:]
    kernel = get_ints(query.attrs, "kernel_shape") or known
    spatial = _spatial(query, x.shape[2:], kernel, geometry)
    return TensorType(x.dtype, (x.shape[0], channels, *spatial))


def pool(query: TypeQuery) -> tuple[TensorType, TensorType]:
    """Values, and where a second output is asked for, their positions."""
    x = tensor_type(query, 0)
    shape, kernel = x.shape, get_ints(query.attrs, "kernel_shape")
    if shape is not None:
        shape = (*shape[:2], *_spatial(query, shape[2:], kernel, make_window))
    return (TensorType(x.dtype, shape), TensorType(DType.I64, shape))


def global_pool(query: TypeQuery) -> TensorType:
    x = tensor_type(query, 0)
    return TensorType(
        x.dtype, None if x.shape is None else (*x.shape[:2], *(1,) * (len(x.shape) - 2))
    )


def gemm(query: TypeQuery) -> TensorType:
    a, b = tensor_type(query, 0), tensor_type(query, 1)
    dtype = common_dtype(query.op, (a, b))
    for operand in (a, b):
        if operand.shape is not None and len(operand.shape) != 2:
            raise ModelError(f"both operands must be matrices, found {operand}")
    rows, depth = _oriented(a.shape, bool(get_int(query.attrs, "transA", 0)))
    inner, columns = _oriented(b.shape, bool(get_int(query.attrs, "transB", 0)))
    if differ(depth, inner):
        raise ModelError(f"inner dimensions differ, {depth} and {inner}")
    return TensorType(dtype, (rows, columns))


def _oriented(shape: Shape | None, transposed: bool) -> tuple[Dim, Dim]:
    if shape is None:
        return None, None
    return (shape[1], shape[0]) if transposed else (shape[0], shape[1])


def batch_normalisation(query: TypeQuery) -> tuple[TensorType, ...]:
    """The input's type, then the running mean and variance."""
    x, mean = tensor_type(query, 0), tensor_type(query, 3)
    return (x, mean, mean)


def with_added(query: TypeQuery, base: TensorType, index: int) -> TensorType:
    """The type of `base` plus input `index`, which may be absent."""
    if is_absent(query, index):
        return base
    shape = broadcast_shapes(query.op, base.shape, tensor_type(query, index).shape)
    return TensorType(base.dtype, shape or base.shape)
