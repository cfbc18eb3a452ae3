"""Compiled kernels, and the plan of the run-time library that calls them: its C structures as
Python sees them.
"""

from __future__ import annotations

import _ctypes
import ctypes
import os
import weakref
from pathlib import Path

from whence.building.location import Location
from whence.errors import UnsupportedError

GANG = -1
"""The grain of a step whose workers meet, as in whence_runtime.h."""
LONGEST_CHAIN = 6
"""Steps of a chain at most, as in whence_runtime.h: what they make is in memory all at the same
time.
"""


class NativeSlot(ctypes.Structure):
    _fields_ = (("region", ctypes.c_int32), ("index", ctypes.c_int32), ("offset", ctypes.c_int64))

    @classmethod
    def of(cls, place: Location) -> NativeSlot:
        return cls(int(place.region), place.index, place.offset)


class NativeStep(ctypes.Structure):
    _fields_ = (
        ("kernel", ctypes.c_void_p),
        ("tasks", ctypes.c_int64),
        ("grain", ctypes.c_int64),
        ("first_slot", ctypes.c_int32),
        ("n_slots", ctypes.c_int32),
        ("n_guards", ctypes.c_int32),
        ("wanted", ctypes.c_uint32),
    )


class NativeRange(ctypes.Structure):
    _fields_ = (("step", ctypes.c_int64), ("begin", ctypes.c_int64), ("end", ctypes.c_int64))


class NativeChain(ctypes.Structure):
    _fields_ = (
        ("first", ctypes.c_int64),
        ("last", ctypes.c_int64),
        ("first_range", ctypes.c_int64),
        ("n_ranges", ctypes.c_int64),
    )


class NativePlan(ctypes.Structure):
    _fields_ = (
        ("steps", ctypes.POINTER(NativeStep)),
        ("slots", ctypes.POINTER(NativeSlot)),
        ("n_steps", ctypes.c_int64),
        ("n_slots", ctypes.c_int64),
        ("scratch_bytes", ctypes.c_int64),
        ("first_step", ctypes.c_int64),
        ("chains", ctypes.POINTER(NativeChain)),
        ("ranges", ctypes.POINTER(NativeRange)),
        ("n_chains", ctypes.c_int64),
    )


class Library:
    """Compiled kernels, loaded for as long as this is referenced."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # All its symbols are looked up now: a missing one is an error here, not in the middle
            # of a run.
            self._handle = _ctypes.dlopen(str(path), os.RTLD_NOW | os.RTLD_LOCAL)
        except OSError as error:
            raise UnsupportedError(f"the compiled code cannot be loaded here: {error}") from error
        # At exit a run may still be on its way, and the system takes everything back by itself.
        weakref.finalize(self, _ctypes.dlclose, self._handle).atexit = False

    def address(self, symbol: str) -> int:
        return _ctypes.dlsym(self._handle, symbol)
