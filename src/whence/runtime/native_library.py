"""The run-time library in C, and its structures as Python sees them."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from whence.building.native_code import NativePlan
from whence.codegen.toolchain import Toolchain, Unit
from whence.errors import WhenceError

NO_MEMORY, FAULT = -1, -2
"""What a run returns that did not get to its end, as in whence_runtime.h."""


class Memory(ctypes.Structure):
    """What a run works on: addresses, and addresses of arrays of addresses."""

    _fields_ = (
        ("arena", ctypes.c_void_p),
        ("weights", ctypes.c_void_p),
        ("inputs", ctypes.c_void_p),
        ("outputs", ctypes.c_void_p),
        ("state", ctypes.c_void_p),
        ("next", ctypes.c_void_p),
        ("pointers", ctypes.c_void_p),
        ("threads", ctypes.c_int64),
    )


class Profiler(ctypes.Structure):
    _fields_ = (
        ("samples", ctypes.c_void_p),
        ("capacity", ctypes.c_uint64),
        ("written", ctypes.c_uint64),
        ("times", ctypes.c_void_p),
        ("times_capacity", ctypes.c_uint64),
        ("execution", ctypes.c_uint64),
        ("busy", ctypes.c_void_p),
        ("workers", ctypes.c_uint64),
        ("first_step", ctypes.c_uint64),
    )


Addresses = ctypes.Array[ctypes.c_void_p]


def room_for(count: int) -> Addresses:
    """An array for so many addresses, which no call finds empty."""
    return (ctypes.c_void_p * max(count, 1))()


def address_of(array: Any) -> int:
    """Where the elements of a dense array lie."""
    try:
        # A quarter of what `array.ctypes.data` takes, which for small models is much of a run.
        return ctypes.addressof(ctypes.c_char.from_buffer(array))
    except (TypeError, ValueError):
        # Read only, empty, or of a type that buffers do not know.
        return int(array.ctypes.data)


def runtime_unit() -> Unit:
    """The source of the run-time library."""
    folder = Path(__file__).parent / "native"
    header = (folder / "whence_runtime.h").read_text(encoding="utf-8")
    return Unit(
        "whence_runtime",
        (folder / "whence_runtime.c").read_text(encoding="utf-8"),
        (("whence_runtime.h", header),),
    )


class NativeRuntime:
    """The library, loaded: a thread pool and the function that runs a plan."""

    def __init__(self, toolchain: Toolchain) -> None:
        self._library = ctypes.CDLL(str(toolchain.build_library([runtime_unit()])))
        void = ctypes.c_void_p
        self._library.wh_pool_create.restype = void
        self._library.wh_pool_create.argtypes = (ctypes.c_int32, ctypes.c_int64)
        self._library.wh_pool_destroy.argtypes = (void,)
        self._library.wh_pool_destroy.restype = None
        self._library.wh_pool_threads.argtypes = (void,)
        self._library.wh_pool_threads.restype = ctypes.c_int32
        self._library.wh_pool_reserve.argtypes = (void, ctypes.c_int64)
        self._library.wh_run.argtypes = (void, ctypes.c_int64, void, void, void)
        self._library.wh_run.restype = ctypes.c_int64
        self._library.wh_now.restype = ctypes.c_uint64
        self._library.wh_noting_ns.restype = ctypes.c_uint64
        self._run = self._library.wh_run

    def create_pool(self, threads: int) -> int:
        pool = self._library.wh_pool_create(threads, 0)
        if not pool:
            raise WhenceError(f"cannot start {threads} threads; try fewer with --threads")
        return int(pool)

    def pool_threads(self, pool: int) -> int:
        """How many threads the pool has, which may be fewer than were asked for."""
        return int(self._library.wh_pool_threads(pool))

    def destroy_pool(self, pool: int) -> None:
        self._library.wh_pool_destroy(pool)

    def reserve(self, pool: int, scratch_bytes: int) -> None:
        if self._library.wh_pool_reserve(pool, scratch_bytes):
            raise WhenceError(
                f"there is no memory for {scratch_bytes} bytes for each thread that kernels keep"
                " while they run"
            )

    def run(self, plan: NativePlan, first: int, pool: int, memory: Memory, profiler: object) -> int:
        """Runs the plan from step `first` on; returns the number of the step that the caller has to
        do, or the number of steps; `FAULT - i` when step i read an index outside its axis.
        """
        reached: int = self._run(ctypes.byref(plan), first, pool, ctypes.byref(memory), profiler)
        if reached == NO_MEMORY:
            raise WhenceError("there is no memory left for what kernels keep while they run")
        return reached

    def now(self) -> int:
        return int(self._library.wh_now())

    def noting_ns(self) -> int:
        """What it takes to note one step of a profiled run."""
        return int(self._library.wh_noting_ns())
