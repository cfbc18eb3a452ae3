"""The tables of the debug database: what a row of each holds, and how its columns are called and
typed in every form. The list of them is that of the fields of a `DebugDatabase`.

The first four are Arm Vela's, with its columns in its order. The others are whence's own. Ids tie
them together:

| id             | what it counts                                                                            |
|----------------|-------------------------------------------------------------------------------------------|
| `source_id`    | operators of the user's file, `source.id`; -1 for none                                    |
| `optimised_id` | operators after all passes, `optimised.id`; -1 for none                                   |
| `kernel_id`    | steps of a run in order, from 0; in `queue` a step is known by `offset` = 4 × `kernel_id` |
| `pass_id`      | passes in the order they ran, from 1                                                      |
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, get_args, get_type_hints

Cell: TypeAlias = int | float | str | None
Row: TypeAlias = tuple[Cell, ...]

NONE = -1
"""The id of nothing, as Vela's legacy form writes it."""
WORD = 4
"""Offsets into a command stream count bytes; a command of ours is one word."""


class SourceOperatorRow(NamedTuple):
    """An operator of the file the user started with."""

    id: int
    operator: str
    """Its type."""
    kernel_w: int | None
    kernel_h: int | None
    ofm_w: int | None
    ofm_h: int | None
    ofm_d: int | None
    ext_key: int | None
    """Its position in the file, from 0, within its own (sub)graph: not unique. Of several operators
    that came from it, that of the first; `None` where there is none.
    """


class OptimisedRow(NamedTuple):
    """An operator that the passes made or left. From Regor there are several generations, of which
    only the last is queued.
    """

    id: int
    source_id: int
    """The source operator with the largest share in it."""
    operator: str
    kernel_w: int | None
    kernel_h: int | None
    ofm_w: int | None
    ofm_h: int | None
    ofm_d: int | None


class QueueRow(NamedTuple):
    """A command in execution order. Operators and commands may have several of each other."""

    offset: int
    """In bytes from the start of the command stream."""
    cmdstream_id: int
    optimised_id: int


class CmdstreamRow(NamedTuple):
    """A command stream, and its offset in the output file; `None` when the form lacks it."""

    id: int
    file_offset: int | None


class OperatorRow(NamedTuple):
    """What the four tables have no column for: the name of a source operator, where it was written,
    and what became of it.
    """

    source_id: int
    name: str
    scope: str
    module: str
    line: str
    stack: str
    fate: str


class FileOperatorRow(NamedTuple):
    """An operator of the file that was compiled came from this source operator: itself, unless
    another tool made the file of an earlier one. A source operator that is not in the file any more
    has one row.
    """

    source_id: int
    table_id: int | None
    """The id of the source operator in the file's own table, luci-profile's `ONE_source_table`."""
    position: int | None
    """Of the operator in its (sub)graph, from 0; `None` when none is left."""


class OriginRow(NamedTuple):
    """A source operator is in an optimised operator. The weights of one optimised operator add up
    to 1, or are all 0 in a constant.
    """

    optimised_id: int
    source_id: int
    weight: float


class TombstoneRow(NamedTuple):
    """An operator left the graph, and this source operator with it. The last tombstone of a source
    operator tells its end.
    """

    id: int
    optimised_id: int
    source_id: int
    reason: str
    pass_name: str
    rule: str
    into_id: int | None
    """The operator whose result stands in for it."""


class EndingRow(NamedTuple):
    """How a source operator that no longer runs came to its end: by the pass that folded it, or by
    the one that removed it.
    """

    source_id: int
    reason: str
    pass_name: str
    rule: str
    into_id: int | None
    """The operator that carries it now, or whose result stands in for it."""


class PassRow(NamedTuple):
    """What one pass did."""

    id: int
    name: str
    summary: str
    time_ns: int
    added: int
    removed: int
    changes: int
    skipped: str
    """Why it did not run, or empty."""


class RuleRow(NamedTuple):
    """How often a rule of a pass was applied."""

    pass_id: int
    rule: str
    applied: int


class StepRow(NamedTuple):
    """One step of a run."""

    id: int
    name: str
    symbol: str
    """The native function, or empty for a reference implementation."""
    flops: int
    bytes: int
    why_reference: str


class MemberRow(NamedTuple):
    """An optimised operator in a kernel, what it adds, and its share of the kernel's time by that.
    Shares of a kernel add up to 1.
    """

    kernel_id: int
    optimised_id: int
    flops: int
    bytes: int
    weight: float


class SampleRow(NamedTuple):
    """When a kernel ran, in nanoseconds of the monotonic clock."""

    execution: int
    kernel_id: int
    begin_ns: int
    end_ns: int


class MeasuredRow(NamedTuple):
    """What a profile says of a kernel over all runs, without what reading the clock cost."""

    kernel_id: int
    calls: int
    time_ns: int
    min_ns: int


class EfficiencyRow(NamedTuple):
    """How close a kernel comes to the machine's peak. Operations, bytes and time are per call."""

    kernel_id: int
    flops: int
    bytes: int
    gflops: float
    """Operations in a nanosecond,"""
    gbytes: float
    """and bytes."""
    least_ns: float
    """What the machine would need at best,"""
    of_peak: float
    """as a part of what it took."""
    bound: str
    """compute, memory, cache, waiting, dispatch or reference."""
    items: int
    """Independent work items, and the threads that have one."""
    workers: int
    waited_ns: int
    """Over all runs: what the calling thread waited for others."""


class ExecutedRow(NamedTuple):
    """What a kernel carries out in a call, counted in the program it was rendered from."""

    kernel_id: int
    operations: int
    """Without exponentials and the like,"""
    bytes: int
    """and of its operands, read and written."""
    defined_flops: int
    """Operations as the operators in it define them."""


class AttributedRow(NamedTuple):
    """A source operator's time in a kernel; those of a kernel add up to that in `measured`."""

    source_id: int
    kernel_id: int
    weight: float | None
    time_ns: int
    inserted_ns: int
    """How much of it is in operators that the passes put in."""


class ResidualRow(NamedTuple):
    """Time of no source operator. With those in `attributed`, it adds up to the wall time."""

    name: str
    time_ns: int


class Kind(enum.Enum):
    INT = "BIGINT"
    REAL = "DOUBLE"
    TEXT = "VARCHAR"


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    kind: Kind
    required: bool = True
    """A row without it means nothing."""
    default: Cell = None
    """What stands for a value that is absent."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """How the rows of one list of a `DebugDatabase` look outside."""

    name: str
    field: str
    """What the list is called in a `DebugDatabase`."""
    row: Callable[..., Row]
    columns: tuple[Column, ...]

    @property
    def header(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


_KINDS = {int: Kind.INT, float: Kind.REAL, str: Kind.TEXT}
_DEFAULTS: Mapping[tuple[object, str], Cell] = {(OptimisedRow, "source_id"): NONE}


def schema_of(row: Callable[..., Row], name: str, field: str) -> TableSchema:
    """Columns are the fields of the row: text may be absent, and what may be `None` or has a
    default.
    """
    columns = []
    for label, hint in get_type_hints(row).items():
        kinds = get_args(hint) or (hint,)
        kind = _KINDS[kinds[0]]
        default = _DEFAULTS.get((row, label), "" if kind is Kind.TEXT else None)
        required = default is None and type(None) not in kinds
        columns.append(Column(label, kind, required, default))
    return TableSchema(name, field, row, tuple(columns))
