"""What a backend is, all of it: a `CodeGenerator`, which `build` asks, and a `Backend`, which runs
what was built.

    Engine("name", 1)              the registry (`runtime/registry.py`) finds the class `name`
      Backend(index=1)             opens the second device
    generator.preferences          asked before the passes run: block sizes, layouts, passes
    backend.best_program(build)    by one generator, or the best of several:
    build(graph, generator)        fuse, lower for `tile` and `choices`, plan memory, and
      generator.render(kernels)      text of the kernels, or why a kernel has none
      generator.assemble(lowered)    compile the text; the program that `run` understands
    backend.instance(program)      memory of one run at a time
    backend.run(instance, inputs)  on a queue, with a profiler, if the stream has them

A kernel that `render` refuses is no error: its operators run by their reference implementation, on
the host. `backends/cpu` and `backends/opencl` are the two that come with whence, and
`examples/python_backend` is the smallest that is of use. Others register a class by an entry point
of the group `whence.backends`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from whence.errors import InputError, UnsupportedError

if TYPE_CHECKING:
    import numpy as np

    from whence.building.arena import Planner
    from whence.building.memory_layout import MemoryLayout
    from whence.building.packed_weights import PackedWeights
    from whence.building.program import Chain, Program
    from whence.codegen.cache import Cache
    from whence.codegen.emit import KernelUnit
    from whence.fusion import FusedGraph
    from whence.graph import Graph
    from whence.graph.guards import Guards
    from whence.kernels.choice import Choices
    from whence.kernels.ir import Kernel
    from whence.kernels.lower import Step
    from whence.kernels.tile import Tile
    from whence.ops.binding import Port
    from whence.ops.definition import Value
    from whence.passes.preferences import Preferences

Progress = Callable[[str, int, int], None]
"""Called with what was compiled, how many units are done, and how many there are."""


class KernelCode(NamedTuple):
    """What a kernel is started by."""

    symbol: str
    """The function."""
    launch: Any = None
    """How it is started, where the backend wants to remember more than the kernel says."""


class Rendered(NamedTuple):
    """Kernels as text."""

    code: Sequence[KernelCode | None]
    """Of each kernel; `None` for one that was refused. Equal kernels may be one function."""
    units: tuple[KernelUnit, ...]
    """The text, for the compiler and for reports."""
    refused: Mapping[int, str]
    """By position: why a kernel has no form in this language."""
    finish_compiling: Callable[[Progress | None], None] | None = None
    """Waits for compilers that were started while kernels were being rendered, if any were."""


class LoweredStep(NamedTuple):
    """A step that runs, views are none: a kernel, or one operator by its reference."""

    number: int
    step: Step
    code: KernelCode | None
    """`None` for a reference step."""
    guards: Guards
    """What must hold for it to run."""


class Lowered(NamedTuple):
    """A graph as steps with memory, before anything is compiled."""

    graph: Graph
    fused: FusedGraph
    tile: Tile
    steps: tuple[LoweredStep, ...]
    layout: MemoryLayout
    rendered: Rendered
    chains: tuple[Chain, ...] = ()
    """Steps that are interleaved."""
    weights_ready: Callable[[PackedWeights], None] | None = None
    """To be told of the constants as soon as they are packed, while the compiler may still run."""


class CodeGenerator(ABC):
    """From a prepared graph to a program. Needs no device: code may be for another machine."""

    @property
    def preferences(self) -> Preferences:
        """What the passes are to do for it."""
        from whence.passes.preferences import Preferences

        return Preferences()

    @property
    @abstractmethod
    def tile(self) -> Tile:
        """Registers, caches and threads that kernels are divided for: what the cost model reckons
        with.
        """

    @property
    def choices(self) -> Choices:
        """By problem, which kernel to take, where the cost model is not to choose."""
        return {}

    @property
    def plan_arena(self) -> Planner:
        """Lays out the arena."""
        from whence.building.arena import plan_arena

        return plan_arena

    @abstractmethod
    def render(self, kernels: Sequence[Kernel], origins: Sequence[Sequence[str]]) -> Rendered:
        """The kernels as text. `origins` names, for each, the source operators it came from."""

    @abstractmethod
    def assemble(self, lowered: Lowered, progress: Progress | None) -> Program:
        """Compile what was rendered, pack constants, and make the program."""


class CacheIdentity(NamedTuple):
    """Where compiled models are cached for the next start, and what they depend on."""

    cache: Cache
    parts: Callable[[], tuple[str, ...]]
    """Everything of the device that can change a program; asked each time, as tuning changes it."""
    options: Mapping[str, Any]
    """What opens the same device in another process, besides `index`."""


class DeviceRow(NamedTuple):
    """A device as `whence devices` lists it."""

    name: str
    cores: int
    memory_bytes: int = 0
    driver: str = ""


class Backend(ABC):
    """A device, opened: builds programs for it and runs them."""

    kind: ClassVar[str]
    """What `Engine` calls it."""
    options: ClassVar[frozenset[str]] = frozenset()
    """Which of `threads`, `toolchain` and `precise` the constructor takes, besides `index`."""
    no_device: ClassVar[str] = ""
    """How to get a device, for machines that have none."""
    gap: ClassVar[str] = "dispatch"
    """What time between the steps of a run is called."""
    reads_clock: ClassVar[bool] = True
    """Is the clock read during a step, so that profiling is part of what it measures?"""
    opens_dimensions: ClassVar[bool] = False
    """Can it run programs whose sizes are known only when they are called (`Program.at`)? Else
    models are compiled for the sizes of each call.
    """
    threads: int
    """How many of the device's cores work on a model."""

    def __init__(self, index: int = 0, **options: Any) -> None:
        """Open a device, by its number in `devices`, with those of `options` that were given."""
        self.index = index

    # ---- which devices there are ----

    @classmethod
    @abstractmethod
    def devices(cls) -> Sequence[DeviceRow]:
        """The devices of this machine, by index. Raises `UnsupportedError` where something is
        missing that finds them.
        """

    def noting_ns(self) -> int:
        """What it takes to note one step of a profiled run, where that is part of what is measured
        of the step.
        """
        return 0

    # ---- building ----

    @abstractmethod
    def generator(self) -> CodeGenerator:
        """What makes programs for this device."""

    def best_program(self, graph: Graph, build: Callable[[CodeGenerator], Program]) -> Program:
        """The program of a prepared graph for this device. `build` makes one by a generator, of
        which a backend may try several.
        """
        return build(self.generator())

    def tune(self, graph: Graph, *, fusion: str, progress: Progress | None) -> Sequence[Any]:
        """Time the kernels that a prepared graph could be built with, and remember the fastest for
        every build from now on.
        """
        raise UnsupportedError(f"only the cpu engine can be tuned, not {self.kind}")

    def cache_identity(self) -> CacheIdentity | None:
        """`None` where compiled models are not cached."""
        return None

    # ---- running ----

    @abstractmethod
    def instance(self, program: Program) -> Any:
        """The memory of one run of the program at a time."""

    def native_iterations(self, instance: Any, roles: Any) -> Any:
        """What runs the iterations of a loop whose body this is an instance of, without coming back
        to Python for each of them (`runtime/iteration_roles.py`); why not, where nothing does.
        """
        return f"engine {self.kind} comes back to Python in each iteration"

    def why_reference(self, program: Program, node: int) -> str:
        """What runs have shown of why this reference step of a program takes the time it does;
        empty if no more than the program itself says.
        """
        return ""

    @abstractmethod
    def run(
        self,
        instance: Any,
        inputs: Sequence[Value],
        *,
        queue: Any = None,
        profiler: Any = None,
        state: Any = None,
        out: Sequence[Value] | None = None,
    ) -> list[Value]:
        """One run: the outputs for these inputs. Waits until they are there. `queue` and `profiler`
        are those of the stream, if it has them. `state` is what `state` made, where the program has
        variables; the caller holds its lock. `out` is memory of the device that outputs are to be
        written to, or `None`, for each.
        """

    def state(self, program: Program, bound: Mapping[str, np.ndarray] | None = None) -> Any:
        """Memory for the variables of a program that has some, with their initial values: a
        `runtime.state_memory.VariableMemory`. Those of `bound` lie in memory of the caller.
        """
        raise UnsupportedError(f"the {self.kind} engine runs no models with state")

    def adopt(self, port: Port, value: Value) -> Value:
        """What stands for an input in a run that is no array of the host, but in memory of this
        device; `None` for anything else.
        """
        return None

    def queue(self, *, profiling: bool) -> Any:
        """What a stream gives the device its commands by; `None` where there is no such thing."""
        return None

    def profiler(self) -> Any:
        """A profiler for a stream: a `runtime.profiler.Profiler`."""
        raise UnsupportedError(f"the {self.kind} engine does not profile")


def no_device_memory(kind: str, out: Sequence[Value] | None) -> None:
    """Raise `InputError` for `out=` on an engine that makes arrays for outputs by itself."""
    if out is not None:
        raise InputError(
            f"the {kind} engine makes arrays for outputs by itself; out= is for memory of a device"
        )
