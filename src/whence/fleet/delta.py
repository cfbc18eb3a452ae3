"""The table as a Delta table, for those who keep theirs in one."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from whence.errors import UnsupportedError
from whence.fleet.table import Table

_CELLS = 500
"""Appended at a time: each is a commit."""


def append_to_delta(table: Table, folder: Path) -> int:
    """Append the cells that the Delta table does not have yet, each wholly in one commit; returns
    how many. Several writers may append at the same time, and none sees half of a cell.
    """
    try:
        importlib.import_module("pyarrow")
        deltalake: Any = importlib.import_module("deltalake")
    except ImportError:
        raise UnsupportedError(
            "to write a Delta table needs deltalake and pyarrow, which are not installed: pip"
            " install deltalake pyarrow"
        ) from None
    uri = str(folder)
    present: set[str] = set()
    if deltalake.DeltaTable.is_deltatable(uri):
        columns = deltalake.DeltaTable(uri).to_pyarrow_dataset().to_table(columns=["key"])
        present = set(columns["key"].to_pylist())
    fresh = sorted(table.finished() - present)
    with table.connected() as connection:
        for start in range(0, len(fresh), _CELLS):
            rows = connection.sql(
                "SELECT * FROM record WHERE key IN (SELECT unnest(?::VARCHAR[]))",
                params=[fresh[start : start + _CELLS]],
            ).to_arrow_table()
            deltalake.write_deltalake(uri, rows, mode="append", partition_by=["night"])
    return len(fresh)
