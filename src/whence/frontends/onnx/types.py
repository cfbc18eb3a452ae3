"""Between ONNX's type and tensor messages and ours.

What a tensor declares is checked against what the file holds before anything is allocated, so a
small file cannot ask for much memory. Data in external files is mapped, not read, and must lie in
the model's own folder.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from onnx import SparseTensorProto, TensorProto, TypeProto, helper, numpy_helper

from whence.errors import ModelError, UnsupportedError
from whence.frontends.naming import check_texts, quoted
from whence.ops.limits import check_sparse
from whence.types import (
    MAX_RANK,
    Dim,
    DType,
    MapType,
    OptionalType,
    SequenceType,
    TensorType,
    ValueType,
)

_PACKED = frozenset(
    dtype for dtype in DType if dtype not in (DType.UNDEFINED, DType.STRING) and dtype.bits < 8
)


def _bytes_of(raw: bytes) -> np.ndarray:
    return np.frombuffer(raw, np.uint8)


class TensorSource(NamedTuple):
    """Where the data of a model's tensors is."""

    path: Path | None = None
    """The model's file, beside which external data is looked for."""
    raw_bytes: Callable[[bytes], np.ndarray] = _bytes_of
    """What the raw data in a message stands for."""


class TensorReader:
    """Reads the tensors of one model, whose data is where a `TensorSource` says."""

    def __init__(
        self, path: Path | None, raw_bytes: Callable[[bytes], np.ndarray] = _bytes_of
    ) -> None:
        self._path, self._raw_bytes = path, raw_bytes
        self._maps: dict[Path, tuple[np.ndarray, os.stat_result]] = {}
        self.files: dict[Path, os.stat_result] = {}
        """The external files that were read so far, as `Graph.files`."""
        self._sparse_bytes = self._sparse_held = 0

    def read(self, proto: TensorProto) -> np.ndarray:
        """The tensor's data; read-only where it is shared with the file."""
        check_texts((proto.name,))
        label = f"tensor {quoted(proto.name)}"
        try:
            dtype = DType(proto.data_type)
        except ValueError:
            raise UnsupportedError(
                f"{label} has element type {proto.data_type}, which whence does not know"
            ) from None
        if dtype is DType.UNDEFINED:
            raise ModelError(f"{label} does not say its element type")
        shape = _shape(proto.dims, label)
        if any(dim < 0 for dim in shape):
            raise ModelError(f"{label} has a negative dimension: {list(shape)}")
        if proto.HasField("segment"):
            raise UnsupportedError(f"{label} is stored in segments")
        count = math.prod(shape)
        nbytes = (count * dtype.bits + 7) // 8
        if proto.data_location == TensorProto.EXTERNAL:
            return self._external(proto, label, dtype, shape, nbytes)
        if dtype is DType.STRING:
            return _strings(proto, label, shape, count)
        if proto.HasField("raw_data"):
            raw = self._raw_bytes(proto.raw_data)
            if raw.size != nbytes:
                raise ModelError(
                    f"{label} is declared as {dtype}{list(shape)}, which is {nbytes} bytes, but the"
                    f" file holds {raw.size}"
                )
            return _from_bytes(raw, dtype, shape)
        held, needed = _entries(proto, dtype, count)
        if held != needed:
            raise ModelError(
                f"{label} is declared as {dtype}{list(shape)}, which takes {needed} entries, but"
                f" the file holds {held}"
            )
        return numpy_helper.to_array(proto)

    def read_sparse(self, proto: SparseTensorProto) -> np.ndarray:
        """A sparse tensor as a dense one. Refused when the dense form would be far larger than what
        the file holds.
        """
        check_texts((proto.values.name,))
        label = f"sparse tensor {quoted(proto.values.name)}"
        values, indices = self.read(proto.values), self.read(proto.indices)
        shape = _shape(proto.dims, label)
        count = math.prod(shape)
        if any(dim < 0 for dim in shape) or values.ndim != 1:
            raise ModelError(f"{label} is malformed")
        if indices.dtype.kind not in "iu":
            raise ModelError(f"{label} has indices of {indices.dtype}, not whole numbers")
        # All of them together: many small ones take as much memory as a large one.
        self._sparse_bytes += count * values.itemsize
        self._sparse_held += values.nbytes
        check_sparse(
            f"{label} is declared with {count} elements but holds {values.size}",
            self._sparse_bytes,
            self._sparse_held,
        )
        if indices.ndim == 2 and indices.shape == (values.size, len(shape)):
            flat = np.zeros(values.size, np.int64)
            for axis, dim in enumerate(shape):
                flat = flat * dim + indices[:, axis]
        elif indices.shape == (values.size,):
            flat = indices.astype(np.int64)
        else:
            raise ModelError(
                f"{label} has {values.size} values and indices of shape {list(indices.shape)}"
            )
        if flat.size and (flat.min() < 0 or flat.max() >= count):
            raise ModelError(f"{label} has an index outside its shape {list(shape)}")
        dense = np.zeros(count, values.dtype)
        dense[flat] = values
        return dense.reshape(shape)

    def _external(
        self, proto: TensorProto, label: str, dtype: DType, shape: tuple[int, ...], nbytes: int
    ) -> np.ndarray:
        entries = {entry.key: entry.value for entry in proto.external_data}
        check_texts((*entries, *entries.values()))
        location = entries.get("location", "")
        if dtype is DType.STRING:
            raise ModelError(f"{label} is text in an external file, which ONNX does not allow")
        try:
            offset = int(entries.get("offset") or 0)
            length = int(entries.get("length") or nbytes)
        except ValueError:
            raise ModelError(
                f"{label} has an offset or length of external data that is not a number"
            ) from None
        if offset < 0 or length != nbytes:
            raise ModelError(
                f"{label} is declared as {dtype}{list(shape)}, which is {nbytes} bytes, but states"
                f" {length} at {offset}"
            )
        data = self._map(label, location)
        if offset + nbytes > data.size:
            raise ModelError(
                f"{label} needs bytes {offset} to {offset + nbytes} of {quoted(location)}, which"
                f" has {data.size}"
            )
        return _from_bytes(data[offset : offset + nbytes], dtype, shape)

    def _map(self, label: str, location: str) -> np.ndarray:
        """The bytes of an external file, mapped once however many tensors are in it."""
        if self._path is None:
            raise ModelError(
                f"{label} is in the external file {quoted(location)}, but the model was not read"
                " from a folder; give its path"
            )
        path = _inside_folder(self._path, location, label)
        if path not in self._maps:
            try:
                status = path.stat()
                data = (
                    np.memmap(path, np.uint8, mode="r") if status.st_size else np.empty(0, np.uint8)
                )
                self._maps[path] = data, status
            except (OSError, ValueError) as error:
                raise ModelError(
                    f"{label} is in the external file {quoted(location)}, which cannot be read:"
                    f" {error}"
                ) from None
        # By the name that the model has for it: what is a link may lead to another file later.
        data, status = self._maps[path]
        self.files.setdefault(self._path.parent / location, status)
        return data


