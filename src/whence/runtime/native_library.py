"""The run-time library in C, and its structures as Python sees them."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from whence.building.native_code import NativePlan, NativeSlot
from whence.codegen.toolchain import SourceUnit, Toolchain
from whence.errors import WhenceError

NO_MEMORY, FAULT = -1, -2
"""What a run returns that did not get to its end, as in whence_runtime.h."""
GOES_ON, IS_OVER = 0, 1
"""What iterations of a loop return, as in whence_loop.h."""


class NativeMemory(ctypes.Structure):
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


class NativeProfiler(ctypes.Structure):
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


class Carried(ctypes.Structure):
    """What an iteration of a loop hands to the next."""

    _fields_ = (
        ("input", ctypes.c_int32),
        ("output", ctypes.c_int32),
        ("buffers", ctypes.c_void_p * 2),
    )


class NativeRows(ctypes.Structure):
    """What lies in rows, one for each iteration of a loop."""

    _fields_ = (
        ("first", ctypes.c_void_p),
        ("stride", ctypes.c_int64),
        ("is_output", ctypes.c_int32),
        ("index", ctypes.c_int32),
    )


class OutputCopy(ctypes.Structure):
    """An output of a loop's body that no step writes where it belongs."""

    _fields_ = (("source", NativeSlot), ("output", ctypes.c_int32), ("bytes", ctypes.c_int64))


class NativeLoop(ctypes.Structure):
    _fields_ = (
        ("body", ctypes.POINTER(NativePlan)),
        ("memory", ctypes.POINTER(NativeMemory)),
        ("inputs", ctypes.c_void_p),
        ("outputs", ctypes.c_void_p),
        ("carried", ctypes.POINTER(Carried)),
        ("rows", ctypes.POINTER(NativeRows)),
        ("copies", ctypes.POINTER(OutputCopy)),
        ("n_carried", ctypes.c_int64),
        ("n_rows", ctypes.c_int64),
        ("n_copies", ctypes.c_int64),
        ("condition", ctypes.c_int64),
        ("iteration", ctypes.c_int64),
    )


Addresses = ctypes.Array[ctypes.c_void_p]


def address_array(count: int) -> Addresses:
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


# A source defines what it wants of the system's headers before it includes any, so those come
# first.
_RUNTIME = ("whence_cores", "whence_pool", "whence_runtime", "whence_loop")


def runtime_unit() -> SourceUnit:
    """The run-time library's source in one unit: starting a compiler takes longest."""
    folder = Path(__file__).parent / "native"

    def text(name: str) -> str:
        return (folder / name).read_text(encoding="utf-8")

    return SourceUnit(
        "whence_runtime",
        "".join(text(f"{name}.c") for name in _RUNTIME),
        tuple((f"{name}.h", text(f"{name}.h")) for name in _RUNTIME),
    )


_POINTER, _INT, _LONG, _NS = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_uint64
_FUNCTIONS: tuple[tuple[Any, ...], ...] = (
    ("wh_pool_create", _POINTER, _INT, _LONG),
    ("wh_pool_destroy", None, _POINTER),
    ("wh_pool_threads", _INT, _POINTER),
    ("wh_pool_reserve", _INT, _POINTER, _LONG),
    ("wh_run", _LONG, _POINTER, _LONG, _POINTER, _POINTER, _POINTER),
    ("wh_run_iterations", _LONG, _POINTER, _LONG, _NS, _POINTER, _POINTER),
    ("wh_now", _NS),
    ("wh_noting_ns", _NS),
)
"""Each by name, with what it returns and takes."""


class NativeRuntime:
    """The library, loaded: a thread pool and the function that runs a plan."""

    def __init__(self, toolchain: Toolchain) -> None:
        self._library = ctypes.CDLL(str(toolchain.build_library([runtime_unit()])))
        for name, made, *given in _FUNCTIONS:
            function = getattr(self._library, name)
            function.restype, function.argtypes = made, given
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

    def run(
        self, plan: NativePlan, first: int, pool: int, memory: NativeMemory, profiler: object
    ) -> int:
        """Runs the plan from step `first` on; returns the number of the step that the caller has to
        do, or the number of steps; `FAULT - i` when step i read an index outside its axis.
        """
        reached: int = self._run(ctypes.byref(plan), first, pool, ctypes.byref(memory), profiler)
        return _with_memory(reached)

    def run_iterations(
        self, loop: NativeLoop, last: int, until: int, pool: int, profiler: object
    ) -> int:
        """Runs iterations until `last` are done, or the monotonic clock shows `until`; returns
        `GOES_ON`, `IS_OVER`, or `FAULT - i` when step i of the body read an index outside its axis.
        """
        return _with_memory(
            self._library.wh_run_iterations(ctypes.byref(loop), last, until, pool, profiler)
        )

    def now(self) -> int:
        return int(self._library.wh_now())

    def noting_ns(self) -> int:
        """What it takes to note one step of a profiled run."""
        return int(self._library.wh_noting_ns())


def _with_memory(reached: int) -> int:
    if reached == NO_MEMORY:
        raise WhenceError("there is no memory left for what kernels keep while they run")
    return reached
