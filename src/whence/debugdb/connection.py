"""What connections to DuckDB have in common: they load nothing, and take a path as a path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

CONFINED: Mapping[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "python_enable_replacements": False,
}
"""Settings: no extension is fetched or loaded, and no name in SQL means a variable of Python."""


def pattern_free(path: Path) -> str:
    """A path as `read_parquet` takes it, which otherwise sees patterns in it."""
    return re.sub(r"([*?\[])", r"[\1]", str(path))


def quoted(path: Path | str) -> str:
    """A path, or other text, as a literal in SQL."""
    return "'" + str(path).replace("'", "''") + "'"
