"""The debug database in DuckDB and Parquet: the rows of the XML, for SQL.

Every table of `rows` is there, empty ones too, with the views of `views` over them. Tables of other
writers are stored under plain names, with columns of plain names (letters, digits, underscores);
`whence_extra` says what they were called. Their columns that hold only integers are integers.
`whence_format` has the version, and the paths that the XML keeps in its root. Text is escaped as in
the XML (`escaping`), so a query finds the same text in each form.

Names and cells come from models and are never part of SQL text: cells are parameters, names are
made plain. Files are opened read-only, without access to other files, and only tables are read from
them, never a view.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import duckdb

from whence.debugdb.connection import CONFINED, pattern_free
from whence.debugdb.csv_text import is_integer
from whence.debugdb.escaping import escape, unescape
from whence.debugdb.rows import Cell, Column, Kind, TableSchema
from whence.debugdb.tables import RESERVED, TABLES, DebugDatabase, Extra
from whence.debugdb.views import VIEWS
from whence.errors import ModelError

_VERSION = "1"
_BATCH = 20_000
_FORMAT = "whence_format"
_EXTRA = "whence_extra"
_PLAIN = re.compile(r"[a-z_][a-z0-9_]{0,80}", re.ASCII)
_HELD = {Kind.INT: int, Kind.REAL: float, Kind.TEXT: str}
_FORMAT_COLUMNS = (Column("key", Kind.TEXT), Column("value", Kind.TEXT))
_EXTRA_COLUMNS = (
    Column("position", Kind.INT),
    Column("stored_table", Kind.TEXT),
    Column("stored_column", Kind.TEXT),
    Column("table_name", Kind.TEXT),
    Column("column_name", Kind.TEXT),
)


class QueryResult(NamedTuple):
    """What a query gave."""

    columns: tuple[str, ...]
    rows: list[tuple[object, ...]]
    more: bool
    """There are rows beyond those asked for."""


# ---- writing ----


def write_duckdb(db: DebugDatabase, path: Path) -> None:
    """Write the database to a DuckDB file, replacing one that is there, wholly or not at all."""
    unfinished = path.with_name(path.name + ".part")
    with _explained(f"'{path}' cannot be written"):
        unfinished.unlink(missing_ok=True)
        try:
            with _connect(str(unfinished)) as connection:
                _fill(connection, db)
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)


def write_parquet(db: DebugDatabase, folder: Path) -> None:
    """Write a Parquet file for each table into the folder. Files of tables that an earlier database
    left there are removed.
    """
    with _explained(f"'{folder}' cannot be written"), _connect(":memory:") as connection:
        folder.mkdir(parents=True, exist_ok=True)
        earlier = (
            _extra_names(connection, folder) if (folder / f"{_EXTRA}.parquet").is_file() else set()
        )
        names = _fill(connection, db)
        for name in earlier - set(names):
            (folder / f"{name}.parquet").unlink(missing_ok=True)
        for name in names:
            connection.execute(
                f'COPY "{name}" TO ? (FORMAT parquet)', [str(folder / f"{name}.parquet")]
            )


def ask(db: DebugDatabase, sql: str, *, most: int = 1000) -> QueryResult:
    """Answer a query on a copy of the database in memory: whatever it does, the database stays as
    it is. It can reach neither files nor the network nor this process.
    """
    with _explained("the query failed"), _connect(":memory:") as connection:
        _fill(connection, db)
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        connection.execute(sql)
        columns = tuple(str(column[0]) for column in connection.description or ())
        rows = connection.fetchmany(most + 1) if columns else []
    return QueryResult(columns, rows[:most], len(rows) > most)


def _fill(connection: duckdb.DuckDBPyConnection, db: DebugDatabase) -> list[str]:
    """Make all tables and views; returns the names of the tables."""
    names = []
    connection.execute("BEGIN")
    for name, columns, rows in _all_tables(db):
        titles = ", ".join(f'"{column.name}" {column.kind.value}' for column in columns)
        connection.execute(f'CREATE TABLE "{name}" ({titles})')
        values = ", ".join(f"unnest(?::{column.kind.value}[])" for column in columns)
        for start in range(0, len(rows), _BATCH):
            batch = rows[start : start + _BATCH]
            connection.execute(
                f'INSERT INTO "{name}" SELECT {values}',
                [[_escaped(cell) for cell in cells] for cells in zip(*batch, strict=True)],
            )
        names.append(name)
    for view in VIEWS:
        connection.execute(f'CREATE VIEW "{view.name}" AS {view.sql}')
    connection.execute("COMMIT")
    return names


def _all_tables(
    db: DebugDatabase,
) -> Iterator[tuple[str, Sequence[Column], Sequence[Sequence[Cell]]]]:
    """Name, columns and rows of each, as SQL sees them."""
    for table in TABLES:
        yield table.name, table.columns, db.rows(table)
    taken = {*RESERVED, *(view.name for view in VIEWS)}
    directory: list[Sequence[Cell]] = []
    for extra in db.extras:
        name = _plain(extra.name, taken)
        columns, used = [], set[str]()
        for index, title in enumerate(extra.columns):
            cells = [row[index] for row in extra.rows]
            numbers = any(cells) and all(is_integer(cell) for cell in cells if cell)
            columns.append(Column(_plain(title, used), Kind.INT if numbers else Kind.TEXT))
            directory.append((len(directory), name, columns[-1].name, extra.name, title))
        rows = [
            [_typed(column.kind, cell) for column, cell in zip(columns, row, strict=True)]
            for row in extra.rows
        ]
        yield name, columns, rows
    yield _EXTRA, _EXTRA_COLUMNS, directory
    paths = [("source", db.source_path), ("optimised", db.optimised_path)]
    yield _FORMAT, _FORMAT_COLUMNS, [("version", _VERSION), *paths]


def _typed(kind: Kind, cell: str) -> Cell:
    if kind is Kind.TEXT:
        return cell
    return int(cell) if cell else None


def _plain(name: str, taken: set[str]) -> str:
    """A name of letters, digits and underscores that is not taken, in any case."""
    base = re.sub(r"[^a-z0-9_]+", "_", name.lower(), flags=re.ASCII)[:60] or "unnamed"
    base = f"_{base}" if base[0].isdigit() else base
    found, number = base, 1
    while found in taken:
        number += 1
        found = f"{base}_{number}"
    taken.add(found)
    return found


def _escaped(cell: Cell) -> Cell:
    return escape(cell) if isinstance(cell, str) else cell


# ---- reading ----


def read_duckdb(path: Path) -> DebugDatabase:
    """Read a DuckDB file of `write_duckdb`; anything else is a `ModelError` of one line."""
    if not path.is_file():
        raise ModelError(f"'{path}': no such file")
    with (
        _explained(f"'{path}' is not a debug database"),
        _connect(str(path), read_only=True) as connection,
    ):
        known = {
            str(row[0])
            for row in connection.execute(
                "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'main'"
            ).fetchall()
        }

        def select(name: str, columns: str) -> list[tuple[object, ...]] | None:
            if name in known:
                return connection.execute(
                    f'SELECT {columns} FROM main."{name}" ORDER BY rowid'
                ).fetchall()
            return None

        return _read(select, str(path))


def read_parquet(folder: Path) -> DebugDatabase:
    """Read the Parquet files that `write_parquet` wrote."""
    with _explained(f"'{folder}' is not a debug database"), _connect(":memory:") as connection:

        def select(name: str, columns: str) -> list[tuple[object, ...]] | None:
            file = folder / f"{name}.parquet"
            if file.is_file():
                return connection.execute(
                    f"SELECT {columns} FROM read_parquet([?])", [pattern_free(file)]
                ).fetchall()
            return None

        return _read(select, str(folder))


_Select = Callable[[str, str], list[tuple[object, ...]] | None]
"""The rows of a table, given its name and the columns as SQL; `None` when there is none."""


def _read(select: _Select, where: str) -> DebugDatabase:
    form = {
        row[0]: row[1]
        for row in _checked(select, TableSchema(_FORMAT, "", tuple, _FORMAT_COLUMNS), where) or ()
    }
    if form.get("version") != _VERSION:
        raise ModelError(
            f"'{where}' is not a debug database that this whence knows: it has no table '{_FORMAT}'"
            f" of version {_VERSION}"
        )
    db = DebugDatabase(str(form.get("source", "")), str(form.get("optimised", "")))
    for table in TABLES:
        rows = _checked(select, table, where)
        if rows is None:
            db.notes.append(f"there is no table '{table.name}'")
        else:
            db.add(table, rows)
    titles: dict[str, list[tuple[str, str, str]]] = {}
    for _, stored, column, name, title in sorted(
        _checked(select, TableSchema(_EXTRA, "", tuple, _EXTRA_COLUMNS), where) or ()
    ):
        titles.setdefault(str(stored), []).append((str(column), str(name), str(title)))
    for stored, columns in titles.items():
        if not all(
            _PLAIN.fullmatch(name) for name in (stored, *(column for column, _, _ in columns))
        ):
            raise ModelError(f"'{where}': table '{_EXTRA}' is damaged")
        if columns[0][1] in RESERVED:
            continue  # written before the table became one of ours, and read as such above
        found = select(stored, ", ".join(f'"{column}"' for column, _, _ in columns))
        if found is None:
            db.notes.append(f"there is no table '{stored}'")
            continue
        cells = tuple(
            tuple("" if cell is None else unescape(str(cell)) for cell in row) for row in found
        )
        db.extras.append(Extra(columns[0][1], tuple(title for _, _, title in columns), cells))
    return db


def _checked(select: _Select, table: TableSchema, where: str) -> list[tuple[Cell, ...]] | None:
    """The rows with their text as it was, and every cell of the column's type."""
    rows = select(table.name, ", ".join(f'"{name}"' for name in table.header))
    if rows is None:
        return None
    found = []
    for row in rows:
        cells: list[Cell] = []
        for column, cell in zip(table.columns, row, strict=True):
            if cell is None and not column.required and column.kind is not Kind.TEXT:
                cells.append(None)
            elif isinstance(cell, str) and column.kind is Kind.TEXT:
                cells.append(unescape(cell))
            elif isinstance(cell, int | float) and isinstance(cell, _HELD[column.kind]):
                cells.append(cell)
            else:
                raise ModelError(
                    f"'{where}': table '{table.name}' has {cell!r:.60} in column {column.name}"
                )
        found.append(tuple(cells))
    return found


def _extra_names(connection: duckdb.DuckDBPyConnection, folder: Path) -> set[str]:
    path = pattern_free(folder / f"{_EXTRA}.parquet")
    names = {
        str(row[0])
        for row in connection.execute(
            "SELECT DISTINCT stored_table FROM read_parquet([?])", [path]
        ).fetchall()
    }
    return {name for name in names if _PLAIN.fullmatch(name)} - RESERVED


# ---- connections ----


def _connect(path: str, *, read_only: bool = False) -> duckdb.DuckDBPyConnection:
    """It is closed at the end of a `with`."""
    config = {**CONFINED, "threads": 2, "temp_directory": ""}
    connection = duckdb.connect(path, read_only=read_only, config=config)
    if read_only:
        connection.execute("SET enable_external_access = false")
    return connection


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Errors of the file system and of DuckDB as one line."""
    try:
        yield
    except OSError as error:
        raise ModelError(f"{what}: {error.strerror or error}") from error
    except (duckdb.Error, UnicodeError) as error:
        raise ModelError(f"{what}: {' '.join(str(error).split())[:300]}") from error
