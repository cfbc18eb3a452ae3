"""Signal processing: Fourier transforms, windows and the mel scale, computed in float64 and rounded
once; and complex numbers, as far as edge models have them: a Fourier transform of real tensors, and
the ways back to real numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from whence.errors import ModelError
from whence.ops.attributes import get_int
from whence.ops.definition import Call, OpClass, OpDef, Pattern, TypeQuery, Value, count, sizes
from whence.ops.operand import DATA, PARAMETER, UNARY, named
from whence.ops.precision import narrow, number, optional_tensor, tensor
from whence.ops.traits import Trait
from whence.ops.types.type_rules import (
    const_ints,
    is_absent,
    normalise_axis,
    target_dtype,
    tensor_type,
)
from whence.types import Dim, DType, TensorType, ValueType


def _complex(x: np.ndarray) -> np.ndarray:
    """A tensor whose last axis holds real and imaginary parts, without that axis."""
    wide = x.astype(np.float64)
    if wide.ndim and wide.shape[-1] == 1:
        return wide[..., 0]
    if wide.ndim and wide.shape[-1] == 2:
        return np.asarray(wide[..., 0] + 1j * wide[..., 1])
    raise ModelError(
        f"the last axis must hold 1 (real) or 2 (complex) numbers, found shape {list(x.shape)}"
    )


def _parts(z: np.ndarray) -> np.ndarray:
    return np.stack([z.real, z.imag], axis=-1)


_Transform: TypeAlias = Callable[[np.ndarray, int, int], np.ndarray]


def _transformed(
    transform: _Transform, signal: np.ndarray, length: int | None, axis: int
) -> np.ndarray:
    """numpy's transform, and of no points, which numpy refuses, sums of nothing."""
    if length is None:
        length = signal.shape[axis]
        if transform is np.fft.irfft:
            length = max(2 * (length - 1), 0)
    if length:
        return transform(signal, length, axis)
    shape = list(signal.shape)
    shape[axis] = int(transform is np.fft.rfft)
    return np.zeros(shape, np.float64 if transform is np.fft.irfft else np.complex128)


def _dft(call: Call) -> Value:
    x, given = tensor(call, 0), optional_tensor(call, 1)
    signal = _complex(x)
    axis = normalise_axis(call.op, int(number(call, 2, -2)), x.ndim)
    inverse = bool(get_int(call.attrs, "inverse", 0))
    onesided = bool(get_int(call.attrs, "onesided", 0))
    if axis == x.ndim - 1:
        raise ModelError("the last axis holds real and imaginary parts and cannot be transformed")
    length = None if given is None else int(given.reshape(-1)[0])
    if inverse and onesided:
        made = _transformed(np.fft.irfft, signal, length, axis)
        return narrow(made[..., np.newaxis], x.dtype)
    if inverse:
        return narrow(_parts(_transformed(np.fft.ifft, signal, length, axis)), x.dtype)
    if onesided and np.iscomplexobj(signal):
        raise ModelError("a one-sided transform needs a real signal")
    transform = np.fft.rfft if onesided else np.fft.fft
    return narrow(_parts(_transformed(transform, signal, length, axis)), x.dtype)


def _stft(call: Call) -> Value:
    x, step = tensor(call, 0), int(number(call, 1))
    window = optional_tensor(call, 2)
    signal = _complex(x) if x.ndim == 3 else x.astype(np.float64)
    if signal.ndim != 2 or step < 1:
        raise ModelError(
            f"needs a signal of [batch, length, 1 or 2] and a positive step, found"
            f" {list(x.shape)} and {step}"
        )
    length = int(number(call, 3, signal.shape[1] if window is None else window.shape[0]))
    if window is not None and window.shape != (length,):
        raise ModelError(f"a window of {list(window.shape)} does not fit frames of {length}")
    if not 0 < length <= signal.shape[1]:
        raise ModelError(f"a frame of {length} does not fit a signal of {signal.shape[1]}")
    frames = np.lib.stride_tricks.sliding_window_view(signal, length, axis=1)[:, ::step]
    if window is not None:
        frames = frames * window.astype(np.float64)
    onesided = bool(get_int(call.attrs, "onesided", 1)) and not np.iscomplexobj(frames)
    spectrum = np.fft.rfft(frames, axis=-1) if onesided else np.fft.fft(frames, axis=-1)
    return narrow(_parts(spectrum), x.dtype)


