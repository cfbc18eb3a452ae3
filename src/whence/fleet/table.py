"""The table: a folder of Parquet files, to which cells are added and in which nothing changes.

    TABLE/whence-table.json                     what this folder is
    TABLE/night=2026-11-16/model=NAME/KEY.parquet   one file for each cell
    TABLE/compact/model=NAME/GENERATION.parquet     many cells of a model in one file

A file gets its name when it is complete, so whoever reads sees a cell wholly or not at all, and two
who measure the same cell leave one file. Compacting writes one large file for each model and then
removes the small ones; a reader that sees both takes each cell once.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np

from whence.debugdb.connection import CONFINED, pattern_free, quoted
from whence.errors import ModelError
from whence.fleet.cell import Cell
from whence.fleet.cell_result import CellResult
from whence.fleet.columns import (
    CELL_COLUMNS,
    COLUMNS,
    ROW_COLUMNS,
    Row,
    SweepColumn,
    head_of,
    rows_of,
)
from whence.fleet.views import VIEWS

_FORMAT = "whence-table.json"
_VERSION = 1
_COMPACT = "compact"
_KEY = re.compile(r"[0-9a-f]{64}")
_ROW_GROUP = 20_000


@dataclass(frozen=True, slots=True)
class Compaction:
    """What compacting did."""

    cells: int
    models: int


class Writer:
    """Writes cells; keeps one connection for all of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._connection = _connect()
        head = ", ".join(f'?::{column.kind} AS "{column.name}"' for column in CELL_COLUMNS)
        rows = ", ".join(
            f'"{column.name}"::{column.kind} AS "{column.name}"' for column in ROW_COLUMNS
        )
        self._select = f"SELECT {head}, {rows} FROM rows"

    def write(self, cell: Cell, outcome: CellResult) -> Path:
        """The cell's file, which is there in whole from the moment it has its name."""
        path = self._folder / cell.folder / f"{cell.key}.parquet"
        rows = list(rows_of(outcome))
        self._connection.register("rows", {each.name: _array(each, rows) for each in ROW_COLUMNS})
        try:
            with _renamed(path) as part:
                self._connection.execute(
                    f"COPY ({self._select}) TO {quoted(part)} (FORMAT parquet, COMPRESSION zstd)",
                    head_of(cell, outcome),
                )
        finally:
            self._connection.unregister("rows")
        return path

    def close(self) -> None:
        self._connection.close()


def _array(column: SweepColumn, rows: Sequence[Row]) -> np.ndarray:
    """A column as NumPy has it, which DuckDB reads without asking Python for each value."""
    values = [row.get(column.name) for row in rows]
    if column.kind == "VARCHAR":
        return np.array(values, object)
    kind = np.float64 if column.kind == "DOUBLE" else np.int64
    empty = [value is None for value in values]
    filled = np.array([0 if value is None else value for value in values], kind)
    return np.ma.masked_array(filled, empty)


