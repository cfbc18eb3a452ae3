"""Named tables of text cells, of whatever writer, into a `DebugDatabase`, without losing any of
them.

1. Columns are found by name, in any order. A column that is absent gives the values that stand for
   nothing, and a note when Vela has always written it.
2. What a table has no place for (unknown columns, surplus cells, text where a number belongs) goes
   to the table `NAME_extra`, whose column `row` is the row's position in NAME, from 0.
3. A row without the ids that give it a meaning goes to `NAME_rejected`, as it stands.
4. A table of ours that is there twice is read as one; another's table gets a number.
5. An unknown table is kept as it is.
Every such case is a note, but for the tables and columns that Regor is known to add.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence

from whence.debugdb.rows import NONE, Cell, Column, Kind, TableSchema
from whence.debugdb.tables import RESERVED, TABLES, VELA_TABLES, DebugDatabase, Extra

_NUMBER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_REGOR = frozenset(
    {
        "group",
        "perf",
        "perf_debug",
        "perf_debug_main",
        "perf_debug_conn",
        "perf_debug_wd",
        "tensors",
    }
)
# Columns that some versions of Vela leave out or add.
_OPTIONAL = frozenset({("source", "ext_key"), ("cmdstream", "file_offset")})
_KNOWN_EXTRA = frozenset({("queue", "scheduled_id")})
# Tables that a profile of ours adds.
_PROFILE = frozenset({"profile"})
# Tables that reading made.
_MADE = frozenset(f"{table.name}_{end}" for table in TABLES for end in ("extra", "rejected"))
_BAD = object()


class TableReader:
    """Takes tables as they come, and gives the database at the end."""

    def __init__(self, db: DebugDatabase) -> None:
        self._db = db
        self._tables = {table.name: table for table in TABLES}
        self._seen: set[str] = set()
        self._names = set(RESERVED)

    def add(self, name: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table: its first row, and the others."""
        if not header:
            if name not in self._tables:
                self._note(f"table {name!r} is empty")
                return
            header = self._tables[name].header
        repeated = name in self._seen
        self._seen.add(name)
        if len(set(header)) < len(header):
            self._note(f"table {name!r} has columns of the same name; they are numbered")
        width = max(len(header), max(map(len, rows), default=0))
        self._note_ragged_rows(name, len(header), rows)
        beyond = (f"column_{number}" for number in range(len(header) + 1, width + 1))
        columns = _distinct([*header, *beyond])
        table = self._tables.get(name)
        if table is not None:
            if repeated:
                self._note(
                    f"table '{name}' is there more than once; its rows are read as one table"
                )
            self._add_known(table, columns, rows)
        else:
            if name not in _REGOR | _PROFILE | _MADE:
                self._note(f"table {name!r} is not known; it is kept as it is")
            self._keep(name, columns, (_filled(row, width) for row in rows))

    def finish(self, *, regor: bool) -> None:
        """All tables were added. Regor counts ids from 1 and writes 0 for none."""
        for table in VELA_TABLES:
            if table.name not in self._seen:
                self._note(f"there is no table '{table.name}'")
        if regor:
            db = self._db
            db.optimised[:] = [
                row._replace(source_id=row.source_id or NONE) for row in db.optimised
            ]
            db.queue[:] = [row._replace(optimised_id=row.optimised_id or NONE) for row in db.queue]

    def _add_known(
        self, table: TableSchema, columns: Sequence[str], rows: Sequence[Sequence[str]]
    ) -> None:
        places = {name: index for index, name in enumerate(columns)}
        missing = [
            c.name
            for c in table.columns
            if c.name not in places and (table.name, c.name) not in _OPTIONAL
        ]
        if missing:
            self._note(f"table '{table.name}' has no column {', '.join(missing)}")
        unknown = [name for name in columns if name not in table.header]
        if any((table.name, name) not in _KNOWN_EXTRA for name in unknown):
            self._note(
                f"table '{table.name}' has columns it is not known for, kept in"
                f" '{table.name}_extra': {', '.join(map(repr, unknown))}"
            )
        first = len(self._db.rows(table))
        good: list[list[Cell]] = []
        rejected: list[Sequence[str]] = []
        beside: list[dict[str, str]] = []
        for row in rows:
            cells: list[Cell] = []
            extra = {
                name: row[places[name]]
                for name in unknown
                if places[name] < len(row) and row[places[name]]
            }
            for column in table.columns:
                index = places.get(column.name, len(row))
                value = _value(column, row[index]) if index < len(row) else column.default
                if value is _BAD:
                    extra[column.name], value = row[index], column.default
                if value is None and column.required:
                    rejected.append(_filled(row, len(columns)))
                    break
                assert value is None or isinstance(value, int | float | str)
                cells.append(value)
            else:
                good.append(cells)
                beside.append(extra)
        self._db.add(table, good)
        self._note_bad_cells(table, beside)
        if rejected:
            self._note(
                f"{len(rejected)} rows of table '{table.name}' have no usable id; they are kept in"
                f" '{table.name}_rejected'"
            )
            self._keep(f"{table.name}_rejected", columns, rejected)
        self._keep_beside(table, first, beside)

    def _note_bad_cells(self, table: TableSchema, beside: Sequence[dict[str, str]]) -> None:
        known = set(table.header)
        bad = [(name, cell) for extra in beside for name, cell in extra.items() if name in known]
        if bad:
            name, cell = bad[0]
            shown = cell if len(cell) <= 40 else cell[:40] + "…"
            self._note(
                f"{len(bad)} cells of table '{table.name}' are not numbers, kept in"
                f" '{table.name}_extra'; the first is {shown!r} in {name}"
            )

    def _keep_beside(
        self, table: TableSchema, first: int, beside: Sequence[dict[str, str]]
    ) -> None:
        names = list(dict.fromkeys(name for extra in beside for name in extra))
        if names:
            label = _unused("row", names)
            rows = (
                (str(first + index), *(extra.get(name, "") for name in names))
                for index, extra in enumerate(beside)
                if extra
            )
            self._keep(f"{table.name}_extra", (label, *names), rows)

    def _keep(self, name: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        fresh = _unused(name, self._names)
        if fresh != name:
            self._note(f"there is another table {name!r}; this one is kept as {fresh!r}")
        self._names.add(fresh)
        self._db.extras.append(Extra(fresh, tuple(columns), tuple(tuple(row) for row in rows)))

    def _note_ragged_rows(self, name: str, width: int, rows: Sequence[Sequence[str]]) -> None:
        ragged = [number for number, row in enumerate(rows, 1) if len(row) != width]
        if ragged:
            cells = len(rows[ragged[0] - 1])
            self._note(
                f"{len(ragged)} rows of table {name!r} do not have {width} cells; the first is row"
                f" {ragged[0]}, with {cells}"
            )

    def _note(self, text: str) -> None:
        self._db.notes.append(text)


def _value(column: Column, cell: str) -> object:
    """What the cell says, or `_BAD`."""
    if column.kind is Kind.TEXT:
        return cell
    if not cell.strip():
        return column.default
    if column.kind is Kind.REAL:
        return _real(cell)
    if _NUMBER.fullmatch(cell.strip()) is None or not -(2**63) <= int(cell) < 2**63:
        return _BAD
    return int(cell)


def _real(cell: str) -> object:
    try:
        number = float(cell)
    except ValueError:
        return _BAD
    return number if math.isfinite(number) else _BAD


def _distinct(names: Sequence[str]) -> list[str]:
    found: dict[str, None] = {}
    for name in names:
        found[_unused(name, {*names, *found}) if name in found else name] = None
    return list(found)


def _filled(row: Sequence[str], width: int) -> tuple[str, ...]:
    return (*row, *("" for _ in range(width - len(row))))


def _unused(name: str, taken: Iterable[str]) -> str:
    used = set(taken)
    if name not in used:
        return name
    return next(fresh for number in itertools.count(2) if (fresh := f"{name}_{number}") not in used)
