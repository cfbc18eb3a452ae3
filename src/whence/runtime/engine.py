"""Engines: what a model runs on."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from whence.building.tuning_records import TuningRecords
from whence.codegen.target import Target, usable_cores
from whence.codegen.toolchain import Toolchain
from whence.errors import InputError, UnsupportedError
from whence.runtime.native_library import NativeRuntime
from whence.runtime.profiler import Profiler

if TYPE_CHECKING:
    from whence.building.build import Progress
    from whence.building.program import Program
    from whence.graph import Graph
    from whence.ops.binding import Port
    from whence.ops.definition import Value
    from whence.runtime.bodies import Bodies
    from whence.runtime.stream import Stream
    from whence.runtime.tune import Finding


class Engine:
    """A device that models are compiled for and run on: `Engine()` is this machine's processor,
    `Engine("opencl", 0)` its first OpenCL device.
    """

    kind: str
    index: int
    threads: int
    """How many of the device's cores work on a model."""
    gap: str
    """What time between the steps of a run is called."""
    reads_clock: bool
    """Is the clock read during a step, so that profiling is part of what it measures?"""

    def __new__(cls, kind: str = "cpu", *_args: Any, **_options: Any) -> Engine:
        if cls is not Engine:
            return super().__new__(cls)
        if kind == "cpu":
            return super().__new__(CpuEngine)
        if kind == "opencl":
            from whence.runtime.opencl.engine import OpenClEngine

            return super().__new__(OpenClEngine)
        raise UnsupportedError(f"there is no engine '{kind}'; there are cpu and opencl")

    if TYPE_CHECKING:

        def __init__(
            self,
            kind: str = "cpu",
            index: int = 0,
            threads: int = 0,
            toolchain: Toolchain | None = None,
            *,
            precise: bool = False,
        ) -> None: ...

    def build(self, graph: Graph, *, fusion: str, progress: Progress | None) -> Program:
        """A prepared graph as a program for this engine."""
        raise NotImplementedError

    def tune(self, graph: Graph, *, fusion: str, progress: Progress | None) -> Sequence[Finding]:
        """Time the kernels that a prepared graph could be built with, and remember the fastest for
        every build from now on.
        """
        raise UnsupportedError(f"only the cpu engine can be tuned, not {self.kind}")

    def instance(self, program: Program) -> Any:
        """The memory of one run of the program at a time."""
        raise NotImplementedError

    def state(self, program: Program) -> Any:
        """Memory for the variables of a program that has some, with their initial values."""
        raise NotImplementedError

    def adopt(self, port: Port, value: Value) -> Value:
        """What stands for an input in a run that is no array of the host, but in memory of this
        engine's device; `None` for anything else.
        """
        return None

    def run(
        self,
        instance: Any,
        inputs: Sequence[Value],
        stream: Stream | None,
        state: Any = None,
        out: Sequence[Value] | None = None,
    ) -> list[Value]:
        """One run: the outputs for these inputs. Waits until they are there. `state` is what
        `state` made, where the program has variables; the caller holds its lock. `out` is memory of
        the device that outputs are to be written to, or `None`, for each.
        """
        raise NotImplementedError

    def queue(self, *, profiling: bool) -> Any:
        """What a stream gives the device its commands by; `None` where there is no such thing."""
        raise NotImplementedError

    def profiler(self) -> Profiler:
        """A profiler for a stream."""
        raise NotImplementedError


class CpuEngine(Engine):
    """The processor, and the threads to use on it. Models compiled for an engine share its thread
    pool.

    `precise` leaves out matrix units, which make float32 products of bfloat16 halves: faster, and
    less exact. They are not used either for a model
    whose outputs would show it (see `runtime/reduced_precision.py`).
    """

    kind = "cpu"
    gap = "dispatch"
    reads_clock = True

    def __init__(
        self,
        kind: str = "cpu",
        index: int = 0,
        threads: int = 0,
        toolchain: Toolchain | None = None,
        *,
        precise: bool = False,
    ) -> None:
        if index != 0:
            raise InputError(f"engine {kind} has index 0 only, not {index}")
        if not isinstance(threads, int) or threads < 0:
            raise InputError(f"{threads} threads make no sense; 0 uses every core")
        self.index = index
        if precise:
            toolchain = Toolchain(
                (toolchain.target if toolchain is not None else Target.default()).precise()
            )
        self.toolchain = toolchain if toolchain is not None else Toolchain()
        self.runtime = NativeRuntime(self.toolchain)
        self.pool = self.runtime.create_pool(threads or usable_cores())
        # As many as there are, the caller of a run among them.
        self.threads = self.runtime.pool_threads(self.pool)
        self.tuned = TuningRecords(self.toolchain, self.threads)
        self._bodies: weakref.WeakKeyDictionary[Program, Bodies] = weakref.WeakKeyDictionary()
        self._making_bodies = threading.Lock()
        # At exit a run may still be on its way, and the system takes the threads back by itself.
        weakref.finalize(self, self.runtime.destroy_pool, self.pool).atexit = False

    @property
    def target(self) -> Target:
        return self.toolchain.target

    def build(self, graph: Graph, *, fusion: str, progress: Progress | None) -> Program:
        from whence.runtime.reduced_precision import build_with_precision_trial

        return build_with_precision_trial(graph, self, fusion=fusion, progress=progress)

    def tune(self, graph: Graph, *, fusion: str, progress: Progress | None) -> Sequence[Finding]:
        from whence.runtime.tune import tune

        return tune(graph, self, fusion=fusion, progress=progress)

    def instance(self, program: Program) -> Any:
        from whence.runtime.instance import Instance

        return Instance(program, self)

    def bodies(self, program: Program) -> Bodies:
        """The bodies of the program's loops and conditions, compiled as they are needed."""
        from whence.runtime.bodies import Bodies

        graph = program.graph
        with self._making_bodies:
            if program not in self._bodies:
                self._bodies[program] = Bodies(graph, self)
            return self._bodies[program]

    def state(self, program: Program) -> Any:
        from whence.runtime.state_memory import StateMemory

        return StateMemory(program)

    def run(
        self,
        instance: Any,
        inputs: Sequence[Value],
        stream: Stream | None,
        state: Any = None,
        out: Sequence[Value] | None = None,
    ) -> list[Value]:
        if out is not None:
            raise InputError(
                "the cpu engine makes arrays for outputs by itself; out= is for memory of a device"
            )
        made: list[Value] = instance.run(inputs, None if stream is None else stream.profiler, state)
        return made

    def queue(self, *, profiling: bool) -> Any:
        return None

    def profiler(self) -> Profiler:
        return Profiler()
