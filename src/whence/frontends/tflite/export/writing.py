"""A file being written: its buffers, and the tensors and operators of one subgraph.

Tensors are made when something first asks for them. What a value of the graph is in the file is one
of three things: a tensor of its own, the codes of a real value where a quantised operator takes
those, or another value's tensor where the node between them does nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from whence.errors import UnsupportedError
from whence.frontends.naming import UniqueNames, quoted
from whence.frontends.origin_metadata import OriginMetadata
from whence.frontends.tflite.export.codes import Codes
from whence.frontends.tflite.records import (
    ABSENT,
    OperatorRecord,
    QuantisationRecord,
    SubgraphRecord,
    TensorRecord,
)
from whence.frontends.tflite.schema import Option
from whence.frontends.tflite.tensors import DTYPES
from whence.types import DType, TensorType, ValueType

TYPE_NAMES: Mapping[DType, str] = {
    dtype: name
    for name, dtype in DTYPES.items()
    if name not in ("INT4", "UINT4", "RESOURCE", "VARIANT")
}


@dataclass(frozen=True, slots=True)
class WrittenOperator:
    record: OperatorRecord
    origins: OriginMetadata


class Buffers:
    """The buffers of a file. Equal constants share one; buffer 0 is empty."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = [np.empty(0, np.uint8)]
        self._known: dict[bytes, int] = {}

    def add(self, array: np.ndarray) -> int:
        data = np.frombuffer(
            _packed_strings(array) if array.dtype == np.object_ else array.tobytes(), np.uint8
        )
        key = hashlib.blake2b(data.data).digest()
        if key not in self._known:
            self._known[key] = len(self.arrays)
            self.arrays.append(data)
        return self._known[key]


def _packed_strings(array: np.ndarray) -> bytes:
    """TFLite's packed strings: the count, the offset of each and of the end, the bytes."""
    texts = [str(text).encode("utf-8", "surrogateescape") for text in array.reshape(-1)]
    offsets = 4 * (len(texts) + 2) + np.cumsum([0, *map(len, texts)])
    return np.array([len(texts), *offsets], "<i4").tobytes() + b"".join(texts)


class Subgraph:
    """One subgraph being written."""

    def __init__(self, buffers: Buffers) -> None:
        self.tensors: list[TensorRecord] = []
        self.operators: list[WrittenOperator] = []
        self._buffers = buffers
        self._names = UniqueNames(mark="_")
        self._constants: dict[tuple[int, str, tuple[int, ...], Codes | None], int] = {}

    def tensor(self, name: str, kind: ValueType, codes: Codes | None = None) -> int:
        """A tensor that an operator makes or that is given from outside."""
        if not isinstance(kind, TensorType):
            raise UnsupportedError(
                f"value {quoted(name)} is {kind}, which TFLite and Circle do not have"
            )
        sizes, signature = (
            tuple(dim if isinstance(dim, int) else unknown for dim in kind.shape or ())
            for unknown in (1, -1)
        )
        return self._add(
            TensorRecord(
                name,
                _type_name(name, kind.dtype),
                sizes,
                signature if -1 in signature else None,
                quantisation=_record(codes),
                has_rank=kind.shape is not None,
            )
        )

    def handle(self, name: str) -> int:
        """A tensor that says which variable is meant."""
        return self._add(TensorRecord(name, "RESOURCE", ()))

    def variable(self, name: str, shape: tuple[int, ...]) -> int:
        """A tensor of floats that an operator keeps from one run to the next; zeros at first."""
        return self._add(TensorRecord(name, "FLOAT32", shape, is_variable=True))

    def copy_of(self, record: TensorRecord, data: np.ndarray) -> int:
        """A tensor as another file has it, with its data."""
        buffer = self._buffers.add(data) if data.nbytes else 0
        return self._add(replace(record, buffer=buffer))

    def constant(self, array: np.ndarray, name: str = "", codes: Codes | None = None) -> int:
        buffer = self._buffers.add(array)
        kind = _type_name(name, DType.of(array))
        key = (buffer, kind, array.shape, codes)
        if key not in self._constants:
            record = TensorRecord(
                name or "constant",
                kind,
                tuple(array.shape),
                buffer=buffer,
                quantisation=_record(codes),
            )
            self._constants[key] = self._add(record)
        return self._constants[key]

    def constant_value(self, tensor: int) -> np.ndarray | None:
        """The whole numbers of a constant of 32 bits."""
        record = self.tensors[tensor]
        if record.buffer == 0 or record.type != "INT32":
            return None
        return self._buffers.arrays[record.buffer].view(np.int32).reshape(record.shape)

    def operator(
        self,
        name: str,
        inputs: Sequence[int | None],
        outputs: Sequence[int],
        origins: OriginMetadata,
        options: Mapping[str, Option] | None = None,
        version: int = 1,
        custom: bytes = b"",
        intermediates: Sequence[int] = (),
    ) -> None:
        given = [ABSENT if index is None else index for index in inputs]
        while given and given[-1] == ABSENT:
            given.pop()
        made = (tuple(given), tuple(outputs), tuple(intermediates))
        record = OperatorRecord(name, version, *made, options or {}, custom)
        self.operators.append(WrittenOperator(record, origins))

    def reserve(self, names: Sequence[str]) -> None:
        """Keep names for the inputs and outputs, whatever is called so inside."""
        self._names.taken.update(names)

    def release(self, name: str) -> None:
        self._names.taken.discard(name)

    def record(self, name: str, inputs: Sequence[int], outputs: Sequence[int]) -> SubgraphRecord:
        return SubgraphRecord(
            name,
            tuple(self.tensors),
            tuple(inputs),
            tuple(outputs),
            tuple(each.record for each in self.operators),
        )

    def _add(self, record: TensorRecord) -> int:
        """Add a tensor, called so unless another is. Returns its number."""
        self.tensors.append(replace(record, name=self._names.take(record.name or "tensor")))
        return len(self.tensors) - 1


def _record(codes: Codes | None) -> QuantisationRecord | None:
    return None if codes is None else codes.record


def _type_name(name: str, dtype: DType) -> str:
    found = TYPE_NAMES.get(dtype)
    if found is None:
        raise UnsupportedError(
            f"value {quoted(name)} is of type {dtype}, which TFLite and Circle do not have"
        )
    return found
