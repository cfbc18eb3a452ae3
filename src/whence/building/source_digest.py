"""What compiled models depend on besides the model: whence's own source, and the packages it
computes with.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from pathlib import Path

from whence.codegen.toolchain import installed_version

# Constants are folded, and operators restated, by what these packages compute.
_PACKAGES = ("numpy", "ml_dtypes", "onnx")
_SUFFIXES = (".py", ".c", ".h")
# No file of ours is as large, and a regular file is read at once.
_LARGEST = 1 << 17
_KERNEL_ROOMS = ("kernels", "codegen")


def source_digest() -> str:
    """Differs whenever a file of whence, a package it computes with, or Python does. Contents are
    read, not dates: they are small files.
    """
    digest = hashlib.sha256(sys.version.encode())
    for package in _PACKAGES:
        digest.update(f"{package} {_installed(package)}\n".encode())
    _update(digest, _root())
    return digest.hexdigest()


def kernel_digest() -> str:
    """Differs whenever the source does that kernels are made by."""
    digest = hashlib.sha256()
    for room in _KERNEL_ROOMS:
        _update(digest, os.path.join(_root(), room))  # noqa: PTH118  (as below)
    return digest.hexdigest()


def _root() -> str:
    return str(Path(__file__).resolve().parent.parent)


def _update(digest: hashlib._Hash, root: str) -> None:
    # File objects for hundreds of files, and as many small updates, are half of the time.
    content: list[bytes] = []
    for path in sorted(_files(root)):
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            text = os.read(handle, _LARGEST)
        finally:
            os.close(handle)
        content += (f"{path[len(root) :]} {len(text)}\n".encode(), text)
    digest.update(b"".join(content))


def _files(folder: str) -> list[str]:
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                found += _files(entry.path) if entry.name != "__pycache__" else []
            elif entry.name.endswith(_SUFFIXES):
                found.append(entry.path)
    return found


def _installed(package: str) -> str:
    spec = importlib.util.find_spec(package)
    folders = (spec.submodule_search_locations or ()) if spec is not None else ()
    return next((installed_version(package, Path(folder).parent) for folder in folders), "")
