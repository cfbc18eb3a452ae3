"""Buffers and arrays of pyopencl as inputs and outputs of a model, used where they are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from whence.backends.opencl.devices import require_pyopencl
from whence.errors import InputError
from whence.ops.binding import Port
from whence.runtime.device_memory import DeviceMemory
from whence.types import TensorType


def adopt(port: Port, value: Any, context: Any, what: str = "input") -> DeviceMemory | None:
    """Memory of the device that is given for an input or output; `None` when it is something else.

    Raises `InputError` when it cannot be used where it is: of another context, too small, or not
    dense.
    """
    cl = require_pyopencl()
    is_buffer = isinstance(value, cl.Buffer)
    if not is_buffer and type(value).__module__.partition(".")[0] != "pyopencl":
        return None
    name = f"{what} {port.name!r}"
    if not isinstance(port.type, TensorType):
        raise InputError(f"{name} is no tensor, and cannot be in memory of a device")
    found = (
        _of_buffer(port.type, value, name) if is_buffer else _of_array(port.type, value, name, cl)
    )
    if not found.nbytes:
        return found
    if found.buffer.context != context:
        raise InputError(
            f"{name} is in memory of another context than the engine's: make the engine with"
            " whence.interop.opencl.make_engine(context)"
        )
    if found.buffer.size < found.offset + found.nbytes:
        raise InputError(
            f"{name} needs {found.nbytes} bytes, and the buffer has"
            f" {found.buffer.size - found.offset}"
        )
    if found.offset % found.dtype.itemsize:
        raise InputError(f"{name} begins at byte {found.offset}, not at a multiple of its elements")
    return found


def _of_buffer(kind: TensorType, buffer: Any, name: str) -> DeviceMemory:
    shape = kind.static_shape
    if shape is None:
        raise InputError(
            f"{name} is {kind}, and a buffer has no shape: give a pyopencl.array.Array"
        )
    return DeviceMemory(buffer, buffer, 0, shape, kind.dtype.numpy)


def _of_array(kind: TensorType, array: Any, name: str, cl: Any) -> DeviceMemory:
    from pyopencl.array import Array

    if not isinstance(array, Array):
        raise InputError(
            f"{name} is a {type(array).__name__}; a cl.Buffer or a pyopencl.array.Array is needed"
        )
    fits = kind.shape is None or (
        len(kind.shape) == len(array.shape)
        and all(
            not isinstance(dim, int) or dim == got
            for dim, got in zip(kind.shape, array.shape, strict=True)
        )
    )
    if not fits or array.dtype != kind.dtype.numpy:
        raise InputError(
            f"{name} is {array.dtype} of shape {list(array.shape)}, the model has {kind}"
        )
    if not array.flags.c_contiguous:
        raise InputError(f"{name} is not dense (C-contiguous)")
    if math.prod(array.shape) and not isinstance(array.base_data, cl.Buffer):
        raise InputError(f"{name} is not in a buffer, but in {type(array.base_data).__name__}")
    return DeviceMemory(
        array, array.base_data, array.offset, tuple(array.shape), np.dtype(array.dtype)
    )
