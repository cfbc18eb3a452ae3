"""Tensors of PyTorch as NumPy arrays and back, in the same memory."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

from whence.errors import InputError, UnsupportedError
from whence.types import DType

_NAMES = {
    "float32": DType.F32,
    "float64": DType.F64,
    "float16": DType.F16,
    "bfloat16": DType.BF16,
    "int8": DType.I8,
    "int16": DType.I16,
    "int32": DType.I32,
    "int64": DType.I64,
    "uint8": DType.U8,
    "uint16": DType.U16,
    "uint32": DType.U32,
    "uint64": DType.U64,
    "bool": DType.BOOL,
    "complex64": DType.C64,
    "complex128": DType.C128,
    "float8_e4m3fn": DType.F8E4M3FN,
    "float8_e4m3fnuz": DType.F8E4M3FNUZ,
    "float8_e5m2": DType.F8E5M2,
    "float8_e5m2fnuz": DType.F8E5M2FNUZ,
}
# Element types that NumPy itself does not have travel as whole numbers of the same width.
_AS_INTEGERS = {
    DType.BF16: "int16",
    DType.F8E4M3FN: "int8",
    DType.F8E4M3FNUZ: "int8",
    DType.F8E5M2: "int8",
    DType.F8E5M2FNUZ: "int8",
}

_OF_NUMPY = 1
"""What `isbuiltin` of an element type is that comes with NumPy."""


def dtype_of(dtype: Any) -> DType:
    """The element type that PyTorch calls `torch.float32` and so on."""
    name = str(dtype).removeprefix("torch.")
    found = _NAMES.get(name)
    if found is None:
        raise UnsupportedError(f"whence has no element type {name}")
    return found


def array_of(tensor: Any) -> np.ndarray:
    """The tensor's elements, in its own memory where that is dense; a tensor with gaps or in
    another order is copied.
    """
    import torch

    if tensor.dtype in _dtypes_of_numpy():
        # Nearly every tensor is as NumPy wants it, and asking for everything that may be special
        # about it takes longer than some models' layers.
        with suppress(RuntimeError, TypeError):
            return _dense(tensor.numpy())
    if tensor.device.type != "cpu":
        raise InputError(
            f"a tensor is on {tensor.device}; whence reads memory of the host: move the model and"
            " its inputs there with .cpu()"
        )
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise UnsupportedError(f"a tensor is {tensor.layout}; whence reads dense tensors")
    tensor = tensor.detach().resolve_conj().resolve_neg()
    dtype = dtype_of(tensor.dtype)
    integers = _AS_INTEGERS.get(dtype)
    if integers is not None:
        array = tensor.contiguous().view(getattr(torch, integers)).numpy().view(dtype.numpy)
    else:
        array = tensor.numpy()
    return _dense(array)


def as_array(value: Any) -> np.ndarray:
    """A tensor's elements, or an array or number as it is."""
    return array_of(value) if hasattr(value, "data_ptr") else np.asarray(value)


def _dense(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array) if array.ndim else array


@cache
def _dtypes_of_numpy() -> frozenset[Any]:
    """Those of PyTorch's element types that NumPy has."""
    import torch

    return frozenset(
        getattr(torch, name) for name, dtype in _NAMES.items() if dtype not in _AS_INTEGERS
    )


def tensor_of(array: np.ndarray) -> Any:
    """A tensor in the array's memory."""
    import torch

    if not array.flags.writeable:
        # PyTorch has no tensors that cannot be written to, and warns.
        array = array.copy()
    if array.dtype.isbuiltin == _OF_NUMPY:
        return torch.from_numpy(array)
    kind = DType.of(array)
    integers = _AS_INTEGERS.get(kind)
    if integers is None:
        return torch.from_numpy(array)
    name = next(each for each, dtype in _NAMES.items() if dtype is kind)
    return torch.from_numpy(array.view(integers)).view(getattr(torch, name))
