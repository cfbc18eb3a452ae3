"""The large constants of an ONNX file, read past its message.

Whoever parses a message has its bytes twice more: as they are in the file, and as the parser keeps
them. For a hundred megabytes of weights, that takes longer than all else about reading a model. So
a file is looked through first: where a constant of its graph has much raw data, the message that is
parsed has a mark in its place, and the data is read once, into the array that will hold it: by
other threads, while the message is parsed.

What cannot be looked through, such as a file that is cut off, is left to the parser, which says
what is wrong with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from io import FileIO
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from whence.errors import ModelError
from whence.frontends.naming import quoted

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

# Below this, a message is as quick: of a constant, and of a file, which is looked through operator
# by operator.
_LARGE, _LARGE_FILE = 1 << 16, 1 << 20
_WINDOW = 1 << 16
# From so many bytes on, threads are worth their start; more of them would wait for memory.
_MUCH = 8 << 20
_THREADS = 2
# Fields by their numbers: ModelProto.graph, GraphProto.initializer, and three of TensorProto.
_GRAPH, _INITIALIZER = 7, 5
_RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 9, 13, 14
# How fields are written: as a varint, in eight bytes, behind their length, in four bytes.
_VARINT, _EIGHT, _DELIMITED, _FOUR = 0, 1, 2, 5
_LONGEST_VARINT = 10


class _Range(NamedTuple):
    """Bytes of a file."""

    begin: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.begin


class _Field(NamedTuple):
    """A field of a message: where it begins and ends, and where its content begins, if that is
    behind its length. In plain numbers, since there is one for each operator of a model.
    """

    number: int
    begin: int
    content: int | None
    end: int


class _UnknownFormError(Exception):
    """What is no message, or one of a form that ONNX does not use."""


class LargeTensors:
    """The large constants of a model in an open file, in a `with`."""

    def __init__(self, file: FileIO) -> None:
        self._file = file
        # Whoever wrote the file does not know it: nothing in there can be taken for a mark.
        self._secret = os.urandom(16)
        self._ranges: list[_Range] = []
        self._pool: ThreadPoolExecutor | None = None
        self._reading: list[Future[np.ndarray]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """The file may be closed: nothing is read from it any more."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def message(self) -> bytes:
        """The model, with marks in place of the data of its large constants."""
        # Of what is no file but a stream, there is no size, and no second look.
        whole = _Range(0, os.fstat(self._file.fileno()).st_size)
        if whole.size >= _LARGE_FILE:
            try:
                message = self._model(_Scan(self._file), whole)
            except _UnknownFormError:
                self._ranges.clear()
                self._file.seek(0)
            else:
                if sum(each.size for each in self._ranges) >= _MUCH:
                    self._start_reading()
                return message
        return self._file.readall()

    def data(self, raw: bytes) -> np.ndarray:
        """The raw data of a constant, or what its mark stands for."""
        if not raw.startswith(self._secret):
            return np.frombuffer(raw, np.uint8)
        number = int.from_bytes(raw[len(self._secret) :], "little")
        return self._reading[number].result() if self._reading else self._read(self._ranges[number])

    def _start_reading(self) -> None:
        from concurrent.futures import ThreadPoolExecutor  # which small models do without

        self._pool = ThreadPoolExecutor(_THREADS)
        # Memory from this thread: glibc never gives back all that another one took from its heap.
        self._reading = [
            self._pool.submit(self._read_into, np.empty(each.size, np.uint8), each)
            for each in self._ranges
        ]

    # ---- messages with marks ----

    def _model(self, scan: _Scan, model: _Range) -> bytes:
        return self._rewritten(scan.fields(model), _GRAPH, lambda each: self._graph(scan, each))

    def _graph(self, scan: _Scan, graph: _Range) -> bytes:
        fields = scan.fields(graph)
        return self._rewritten(fields, _INITIALIZER, lambda each: self._tensor(scan, each))

    def _tensor(self, scan: _Scan, tensor: _Range) -> bytes:
        fields = list(scan.fields(tensor))
        numbers = [field.number for field in fields]
        # One that also says that its data is elsewhere, or has several, is for the parser.
        if numbers.count(_RAW_DATA) > 1 or {_EXTERNAL_DATA, _DATA_LOCATION}.intersection(numbers):
            return self._bytes(tensor)
        return self._rewritten(fields, _RAW_DATA, self._mark)

    def _mark(self, data: _Range) -> bytes:
        self._ranges.append(data)
        return self._secret + (len(self._ranges) - 1).to_bytes(8, "little")

    def _rewritten(
        self, fields: Iterable[_Field], number: int, other: Callable[[_Range], bytes]
    ) -> bytes:
        """A message with other content in its large fields of this number."""
        parts: list[bytes] = []
        # Fields that stay as they are, up to the one at hand.
        begin = end = 0
        for found, field_begin, content, field_end in fields:
            if begin == end:
                begin = field_begin
            end = field_end
            if found != number or content is None or end - content < _LARGE:
                continue
            if begin < field_begin:
                parts.append(self._bytes(_Range(begin, field_begin)))
            begin = end
            made = other(_Range(content, end))
            parts += [_varint(number << 3 | _DELIMITED), _varint(len(made)), made]
        if begin < end:
            parts.append(self._bytes(_Range(begin, end)))
        return b"".join(parts)

    # ---- the file ----

    def _bytes(self, wanted: _Range) -> bytes:
        return self._read(wanted).tobytes()

    def _read(self, wanted: _Range) -> np.ndarray:
        return self._read_into(np.empty(wanted.size, np.uint8), wanted)

    def _read_into(self, data: np.ndarray, wanted: _Range) -> np.ndarray:
        done = 0
        while done < data.size:
            count = os.preadv(self._file.fileno(), [data.data[done:]], wanted.begin + done)
            if not count:
                raise ModelError(f"{quoted(str(self._file.name))} was cut off while it was read")
            done += count
        data.flags.writeable = False
        return data


class _Scan:
    """The fields of messages in a file, of which little more than their lengths is read."""

    def __init__(self, file: FileIO) -> None:
        self._file = file
        self._window, self._begin = b"", 0

    def fields(self, message: _Range) -> Iterator[_Field]:
        begin = message.begin
        while begin < message.end:
            tag, at = self._varint(begin)
            number, form = tag >> 3, tag & 7
            content = None
            if form == _VARINT:
                _, end = self._varint(at)
            elif form == _DELIMITED:
                length, at = self._varint(at)
                content, end = at, at + length
            elif form in (_EIGHT, _FOUR):
                end = at + (8 if form == _EIGHT else 4)
            else:
                raise _UnknownFormError
            if end > message.end:
                raise _UnknownFormError
            yield _Field(number, begin, content, end)
            begin = end

    def _varint(self, at: int) -> tuple[int, int]:
        """The number that begins here, and where it ends."""
        start = at - self._begin
        if not 0 <= start <= len(self._window) - _LONGEST_VARINT:
            self._file.seek(at)
            self._window, self._begin, start = self._file.read(_WINDOW) or b"", at, 0
        if start < len(self._window) and (value := self._window[start]) < 0x80:
            return value, at + 1  # as most are
        value = 0
        for place, byte in enumerate(self._window[start : start + _LONGEST_VARINT]):
            value |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return value, at + place + 1
        raise _UnknownFormError


def _varint(value: int) -> bytes:
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)
