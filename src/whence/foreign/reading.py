"""Reading files that other tools wrote: what is wrong with one is an error of one line that names
it.
"""

from __future__ import annotations

import csv
import json
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from whence.errors import ModelError
from whence.graph.escaping import shorten

_LONGEST = 200
_DAMAGED = (
    *(LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError, EOFError),
    # An XML parser's error is a syntax error.
    *(SyntaxError, struct.error, zlib.error, csv.Error, zipfile.BadZipFile, DecodeError),
)


@contextmanager
def reading(path: Path, complaint: str) -> Iterator[None]:
    """Of a file that is not what it should be, the complaint says so: `is no ETRecord`."""
    try:
        yield
    except FileNotFoundError:
        raise ModelError(f"'{path}': no such file") from None
    except OSError as error:
        raise ModelError(f"cannot read '{path}': {error.strerror}") from None
    except _DAMAGED as error:
        why = shorten(str(error), _LONGEST)
        raise ModelError(f"'{path}' {complaint}: {type(error).__name__} {why}") from error


def read_json(path: Path) -> Any:
    """What is in a JSON file. Names in it may be of any bytes."""
    with reading(path, "is not JSON"):
        return json.loads(path.read_text(encoding="utf-8", errors="replace"))
