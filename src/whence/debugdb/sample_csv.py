"""Samples of another program as a CSV of table `sample`, as `examples/run_model.c` writes."""

from __future__ import annotations

from pathlib import Path

from whence.debugdb.csv_text import read_csv_file
from whence.debugdb.rows import SampleRow
from whence.debugdb.tables import DebugDatabase
from whence.errors import ModelError

_HEADER = list(SampleRow._fields)
_MOST_BYTES = 1 << 29


def read_samples(path: Path, db: DebugDatabase) -> list[SampleRow]:
    """The samples in a file, each of a kernel that the database knows."""
    rows = read_csv_file(path, _MOST_BYTES, "a list of samples")
    if not rows or [cell.strip() for cell in rows[0]] != _HEADER:
        raise ModelError(f"'{path}' does not begin with the columns {','.join(_HEADER)}")
    known = {kernel.id for kernel in db.kernel}
    found = []
    for number, cells in enumerate(rows[1:], 2):
        if not (len(cells) == len(_HEADER) and all(map(_is_count, cells))):
            raise ModelError(f"'{path}', line {number}: not {len(_HEADER)} whole numbers")
        row = SampleRow(*map(int, cells))
        if row.kernel_id not in known:
            raise ModelError(
                f"'{path}', line {number}: the database has no kernel {row.kernel_id}; is it of the"
                " same compilation?"
            )
        if row.end_ns < row.begin_ns:
            raise ModelError(f"'{path}', line {number}: ends before it begins")
        found.append(row)
    return found


def _is_count(cell: str) -> bool:
    """Does a 64-bit integer hold it?"""
    return cell.isascii() and cell.isdigit() and len(cell) < 19
