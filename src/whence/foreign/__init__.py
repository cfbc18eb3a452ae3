"""Profiles of other engines, in the operators of the user's file.

An engine runs in a process of its own, with its own profiler; its kernels are attributed to the
operators of the file by the names that it kept (`regions`), which is checked (`checks`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whence.foreign.engines import available
    from whence.foreign.run import profile

__all__ = ["available", "profile"]

_PLACES = {"available": "whence.foreign.engines", "profile": "whence.foreign.run"}


def __getattr__(name: str) -> Any:
    # The processes that run engines import this package, and are to load nothing else.
    import importlib

    if name not in _PLACES:
        raise AttributeError(f"module 'whence.foreign' has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)
