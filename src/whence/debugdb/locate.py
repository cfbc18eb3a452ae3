"""Opening a debug database, whichever form it is in."""

from __future__ import annotations

from pathlib import Path

from whence.debugdb.store import read_duckdb, read_parquet
from whence.debugdb.tables import DebugDatabase
from whence.debugdb.vela_xml import read_xml
from whence.errors import ModelError


def read_database(path: Path) -> DebugDatabase:
    """Read XML of Vela or whence, a DuckDB file, a folder of Parquet files, or the database in a
    folder that a profile was saved to.

    What a file is, its first bytes tell, not its name.
    """
    if path.is_dir():
        return _in_folder(path)
    if not path.is_file():
        raise ModelError(f"'{path}': no such file")
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except OSError as error:
        raise ModelError(f"'{path}' cannot be read: {error.strerror or error}") from error
    if head[8:12] == b"DUCK":
        return read_duckdb(path)
    if head[:4] == b"PAR1":
        return read_parquet(path.parent)
    return read_xml(path)


def _in_folder(folder: Path) -> DebugDatabase:
    if (folder / "whence_format.parquet").is_file():
        return read_parquet(folder)
    for name in ("profile.duckdb", "debug.duckdb", "debug.xml"):
        if (folder / name).is_file():
            return read_database(folder / name)
    # `whence compile` leaves both forms of one database.
    stored = sorted(folder.glob("*.duckdb"))
    twins = {path.with_suffix(".xml") for path in stored}
    found = [*stored, *sorted(set(folder.glob("*_debug.xml")) - twins)]
    if not found:
        raise ModelError(
            f"'{folder}' holds no debug database: neither debug.xml nor *_debug.xml, *.duckdb or"
            " Parquet files of one"
        )
    if len(found) > 1:
        raise ModelError(
            f"'{folder}' holds {len(found)} debug databases; name one of them, such as"
            f" {found[0].name!r}"
        )
    return read_database(found[0])
