"""Reading a file's bytes, and keeping the garbage collector out of the way meanwhile."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from whence.errors import ModelError, WhenceError
from whence.frontends.naming import quoted


def content(path: Path) -> bytes:
    """The bytes of a model file."""
    with opened(path) as file:
        return file.readall()


@contextmanager
def opened(path: Path) -> Iterator[FileIO]:
    """A model file, to be read in a `with`."""
    try:
        file = path.open("rb", buffering=0)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    with file:
        try:
            yield file
        except OSError as error:
            raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError | ValueError) -> ModelError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return ModelError(f"cannot read {quoted(str(path))}: {reason}")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Where a model file is written, and what belongs to it."""
    try:
        yield
    except OSError as error:
        raise WhenceError(f"cannot write {quoted(str(path))}: {error.strerror or error}") from None


@contextmanager
def without_collection() -> Iterator[None]:
    """No garbage collection meanwhile: where a million nodes are made or changed and few are
    garbage, looking for it takes most of the time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            # What was made is old now. Without that it would all be looked through at once.
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()