def _stft_type(query: TypeQuery) -> TensorType:
    signal, step, window = tensor_type(query, 0), const_ints(query, 1), tensor_type(query, 2)
    if signal.shape is None or len(signal.shape) not in {2, 3}:
        return TensorType(signal.dtype, (None, None, None, 2))
    given = const_ints(query, 3)
    length: Dim = given[0] if given else None
    if is_absent(query, 3):
        length = (
            signal.shape[1] if is_absent(query, 2) else window.shape[0] if window.shape else None
        )
    frames: Dim = None
    if step and step[0] > 0 and isinstance(length, int) and isinstance(signal.shape[1], int):
        frames = (signal.shape[1] - length) // step[0] + 1
    bins = length
    if get_int(query.attrs, "onesided", 1) and signal.shape[2:] != (2,):
        # Whether the signal is real, and so whether half of the bins are left out, shows in its
        # last dimension.
        bins = None
        if isinstance(length, int) and (len(signal.shape) == 2 or signal.shape[2] == 1):
            bins = length // 2 + 1
    return TensorType(signal.dtype, (signal.shape[0], frames, bins, 2))


def _window(name: str, terms: tuple[float, ...]) -> OpDef:
    """A window Σ (-1)^k · terms[k] · cos(2πkn / N), with N one less for the symmetric form."""

    def reference(call: Call) -> Value:
        size = int(number(call, 0))
        span = size if get_int(call.attrs, "periodic", 1) else max(size - 1, 1)
        phase = np.arange(size) * (2 * math.pi / max(span, 1))
        value = np.zeros(size)
        for k, term in enumerate(terms):
            value += (-1) ** k * term * np.cos(k * phase)
        return value.astype(target_dtype(call.op, get_int(call.attrs, "output_datatype", 1)).numpy)

    return OpDef(
        name,
        reference=reference,
        flops=5,
        operands=named(size=PARAMETER),
        traits=Trait.GROWS,
    )


def _transform_flops(query: TypeQuery, outputs: Sequence[ValueType]) -> int:
    """5 n log2 n for each transform of length n, which is the customary count for a fast one."""
    axis = const_ints(query, 2) if query.op == "DFT" else None
    length = sizes(outputs[0])[axis[0] if axis else -2]
    return 5 * count(outputs[0]) // 2 * math.ceil(math.log2(max(length, 2)))


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


def _component(name: str, function: Callable[[np.ndarray], np.ndarray], flops: int) -> OpDef:
    def reference(call: Call) -> Value:
        return np.ascontiguousarray(function(tensor(call, 0)), np.float32)

    def infer(query: TypeQuery) -> TensorType:
        return TensorType(DType.F32, tensor_type(query, 0).shape)

    return OpDef(name, Pattern.OPAQUE, OpClass.ELEMENTWISE, infer, reference, flops, operands=UNARY)


OPS: tuple[OpDef, ...] = (
    OpDef(
        "DFT",
        reference=_dft,
        flops=_transform_flops,
        operands=named("input", dft_length=PARAMETER, axis=PARAMETER),
    ),
    OpDef(
        "STFT",
        infer=_stft_type,
        reference=_stft,
        flops=_transform_flops,
        operands=named("signal", frame_step=PARAMETER, window=DATA, frame_length=PARAMETER),
    ),
    _window("HannWindow", (0.5, 0.5)),
    _window("HammingWindow", (25 / 46, 21 / 46)),
    _window("BlackmanWindow", (0.42, 0.5, 0.08)),
    OpDef(
        "MelWeightMatrix",
        operands=named(
            "num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz"
        ),
    ),
    OpDef(
        "RealFourier2D",
        infer=_real_fourier_type,
        reference=_real_fourier,
        flops=_real_fourier_flops,
        operands=named("X", fft_length=PARAMETER),
    ),
    _component("RealPart", np.real, 0),
    _component("ImaginaryPart", np.imag, 0),
    _component("ComplexAbs", np.abs, 4),
)