class Table:
    """A table that is there, or is made when the first cell is written."""

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        self.folder = folder
        file = folder / _FORMAT
        if not file.is_file():
            if not create:
                raise ModelError(
                    f"'{folder}' is not a table: there is no {_FORMAT} in it; `whence sweep MODELS"
                    f" -o {folder}` makes one"
                )
            if folder.is_dir() and any(folder.iterdir()):
                raise ModelError(
                    f"'{folder}' is neither empty nor a table; name another folder for the table"
                )
            with _renamed(file) as part:
                part.write_text(json.dumps({"whence": "table", "version": _VERSION}) + "\n")
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            version = found["version"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelError(f"'{file}' is damaged: {error}") from error
        if version != _VERSION:
            raise ModelError(
                f"'{folder}' is a table of version {version}; this whence knows {_VERSION}"
            )

    # ---- what is there ----

    def finished(self) -> frozenset[str]:
        """The keys of all cells in the table. Those of single files are their names."""
        return frozenset(path.stem for path in self._single()) | frozenset(self._compact_keys())

    def files(self) -> list[Path]:
        """The files that together hold every cell once."""
        single, compact = self._single(), self._compact()
        if single and compact:
            known = frozenset(self._compact_keys())
            single = [path for path in single if path.stem not in known]
        return [*compact, *single]

    def _single(self) -> list[Path]:
        return [
            Path(file.path)
            for night in _folders(self.folder, "night=")
            for model in _folders(Path(night.path), "model=")
            for file in os.scandir(model.path)
            if file.name.endswith(".parquet") and _KEY.fullmatch(file.name[:-8])
        ]

    def _compact(self) -> list[Path]:
        """The newest file of each model; it contains all of the older ones."""
        folder = self.folder / _COMPACT
        found = []
        for model in _folders(folder, "model="):
            generations = [
                Path(file.path) for file in os.scandir(model.path) if file.name.endswith(".parquet")
            ]
            if generations:
                found.append(max(generations, key=lambda path: path.stem))
        return sorted(found)

    def _compact_keys(self) -> list[str]:
        compact = self._compact()
        if not compact:
            return []
        with contextlib.closing(_connect()) as connection:
            rows = connection.execute(
                "SELECT key FROM read_parquet(?) WHERE record = 'cell'", [_literals(compact)]
            ).fetchall()
        return [str(row[0]) for row in rows]

    # ---- questions ----

    @contextlib.contextmanager
    def connected(self, files: Iterable[Path] | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection with the views of `whence.fleet.views` over this table or some files."""
        chosen = _literals(self.files() if files is None else files)
        with contextlib.closing(_connect()) as connection:
            if chosen:
                names = ", ".join(quoted(name) for name in chosen)
                source = f"SELECT * FROM read_parquet([{names}], hive_partitioning = false)"
            else:
                empty = ", ".join(f'NULL::{column.kind} AS "{column.name}"' for column in COLUMNS)
                source = f"SELECT {empty} WHERE false"
            try:
                connection.execute(f"CREATE VIEW record AS {source}")
                for view in VIEWS:
                    connection.execute(f'CREATE VIEW "{view.name}" AS {view.sql}')
                yield connection
            except duckdb.Error as error:
                text = " ".join(str(error).split())[:300]
                raise ModelError(f"'{self.folder}' cannot be read: {text}") from error

    def model_files(self, model: str) -> list[Path]:
        """Those of the files that can hold cells of a model: `NAME`, or `NAME-DIGEST`."""
        pattern = re.compile(rf"model={re.escape(model)}(-[0-9a-f]{{8}})?")
        return [path for path in self.files() if pattern.fullmatch(path.parent.name)]

    # ---- upkeep ----

    def compact(self) -> Compaction:
        """Put all single files into one for each model. Questions to many thousand cells are quick
        after that; sweeps may go on meanwhile.
        """
        with (self.folder / _FORMAT).open("rb") as lock:
            # Two at a time would write the same generation, and remove each other's cells.
            fcntl.flock(lock, fcntl.LOCK_EX)
            return self._compact_all()

    def _compact_all(self) -> Compaction:
        by_model: dict[str, list[Path]] = defaultdict(list)
        for path in self._single():
            by_model[path.parent.name].append(path)
        known = frozenset(self._compact_keys())
        count = 0
        with contextlib.closing(_connect()) as connection:
            for name, files in sorted(by_model.items()):
                # A cell that failed may be measured again, so it stays a file of its own.
                done = _done(connection, files)
                fresh = [path for path in done if path.stem not in known]
                count += len(fresh)
                self._compact_model(connection, self.folder / _COMPACT / name, fresh)
                for path in done:
                    path.unlink(missing_ok=True)
                    with contextlib.suppress(OSError):
                        path.parent.rmdir()  # and the night, when nothing is left in it
                        path.parent.parent.rmdir()
        return Compaction(count, len(by_model))

    def _compact_model(
        self, connection: duckdb.DuckDBPyConnection, folder: Path, fresh: Sequence[Path]
    ) -> None:
        if not fresh:
            return
        older = sorted(folder.glob("*.parquet"))
        generation = int(older[-1].stem) + 1 if older else 1
        with _renamed(folder / f"{generation:08d}.parquet") as part:
            # Sorted, so that questions about cells, or operators, read only their row groups.
            connection.execute(
                f"""COPY (SELECT * FROM read_parquet(?, hive_partitioning = false)
                    ORDER BY record, night, key, id) TO {quoted(part)}
                    (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {_ROW_GROUP})""",
                [_literals([*older[-1:], *fresh])],
            )
        for path in older:
            path.unlink(missing_ok=True)


def _done(connection: duckdb.DuckDBPyConnection, files: Sequence[Path]) -> list[Path]:
    """Those of the files that hold a profile."""
    rows = connection.execute(
        "SELECT key FROM read_parquet(?, hive_partitioning = false)"
        " WHERE record = 'cell' AND status = 'done'",
        [_literals(files)],
    ).fetchall()
    keys = {str(row[0]) for row in rows}
    return [path for path in files if path.stem in keys]


def _folders(folder: Path, prefix: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if entry.name.startswith(prefix) and entry.is_dir()]
    except FileNotFoundError:
        return []


@contextlib.contextmanager
def _renamed(path: Path) -> Iterator[Path]:
    """A file beside `path` that gets its name when it is written, and is gone if it is not."""
    part = None
    while part is None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Compacting removes folders in which nothing is left: this one may be gone again.
        with contextlib.suppress(FileNotFoundError):
            handle, name = tempfile.mkstemp(prefix=".part-", dir=path.parent)
            os.close(handle)
            part = Path(name)
    try:
        yield part
        part.chmod(0o644)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _connect() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(":memory:", config={**CONFINED, "preserve_insertion_order": False})


def _literals(paths: Iterable[Path]) -> list[str]:
    return [pattern_free(path) for path in paths]
