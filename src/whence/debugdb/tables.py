"""The debug database of one compilation: what was read, what it became, what ran, and when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import get_args, get_type_hints

from whence.debugdb import rows
from whence.debugdb.rows import Cell, Row, TableSchema, schema_of
from whence.errors import ModelError


@dataclass(frozen=True, slots=True)
class Extra:
    """A table that is not one of ours, as read: every cell is text, empty where there was none."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        if self.name in RESERVED:
            raise ModelError(f"table '{self.name}' is one of whence's own")
        if (
            not self.columns
            or len(set(self.columns)) != len(self.columns)
            or any(len(row) != len(self.columns) for row in self.rows)
        ):
            raise ModelError(
                f"table {self.name!r} needs columns of different names, and in every row a cell for"
                " each"
            )


@dataclass(slots=True)
class DebugDatabase:
    """One per compilation, filled by all who have rows. `queue` is in execution order; the order of
    other tables means nothing.
    """

    source_path: str = ""
    """The user's file."""
    optimised_path: str = ""
    """What was made of it, when that is a file."""
    source: list[rows.SourceOperatorRow] = field(default_factory=list)
    optimised: list[rows.OptimisedRow] = field(default_factory=list)
    queue: list[rows.QueueRow] = field(default_factory=list)
    cmdstream: list[rows.CmdstreamRow] = field(default_factory=list)
    operator: list[rows.OperatorRow] = field(default_factory=list)
    file_operator: list[rows.FileOperatorRow] = field(default_factory=list)
    origin: list[rows.OriginRow] = field(default_factory=list)
    tombstone: list[rows.TombstoneRow] = field(default_factory=list)
    ending: list[rows.EndingRow] = field(default_factory=list)
    passes: list[rows.PassRow] = field(default_factory=list)
    rule: list[rows.RuleRow] = field(default_factory=list)
    kernel: list[rows.StepRow] = field(default_factory=list)
    member: list[rows.MemberRow] = field(default_factory=list)
    sample: list[rows.SampleRow] = field(default_factory=list)
    measured: list[rows.MeasuredRow] = field(default_factory=list)
    efficiency: list[rows.EfficiencyRow] = field(default_factory=list)
    executed: list[rows.ExecutedRow] = field(default_factory=list)
    attributed: list[rows.AttributedRow] = field(default_factory=list)
    residual: list[rows.ResidualRow] = field(default_factory=list)
    extras: list[Extra] = field(default_factory=list)
    """Tables of other writers (Regor's `group`, `perf`, ...), and `NAME_extra`: columns of a table
    NAME that it has no place for, by row.
    """
    notes: list[str] = field(default_factory=list, compare=False)
    """What was odd about the file it was read from, a line each."""

    def rows(self, table: TableSchema) -> Sequence[Row]:
        """The rows of a table, as the list holds them."""
        found: Sequence[Row] = getattr(self, table.field)
        return found

    def add(self, table: TableSchema, cells: Iterable[Sequence[Cell]]) -> None:
        """Append rows given as cells in the order of the table's columns."""
        getattr(self, table.field).extend(table.row(*row) for row in cells)

    def extra(self, name: str) -> Extra | None:
        """The other writer's table of that name."""
        return next((extra for extra in self.extras if extra.name == name), None)

    def counts(self) -> dict[str, int]:
        """How many rows each table holds, ours first; tables without rows are left out."""
        found = {table.name: len(self.rows(table)) for table in TABLES}
        found.update((extra.name, len(extra.rows)) for extra in self.extras)
        return {name: count for name, count in found.items() if count}


TABLES = tuple(
    schema_of(row, "pass" if name == "passes" else name, name)
    for name, hint in get_type_hints(DebugDatabase).items()
    for row in get_args(hint)
    if hasattr(row, "_fields")
)
VELA_TABLES, OWN_TABLES = TABLES[:4], TABLES[4:]
RESERVED = frozenset({*(table.name for table in TABLES), "whence_format", "whence_extra"})
"""Names that no other writer's table can have here."""
