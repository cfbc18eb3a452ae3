"""What a quantised tensor of a file means: which tensors hold codes, and the parameters of the
nodes between codes and reals.

An operator on quantised tensors is read as DequantizeLinear → the operator on reals →
QuantizeLinear. The last has `arithmetic="fixed_point"`: the file's own arithmetic is that of
LiteRT, with 31-bit multipliers and shifts in place of the real scale. What the operator QUANTIZE is
given as real numbers was computed in them: its QuantizeLinear has `arithmetic="round_away"`.

A float operator with quantised weights (dynamic range quantisation) reads its weights through
DequantizeLinear, as if it computed in floats. LiteRT quantises the activations too, anew at every
run; where it does, that DequantizeLinear has `arithmetic="hybrid"`, or "hybrid_asymmetric" when the
activations' codes have a zero point, and `passes/quantised/integer_hybrid.py` does likewise.
"""

from __future__ import annotations

import numpy as np

from whence.errors import ModelError, UnsupportedError
from whence.frontends.naming import quoted
from whence.frontends.tflite.records import QuantisationRecord, TensorRecord
from whence.frontends.tflite.tensors import dtype_of
from whence.ops.quantised.quantise import integer_range

FIXED_POINT = "fixed_point"
ROUND_AWAY = "round_away"
_CODES = frozenset({"INT8", "UINT8", "INT16", "UINT16", "INT4", "UINT4"})


def quantisation_of(tensor: TensorRecord) -> QuantisationRecord | None:
    """The parameters of a tensor of codes; `None` for plain numbers, whatever the file notes."""
    found = tensor.quantisation
    if tensor.type not in _CODES or found is None:
        return None
    if found.details:
        raise UnsupportedError(
            f"tensor {quoted(tensor.name)} is quantised by {found.details}, which whence does not"
            " read"
        )
    return found if found.blocks is not None or np.all(found.scales != 0) else None


def parameters(
    tensor: TensorRecord, found: QuantisationRecord, axis: int | None = None
) -> tuple[np.ndarray, np.ndarray, int]:
    """Scale, zero point and axis for DequantizeLinear and QuantizeLinear: numbers per tensor, else
    one for each index of the axis.

    `axis` says where the tensor's quantised dimension is now, should the tensor have been
    transposed. The zero point is of the tensor's type unless it is out of its range; then it is of
    32 bits.
    """
    if found.blocks is not None:
        raise UnsupportedError(
            f"tensor {quoted(tensor.name)} is quantised by blocks, which this operator does not"
            " take"
        )
    dtype = dtype_of(tensor)
    low, high = integer_range(dtype)
    zeros = found.zero_points
    if np.any(np.abs(zeros) > np.iinfo(np.int32).max):
        raise ModelError(
            f"tensor {quoted(tensor.name)} has zero point {int(zeros[np.argmax(np.abs(zeros))])}"
        )
    fits = bool(np.all(zeros >= low) and np.all(zeros <= high))
    zero_points = zeros.astype(dtype.numpy if fits else np.int32)
    if len(found.scales) == 1:
        return found.scales.reshape(()), zero_points.reshape(()), 0
    if not 0 <= found.axis < len(tensor.shape) or tensor.shape[found.axis] != len(found.scales):
        raise ModelError(
            f"tensor {quoted(tensor.name)} of shape {list(tensor.shape)} has {len(found.scales)}"
            f" scales along axis {found.axis}"
        )
    return found.scales, zero_points, found.axis if axis is None else axis


def unit_of_bias(stated: np.ndarray | None, sums: np.ndarray | None) -> np.ndarray:
    """What a whole number of a bias is worth: LiteRT adds it to sums of codes by codes without
    looking at the scale that the file states for it. That of the file may be rounded otherwise.
    """
    if sums is None:
        return np.asarray(1.0 if stated is None else stated, np.float32)
    if stated is None or stated.size not in (1, sums.size):
        return np.asarray(sums, np.float32)
    is_close = np.allclose(stated, sums, rtol=1e-4, atol=0.0)
    return np.asarray(stated if is_close else sums, np.float32)
