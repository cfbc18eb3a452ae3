"""The arithmetic precision of the reference kernels.

Narrow floats (float16, bfloat16, the 8- and 4-bit formats) are computed in float32 and rounded once
at the end, as ONNX Runtime's CPU kernels do; float32, float64 and integers are computed as they
are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from whence.errors import ModelError
from whence.ops.definition import Attrs, Call, Reference, Value
from whence.types import DType

_WIDE_FLOATS = (DType.F32, DType.F64)


def working_dtype(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """The type to compute in for operands of type `dtype`."""
    kind = DType.of(np.empty(0, dtype))
    return np.dtype(np.float32) if kind.is_float and kind not in _WIDE_FLOATS else dtype


def widen(array: np.ndarray) -> np.ndarray:
    """`array` in its working type; the very same object when it has it already."""
    return array.astype(working_dtype(array.dtype), copy=False)


def narrow(array: np.ndarray, dtype: DTypeLike) -> np.ndarray:
    """`array` rounded to `dtype`; the very same object when it has it already."""
    return array.astype(dtype, copy=False)


def rounded_once(function: Callable[[np.ndarray, Attrs], Any]) -> Reference:
    """A reference of one operand, which the function gets in its working type: what it makes is
    rounded to the type of the operand.
    """

    def reference(call: Call) -> Value:
        x = tensor(call, 0)
        return narrow(np.asarray(function(widen(x), call.attrs)), x.dtype)

    return reference


def tensor(call: Call, index: int) -> np.ndarray:
    """Input `index` as an array. A model that leaves a required input out is at fault."""
    value = call.input(index)
    if value is None:
        raise ModelError(f"input {index} is required but absent")
    return np.asarray(value)


def optional_tensor(call: Call, index: int) -> np.ndarray | None:
    """Input `index` as an array, or `None` when it is absent."""
    value = call.input(index)
    return None if value is None else np.asarray(value)


def number(call: Call, index: int, absent: Any = None) -> Any:
    """The one element of input `index`; `absent`, if that is given, where there is none."""
    value = optional_tensor(call, index)
    if absent is not None and (value is None or not value.size):
        return absent
    return tensor(call, index).reshape(-1)[0]
