"""The processor as a backend: a toolchain, the run-time library, and a pool of threads.

On the way of a warm start, so graphs and kernels are imported where they are used.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from whence.building.backend import Backend, CacheIdentity, DeviceRow, Progress, no_device_memory
from whence.building.machine_record import record_digest
from whence.building.tuning_records import TuningRecords
from whence.codegen.target import Target, usable_cores
from whence.codegen.toolchain import Toolchain
from whence.errors import InputError
from whence.runtime.engine import Engine
from whence.runtime.native_library import NativeRuntime
from whence.runtime.profiler import Profiler

if TYPE_CHECKING:
    import numpy as np

    from whence.backends.cpu.generator import CpuGenerator
    from whence.backends.cpu.instance import Instance
    from whence.backends.cpu.native_iterations import NativeIterations
    from whence.backends.cpu.tune import TunedProblem
    from whence.building.backend import CodeGenerator
    from whence.building.program import HasLazyDetails, Program
    from whence.graph import Graph
    from whence.ops.definition import Value
    from whence.runtime.bodies import Bodies
    from whence.runtime.iteration_roles import BodyRoles
    from whence.runtime.state_memory import StateMemory


class CpuBackend(Backend):
    """The processor, and the threads to use on it. Models compiled for it share its thread pool."""

    kind = "cpu"
    options = frozenset({"threads", "toolchain", "precise"})
    opens_dimensions = True

    def __init__(
        self,
        index: int = 0,
        threads: int = 0,
        toolchain: Toolchain | None = None,
        *,
        precise: bool = False,
    ) -> None:
        if index != 0:
            raise InputError(f"engine {self.kind} has index 0 only, not {index}")
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
        self.chooses_threads = not threads and self.threads > 1
        self.tuned = TuningRecords(self.toolchain, self.threads)
        self._bodies: weakref.WeakKeyDictionary[HasLazyDetails, Bodies] = (
            weakref.WeakKeyDictionary()
        )
        self._making_bodies = threading.Lock()
        # At exit a run may still be on its way, and the system takes the threads back by itself.
        weakref.finalize(self, self.runtime.destroy_pool, self.pool).atexit = False

    @classmethod
    def devices(cls) -> list[DeviceRow]:
        host = Target.default()
        features = ", ".join(sorted(host.features))
        return [DeviceRow(f"{host.arch} ({features})", host.cores, driver="whence's own code")]

    # ---- building ----

    def noting_ns(self) -> int:
        return self.runtime.noting_ns()

    def generator(self, *, bf16x2: bool = False) -> CpuGenerator:
        from whence.backends.cpu.generator import CpuGenerator

        return CpuGenerator(self.toolchain, self.threads, self.tuned.choices, bf16x2=bf16x2)

    def best_program(self, graph: Graph, build: Callable[[CodeGenerator], Program]) -> Program:
        from whence.backends.cpu.reduced_precision import try_reduced_precision

        return try_reduced_precision(graph, self, build)

    def tune(
        self, graph: Graph, *, fusion: str, progress: Progress | None
    ) -> Sequence[TunedProblem]:
        from whence.backends.cpu.tune import tune

        return tune(graph, self, fusion=fusion, progress=progress)

    def cache_identity(self) -> CacheIdentity | None:
        if type(self) is not CpuBackend:
            # What a class derived from this one does differently is not in the key, nor known to
            # the process that compiles.
            return None
        return CacheIdentity(
            self.toolchain.cache,
            # What was tuned or measured since may choose other kernels.
            lambda: (
                self.toolchain.key(),
                str(self.threads),
                self.tuned.digest,
                record_digest(self.toolchain),
            ),
            {"threads": self.threads, "toolchain": self.toolchain},
        )

    # ---- running ----

    def instance(self, program: Program) -> Instance:
        from whence.backends.cpu.instance import Instance

        return Instance(program, self)

    def run(
        self,
        instance: Instance,
        inputs: Sequence[Value],
        *,
        queue: Any = None,
        profiler: Any = None,
        state: Any = None,
        out: Sequence[Value] | None = None,
    ) -> list[Value]:
        no_device_memory(self.kind, out)
        return instance.run(inputs, profiler, state)

    def native_iterations(self, instance: Instance, roles: BodyRoles) -> NativeIterations | str:
        if roles not in instance.iterations:
            from whence.backends.cpu.native_iterations import native_iterations

            instance.iterations[roles] = native_iterations(instance, roles)
        return instance.iterations[roles]

    def why_reference(self, program: Program, node: int) -> str:
        found = self._bodies.get(program)
        return "" if found is None else found.why(node)

    def bodies(self, program: Program) -> Bodies:
        """The bodies of the program's loops and conditions, and its continuations, compiled as they
        are needed. Programs of the same code for different sizes share them.
        """
        from whence.runtime.bodies import Bodies
        from whence.runtime.body_graph import has_sizes_inside

        with self._making_bodies:
            if program not in self._bodies:
                owner: HasLazyDetails = program
                if program.template and not has_sizes_inside(program.template.details.graph):
                    owner = program.template
                found = self._bodies.get(owner) or Bodies(owner.details.graph, Engine.of(self))
                self._bodies[owner] = self._bodies[program] = found
            return self._bodies[program]

    def state(self, program: Program, bound: Mapping[str, np.ndarray] | None = None) -> StateMemory:
        from whence.runtime.state_memory import StateMemory

        return StateMemory(program, bound)

    def profiler(self) -> Profiler:
        return Profiler()