def _inside_folder(model: Path, location: str, label: str) -> Path:
    """Where an external file is. It must be in the model's folder: the one named, or the one the
    model's file really lies in.
    """
    if not location or "\0" in location or Path(location).is_absolute():
        raise ModelError(
            f"{label} names the external file {quoted(location)}, which is not a path inside the"
            " model's folder"
        )
    try:
        path = (model.parent / location).resolve()
        folders = (model.parent.resolve(), model.resolve().parent)
    except (OSError, RuntimeError, ValueError) as error:
        raise ModelError(
            f"{label} names the external file {quoted(location)}, which cannot be found: {error}"
        ) from None
    if not any(path.is_relative_to(folder) for folder in folders):
        raise ModelError(
            f"{label} names the external file {quoted(location)}, which is outside the model's"
            " folder"
        )
    if not path.is_file():
        raise ModelError(
            f"{label} is in the external file {quoted(location)}, which is missing; put it beside"
            " the model"
        )
    return path


def _from_bytes(raw: np.ndarray, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    if dtype in _PACKED:
        packed = TensorProto(data_type=int(dtype), dims=shape, raw_data=raw.tobytes())
        return numpy_helper.to_array(packed)
    if dtype is DType.BOOL:
        # Any byte but 0 is true in a file; kernels and NumPy count on 1.
        return np.asarray(raw != 0).reshape(shape)
    array = raw.view(np.ndarray).view(dtype.numpy) if raw.size else np.empty(0, dtype.numpy)
    return (array if array.flags.aligned else array.copy()).reshape(shape)


def _strings(proto: TensorProto, label: str, shape: tuple[int, ...], count: int) -> np.ndarray:
    if len(proto.string_data) != count:
        raise ModelError(
            f"{label} is declared as {list(shape)}, which is {count} texts, but the file holds"
            f" {len(proto.string_data)}"
        )
    array = np.empty(count, np.object_)
    array[:] = [text.decode("utf-8", "surrogateescape") for text in proto.string_data]
    return array.reshape(shape)


def _entries(proto: TensorProto, dtype: DType, count: int) -> tuple[int, int]:
    """How many entries the field for this element type holds, and how many it should."""
    held = len(getattr(proto, helper.tensor_dtype_to_field(int(dtype))))
    if dtype.bits <= 4:
        # Several of these share an entry, as they share a byte; elements of six bits do not.
        return held, (count * dtype.bits + 7) // 8
    return held, count * (2 if dtype in (DType.C64, DType.C128) else 1)


def _shape(dims: Sequence[int], label: str) -> tuple[int, ...]:
    if len(dims) > MAX_RANK:
        raise ModelError(f"{label} has {len(dims)} dimensions, and the limit is {MAX_RANK}")
    return tuple(dims)


def value_type(proto: TypeProto) -> ValueType | None:
    """The type a message states, or `None` when it states none."""
    kind = proto.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        # Sparse is how a file holds a tensor; at run time it is dense.
        tensor = getattr(proto, kind)
        return TensorType(
            _dtype(tensor.elem_type),
            tuple(_dim(dim) for dim in tensor.shape.dim) if tensor.HasField("shape") else None,
        )
    if kind in ("sequence_type", "optional_type"):
        element = value_type(getattr(proto, kind).elem_type)
        container = SequenceType if kind == "sequence_type" else OptionalType
        return None if element is None else container(element)
    if kind == "map_type":
        element = value_type(proto.map_type.value_type)
        return None if element is None else MapType(_dtype(proto.map_type.key_type), element)
    return None


def schema_type(dtype: DType) -> str:
    """How schemas write the type of tensors of these elements; empty for those ONNX has not."""
    if dtype is DType.UNDEFINED or int(dtype) not in TensorProto.DataType.values():
        return ""
    return f"tensor({TensorProto.DataType.Name(int(dtype)).lower()})"


def _dtype(number: int) -> DType:
    try:
        return DType(number)
    except ValueError:
        raise UnsupportedError(f"element type {number} is not known to whence") from None


def _dim(dim: object) -> Dim:
    # Some exporters write -1 where nothing is known.
    if dim.HasField("dim_value"):  # type: ignore[attr-defined]
        value: int = dim.dim_value  # type: ignore[attr-defined]
        return value if value >= 0 else None
    name: str = dim.dim_param  # type: ignore[attr-defined]
    check_texts((name,))
    return name or None


def tensor_proto(array: np.ndarray, name: str) -> TensorProto:
    """A tensor message with the array's data."""
    dtype = DType.of(array)
    if dtype is DType.STRING:
        proto = TensorProto(name=name, data_type=int(dtype), dims=array.shape)
        proto.string_data.extend(
            item if isinstance(item, bytes) else str(item).encode("utf-8", "surrogateescape")
            for item in array.reshape(-1).tolist()
        )
        return proto
    if dtype in _PACKED:
        return numpy_helper.from_array(np.ascontiguousarray(array), name)
    return TensorProto(
        name=name,
        data_type=int(dtype),
        dims=array.shape,
        raw_data=np.ascontiguousarray(array).tobytes(),
    )
