"""Tensors of PyTorch as NumPy arrays and back, in the same memory."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

from whence.errors import InputError, UnsupportedError
from whence.types import DType

# PyTorch calls element types as NumPy does; those that share a byte it has no tensors of.
_NAMES = {
    dtype.numpy.name: dtype
    for dtype in DType
    if dtype not in (DType.UNDEFINED, DType.STRING) and dtype.bits >= 8
}


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
    if not _is_of_numpy(dtype.numpy):
        # Such elements travel as whole numbers of the same width.
        whole = getattr(torch, f"int{dtype.bits}")
        return _dense(tensor.contiguous().view(whole).numpy().view(dtype.numpy))
    return _dense(tensor.numpy())


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
        getattr(torch, name) for name, dtype in _NAMES.items() if _is_of_numpy(dtype.numpy)
    )


def _is_of_numpy(dtype: np.dtype[Any]) -> bool:
    """Does the element type come with NumPy itself?"""
    return dtype.isbuiltin == 1


def tensor_of(array: np.ndarray) -> Any:
    """A tensor in the array's memory."""
    import torch

    if not array.flags.writeable:
        # PyTorch has no tensors that cannot be written to, and warns.
        array = array.copy()
    if _is_of_numpy(array.dtype):
        return torch.from_numpy(array)
    whole = torch.from_numpy(array.view(f"int{8 * array.itemsize}"))
    return whole.view(getattr(torch, array.dtype.name))
