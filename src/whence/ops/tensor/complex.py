"""Complex numbers, as far as edge models have them: a Fourier transform of real tensors, and the
ways back to real numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from whence.errors import ModelError
from whence.ops.definition import Call, OpClass, OpDef, Pattern, TypeQuery, Value, sizes
from whence.ops.operand import PARAMETER, UNARY, named
from whence.ops.precision import tensor
from whence.ops.types.type_rules import const_ints, tensor_type
from whence.types import Dim, DType, TensorType, ValueType

_LONGEST = 1 << 24


def _lengths(op: str, lengths: Sequence[int]) -> tuple[int, int]:
    if len(lengths) != 2 or not all(0 < length <= _LONGEST for length in lengths):
        raise ModelError(f"{op}: the lengths of its transform are {list(lengths)}")
    return lengths[0], lengths[1]


def _real_fourier(call: Call) -> Value:
    x = tensor(call, 0)
    if x.ndim < 2:
        raise ModelError(f"its input has {x.ndim} dimensions, it transforms the last two")
    lengths = _lengths(call.op, [int(length) for length in tensor(call, 1).reshape(-1)])
    return np.fft.rfft2(x, lengths).astype(np.complex64)


def _real_fourier_type(query: TypeQuery) -> TensorType:
    data, lengths = tensor_type(query, 0), const_ints(query, 1)
    if data.shape is None:
        return TensorType(DType.C64)
    last: tuple[Dim, Dim] = (None, None)
    if lengths is not None:
        rows, columns = _lengths(query.op, lengths)
        last = (rows, columns // 2 + 1)
    return TensorType(DType.C64, (*data.shape[:-2], *last))


def _real_fourier_flops(query: TypeQuery, outputs: Sequence[ValueType]) -> int | None:
    """As is usual: 2.5 · n · log₂ n for a real transform of n elements."""
    lengths = const_ints(query, 1)
    if lengths is None:
        return None
    size = max(int(np.prod(lengths)), 1)
    samples = int(np.prod(sizes(query.types[0])[:-2]))
    return int(samples * 2.5 * size * max(np.log2(size), 1))


def _part(name: str, function: Callable[[np.ndarray], np.ndarray], flops: int) -> OpDef:
    def reference(call: Call) -> Value:
        return np.ascontiguousarray(function(tensor(call, 0)), np.float32)

    def infer(query: TypeQuery) -> TensorType:
        return TensorType(DType.F32, tensor_type(query, 0).shape)

    return OpDef(name, Pattern.OPAQUE, OpClass.ELEMENTWISE, infer, reference, flops, operands=UNARY)


OPS: tuple[OpDef, ...] = (
    OpDef(
        "RealFourier2D",
        infer=_real_fourier_type,
        reference=_real_fourier,
        flops=_real_fourier_flops,
        operands=named("X", fft_length=PARAMETER),
    ),
    _part("RealPart", np.real, 0),
    _part("ImaginaryPart", np.imag, 0),
    _part("ComplexAbs", np.abs, 4),
)
