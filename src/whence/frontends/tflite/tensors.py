"""Tensors of a file: element types, declared shapes, and the arrays that buffers hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from whence.errors import ModelError, UnsupportedError
from whence.frontends.naming import quoted
from whence.frontends.tflite.records import ModelRecord, TensorRecord
from whence.frontends.tflite.sparsity import densify
from whence.types import DType, TensorType

DTYPES: Mapping[str, DType] = {
    "FLOAT32": DType.F32,
    "FLOAT16": DType.F16,
    "BFLOAT16": DType.BF16,
    "FLOAT64": DType.F64,
    "INT32": DType.I32,
    "UINT32": DType.U32,
    "UINT8": DType.U8,
    "INT64": DType.I64,
    "UINT64": DType.U64,
    "STRING": DType.STRING,
    "BOOL": DType.BOOL,
    "INT16": DType.I16,
    "UINT16": DType.U16,
    "INT8": DType.I8,
    "COMPLEX64": DType.C64,
    "COMPLEX128": DType.C128,
    # Four-bit codes are held one to a byte, as eight-bit codes of a smaller range.
    "INT4": DType.I8,
    "UINT4": DType.U8,
    # A handle of a variable or a table is the text of its name.
    "RESOURCE": DType.STRING,
    "VARIANT": DType.STRING,
}
FOUR_BIT = frozenset({"INT4", "UINT4"})


def dtype_of(tensor: TensorRecord) -> DType:
    """The type that holds an element of the tensor in a graph."""
    dtype = DTYPES.get(tensor.type)
    if dtype is None:
        raise UnsupportedError(
            f"tensor {quoted(tensor.name)} is of type {tensor.type}, which whence does not read"
        )
    return dtype


def declared_type(tensor: TensorRecord) -> TensorType:
    """What the file says of a tensor. A dimension that the signature leaves open is not known, even
    where `shape` has a number for it.
    """
    if not tensor.has_rank:
        return TensorType(dtype_of(tensor), ())
    shape = (
        tensor.signature
        if tensor.signature is not None and len(tensor.signature) == len(tensor.shape)
        else tensor.shape
    )
    return TensorType(dtype_of(tensor), tuple(dim if dim >= 0 else None for dim in shape))


def default_type(tensor: TensorRecord) -> TensorType:
    """The type of an input that nobody gave a shape for: as LiteRT allocates it, with the numbers
    of `shape` even where the signature is open.
    """
    return TensorType(dtype_of(tensor), tuple(dim if dim >= 0 else None for dim in tensor.shape))


def array_of(model: ModelRecord, tensor: TensorRecord) -> np.ndarray | None:
    """The constant that a tensor is, in the codes of the file, or `None` when it has no data."""
    data = (
        model.buffers[tensor.buffer]
        if tensor.buffer < len(model.buffers)
        else np.empty(0, np.uint8)
    )
    if data.size == 0:
        return None
    try:
        return _decode(data, tensor)
    except ModelError as error:
        raise ModelError(f"tensor {quoted(tensor.name)}: {error}") from None


def _decode(data: np.ndarray, tensor: TensorRecord) -> np.ndarray:
    dtype = dtype_of(tensor)
    if any(dim < 0 for dim in tensor.shape):
        raise ModelError(f"a constant of shape {list(tensor.shape)} has no size")
    count = math.prod(tensor.shape)
    if dtype is DType.STRING:
        return _strings(data, tensor.shape)
    if tensor.sparsity is not None:
        return densify(tensor, data, dtype)
    if tensor.type in FOUR_BIT:
        if data.size != (count + 1) // 2:
            raise ModelError(f"{data.size} bytes do not hold {count} elements of 4 bits")
        return unpack_four_bits(data, count, signed=tensor.type == "INT4").reshape(tensor.shape)
    if data.size != count * dtype.numpy.itemsize:
        raise ModelError(f"{data.size} bytes do not hold {list(tensor.shape)} elements of {dtype}")
    if dtype is DType.BOOL:
        # Any byte but 0 is true in a file; kernels and NumPy count on 1.
        return np.asarray(data != 0).reshape(tensor.shape)
    return (
        data.view(_little_endian(dtype.numpy)).astype(dtype.numpy, copy=False).reshape(tensor.shape)
    )


def unpack_four_bits(data: np.ndarray, count: int, *, signed: bool) -> np.ndarray:
    """Two codes to a byte, the lower half first."""
    codes = np.stack([data & 0x0F, data >> 4], axis=-1).reshape(-1)[:count]
    return (codes ^ 8).astype(np.int8) - np.int8(8) if signed else codes


def _little_endian(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    return dtype.newbyteorder("<") if dtype.kind in "iufc" else dtype


def _strings(data: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """TFLite's packed strings: the count, the offset of each and of the end, the bytes."""
    if data.size < 4:
        raise ModelError(f"{data.size} bytes are too few for strings")
    count = int(data[:4].view("<i4")[0])
    head = 4 * (count + 2)
    if count < 0 or head > data.size or count != math.prod(shape):
        raise ModelError(f"{data.size} bytes do not hold {count} strings for shape {list(shape)}")
    offsets = data[4:head].view("<i4").tolist()
    if any(not head <= first <= last <= data.size for first, last in pairwise(offsets)):
        raise ModelError("a string lies outside its buffer")
    texts = [
        data[first:last].tobytes().decode("utf-8", "backslashreplace")
        for first, last in pairwise(offsets)
    ]
    result = np.empty(count, np.object_)
    result[:] = texts
    return result.reshape(shape)
