"""Memory that was freed and that the C library holds back, given back to the system."""

from __future__ import annotations

import ctypes
import sys


def return_freed_memory() -> None:
    """After compiling, that is as much as all constants of the model: read, transposed and packed,
    they were copied several times over.

    Only glibc has a function for it. Other libraries give memory back by themselves, or cannot be
    told to.
    """
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "malloc_trim"):
        library.malloc_trim(0)
