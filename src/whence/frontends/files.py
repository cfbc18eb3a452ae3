"""What all readers do around the reading: get a file's bytes, and keep the garbage collector out of
the way.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from whence.errors import ModelError
from whence.frontends.naming import quoted


def content(path: Path) -> bytes:
    """The bytes of a model file."""
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ModelError(f"cannot read {quoted(str(path))}: {reason}") from None


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
            gc.enable()
