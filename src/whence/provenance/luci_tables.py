"""The provenance tables that Samsung ONE's luci-profile keeps in the metadata of a Circle file:
bytes to mappings and back.

| metadata name              | mapping                                   | unit that an entry's length counts     |
|----------------------------|-------------------------------------------|----------------------------------------|
| `ONE_source_table`         | source id -> name                         | bytes of the name and its closing NUL  |
| `ONE_op_table`             | operator index -> set of source ids       | u32 source ids                         |
| `ONE_execution_plan_table` | position -> (order in plan, offset, ...)  | u32 numbers, order included            |

All three share one layout of little-endian u32s without padding: `[entry count]`, then
`[id][length][payload]` per entry.

1. Encoding is canonical and byte-exact: entries ascend by id, the source ids of an operator ascend
   without repetition.
2. Decoding accepts exactly what ONE's release build accepts. It reads entries until the bytes run
   out and only then compares their number with the count, so a hostile count or length never
   allocates anything.
3. What is accepted though no encoder writes it (entries out of order, source ids unsorted or
   repeated, a name whose last byte is not NUL: the release build drops that byte unseen) is told in
   `Decoded.notes`. The notes are empty exactly when encoding the decoded entries gives the same
   bytes again.
4. A name is bytes in the file, of no promised encoding. Here it is UTF-8 text in which every byte
   that is not UTF-8 stands as a lone surrogate (`surrogateescape`), so any name survives the round
   trip. NULs inside a name are kept. Escape it before printing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from whence.errors import ModelError

V = TypeVar("V")

_COUNT = struct.Struct("<I")
_ENTRY_HEAD = struct.Struct("<II")


@dataclass(frozen=True, slots=True)
class Decoded(Generic[V]):
    """A table read from bytes: its entries in order, and one line for each kind of problem."""

    entries: Mapping[int, V]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableCodec(Generic[V]):
    """The codec of a table. Errors are `ModelError`s with its name, when decoding the offset."""

    name: str
    key: str
    unit_bytes: int
    may_be_empty: bool
    problem: str
    pack: Callable[[V], bytes]
    unpack: Callable[[bytes], V]

    def encode(self, entries: Mapping[int, V]) -> bytes:
        """The canonical bytes of `entries`, as ONE's exporter writes them."""
        parts = [_COUNT.pack(len(entries))]
        for key in sorted(entries):
            try:
                payload = self.pack(entries[key])
                head = _ENTRY_HEAD.pack(key, len(payload) // self.unit_bytes)
            except (struct.error, UnicodeEncodeError) as error:
                raise ModelError(
                    f"{self.name}: {self.key} {key} cannot be written: {error}"
                ) from error
            if not payload and not self.may_be_empty:
                raise ModelError(
                    f"{self.name}: {self.key} {key} cannot be written: its entry is empty"
                )
            parts += (head, payload)
        return b"".join(parts)

    def decode(self, data: bytes) -> Decoded[V]:
        """The entries in `data`, in time linear in `len(data)` whatever its counts claim."""
        if len(data) < _COUNT.size:
            raise self._malformed(f"{len(data)} bytes are too few for the entry count", 0)
        (declared,) = _COUNT.unpack_from(data)
        entries: dict[int, V] = {}
        first_seen: dict[str, int] = {}
        offset, previous = _COUNT.size, -1
        while offset < len(data):
            start = offset + _ENTRY_HEAD.size
            if start > len(data):
                raise self._malformed(
                    f"{len(data) - offset} bytes are too few for an entry's id and length", offset
                )
            key, length = _ENTRY_HEAD.unpack_from(data, offset)
            end = start + length * self.unit_bytes
            if length == 0 and not self.may_be_empty:
                raise self._malformed(f"{self.key} {key} has length 0", start - _COUNT.size)
            if end > len(data):
                raise self._malformed(
                    f"{self.key} {key} claims {end - start} bytes where {len(data) - start} are"
                    " left",
                    start,
                )
            if key in entries:
                raise self._malformed(f"{self.key} {key} appears twice", offset)
            payload = data[start:end]
            entries[key] = self.unpack(payload)
            if key < previous:
                first_seen.setdefault("entries are out of order", offset)
            if self.pack(entries[key]) != payload:
                first_seen.setdefault(self.problem, start)
            offset, previous = end, key
        if len(entries) != declared:
            raise self._malformed(
                f"the entry count says {declared}, the table holds {len(entries)}", 0
            )
        return Decoded(
            entries,
            tuple(
                f"{self.name}: {what} (first at offset {where})"
                for what, where in first_seen.items()
            ),
        )

    def _malformed(self, what: str, offset: int) -> ModelError:
        return ModelError(f"{self.name}: {what}, at offset {offset}")


def _pack_name(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape") + b"\0"


def _unpack_name(payload: bytes) -> str:
    return payload[:-1].decode("utf-8", "surrogateescape")


def _pack_numbers(numbers: Iterable[int]) -> bytes:
    numbers = tuple(numbers)
    return struct.pack(f"<{len(numbers)}I", *numbers)


def _unpack_numbers(payload: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(payload) // 4}I", payload)


SOURCE_TABLE: TableCodec[str] = TableCodec(
    name="ONE_source_table",
    key="source",
    unit_bytes=1,
    may_be_empty=False,
    problem="a name does not end in NUL, its last byte is dropped",
    pack=_pack_name,
    unpack=_unpack_name,
)

OP_TABLE: TableCodec[frozenset[int]] = TableCodec(
    name="ONE_op_table",
    key="operator",
    unit_bytes=4,
    may_be_empty=True,
    problem="the source ids of an operator are out of order or repeated",
    pack=lambda ids: _pack_numbers(sorted(ids)),
    unpack=lambda payload: frozenset(_unpack_numbers(payload)),
)

EXECUTION_PLAN_TABLE: TableCodec[tuple[int, ...]] = TableCodec(
    name="ONE_execution_plan_table",
    key="position",
    unit_bytes=4,
    may_be_empty=False,
    problem="a plan does not survive the round trip",  # never seen: every number of a plan is kept, in order
    pack=_pack_numbers,
    unpack=_unpack_numbers,
)


@dataclass(frozen=True, slots=True)
class LuciTables:
    """What a model's metadata says of provenance. A table the file does not carry is empty."""

    sources: Mapping[int, str]
    ops: Mapping[int, frozenset[int]]
    plan: Mapping[int, tuple[int, ...]]
    notes: tuple[str, ...]


def read_tables(metadata: Iterable[tuple[str, bytes]]) -> LuciTables:
    """The luci tables among a model's (name, payload) metadata. Unknown names are ignored; of two
    tables with one name the last wins.
    """
    sources: Decoded[str] = Decoded({})
    ops: Decoded[frozenset[int]] = Decoded({})
    plan: Decoded[tuple[int, ...]] = Decoded({})
    for name, payload in metadata:
        match name:
            case SOURCE_TABLE.name:
                sources = SOURCE_TABLE.decode(payload)
            case OP_TABLE.name:
                ops = OP_TABLE.decode(payload)
            case EXECUTION_PLAN_TABLE.name:
                plan = EXECUTION_PLAN_TABLE.decode(payload)
    return LuciTables(
        sources.entries, ops.entries, plan.entries, sources.notes + ops.notes + plan.notes
    )


def origins(
    sources: Mapping[int, str], ops: Mapping[int, frozenset[int]]
) -> dict[int, frozenset[int]]:
    """Each listed operator's origin, checked against the source table.

    Empty when either table is empty: ONE 1.20 and later write a full source table beside an op
    table without entries, and such a file counts as one without origins. An operator with no source
    or with one that the source table lacks is a `ModelError`.
    """
    if not sources or not ops:
        return {}
    for op, ids in ops.items():
        if not ids:
            raise ModelError(
                f"{OP_TABLE.name}: operator {op} has no source; an operator without origin must not"
                " be listed"
            )
        missing = [source for source in ids if source not in sources]
        if missing:
            raise ModelError(
                f"{OP_TABLE.name}: operator {op} stems from source {min(missing)}, which"
                f" {SOURCE_TABLE.name} does not list"
            )
    return dict(ops)
