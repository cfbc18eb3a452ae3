"""The CSV inside a table element: written as Python's csv module writes it for Vela, read from both
of Vela's cores.

Reading is by hand because it must not fail: cells may be of any length (the csv module has a limit,
and it is global), quotes may be missing.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from whence.debugdb.rows import Cell
from whence.errors import ModelError

_CELL = re.compile(r'[ \t]*+"([^"]*+(?:""[^"]*+)*+)"([^,\n]*+)(,|\n|\Z)|([^,\n]*+)(,|\n|\Z)')
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}", re.ASCII)


def write_csv(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """Text quoted, numbers bare, lines ended by CRLF; what is absent is an empty text."""
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def read_csv(text: str) -> Iterator[list[str]]:
    """The rows, as cells; lines without any are left out. Line ends are LF, as an XML parser gives
    them.

    A quote that nothing closes is an ordinary character, and so is what follows a closing quote
    before the comma.
    """
    row: list[str] = []
    plain = True
    position = 0
    while position < len(text):
        found = _CELL.match(text, position)
        assert found is not None  # the second half matches anything
        quoted, tail, end, bare, bare_end = found.groups()
        if bare is None:
            row.append(quoted.replace('""', '"') + tail.rstrip(" \t\r"))
            plain = False
        else:
            row.append(bare.strip(" \t\r"))
            end = bare_end
        position = found.end()
        if end == ",":
            if position == len(text):
                row.append("")
            continue
        if len(row) > 1 or not plain or row[0]:
            yield row
        row, plain = [], True
    if row:
        yield row


def read_csv_file(path: Path, most_bytes: int, what: str) -> list[list[str]]:
    """The rows of a file that somebody gives, which is larger than any `what` is beyond a size."""
    try:
        if path.stat().st_size > most_bytes:
            raise ModelError(f"'{path}' is larger than {most_bytes >> 20} MB, too large for {what}")
        with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
            return list(csv.reader(file))
    except OSError as error:
        raise ModelError(f"'{path}' cannot be read: {error.strerror or error}") from error
    except csv.Error as error:
        raise ModelError(f"'{path}' is not a CSV file: {error}") from error


def is_integer(cell: str) -> bool:
    """Is the cell a number of 64 bits that is written as Python would write it?"""
    return _INTEGER.fullmatch(cell) is not None
