"""Versions of whence to measure: this one, a checkout, or a wheel."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from whence.errors import InputError
from whence.fleet.cell import CURRENT
from whence.runtime.environment import source_commit, version_of


@dataclass(frozen=True, slots=True)
class Checkout:
    """Where a version of whence is imported from."""

    name: str
    """What the table calls it."""
    folder: Path | None = None
    """Comes first where Python looks for modules; `None` for the whence that runs this."""


def current() -> Checkout:
    """This version, by its number and, in a checkout, its commit."""
    commit = source_commit()
    return Checkout(f"{version_of('whence')}{f'+{commit}' if commit else ''}")


def find_version(text: str, unpacked: Path) -> Checkout:
    """`current`, a folder that holds a checkout, or a wheel, which is unpacked into a folder under
    `unpacked` (whence is pure Python; what it depends on is what is installed here).
    """
    if text == CURRENT:
        return current()
    path = Path(text)
    if path.is_dir():
        source = path / "src" if (path / "src" / "whence").is_dir() else path
        if not (source / "whence" / "__init__.py").is_file():
            raise InputError(f"'{text}' is no checkout of whence: there is no src/whence in it")
        commit = source_commit(source / "whence")
        return Checkout(commit or path.resolve().name, source.resolve())
    if path.suffix == ".whl" and path.is_file():
        return _from_wheel(path, unpacked)
    raise InputError(
        f"'{text}' is no version of whence: name '{CURRENT}', the folder of a checkout, or a wheel"
    )


def _from_wheel(path: Path, unpacked: Path) -> Checkout:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    folder = unpacked / digest
    if not folder.is_dir():
        try:
            with zipfile.ZipFile(path) as wheel, filled(folder) as part:
                wheel.extractall(part)
        except zipfile.BadZipFile as error:
            raise InputError(f"'{path}' is not a wheel: {error}") from error
    version = path.name.split("-")[1] if path.name.count("-") >= 2 else path.stem
    return Checkout(version, folder)


@contextlib.contextmanager
def filled(folder: Path) -> Iterator[Path]:
    """A folder to fill, which becomes `folder` when it is, unless another process was quicker."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".part-") as temporary:
        part = Path(temporary) / folder.name
        part.mkdir()
        yield part
        with contextlib.suppress(OSError):
            part.rename(folder)
