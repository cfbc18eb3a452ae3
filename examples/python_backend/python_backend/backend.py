"""The backend: what `whence.building.backend` asks for, and no more."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from python_backend.render import render
from whence.building.backend import (
    Backend,
    CodeGenerator,
    DeviceRow,
    KernelCode,
    Lowered,
    Progress,
    Rendered,
)
from whence.building.location import Location
from whence.building.program import Plan, Program, ReferenceStep
from whence.building.program_parts import (
    details_of,
    input_blocks,
    operand_locations,
    output_blocks,
)
from whence.building.weights import Weights
from whence.codegen.emit import KernelUnit
from whence.codegen.functions import KernelFunction
from whence.errors import UnsupportedError
from whence.kernels.ir import Kernel
from whence.kernels.tile import Tile
from whence.ops.definition import Value
from whence.passes.preferences import Preferences
from whence.runtime.host_steps import HostSteps
from whence.runtime.profiler import Profiler


class Operand(NamedTuple):
    """Where an operand of a kernel lies, and how it is seen there."""

    location: Location
    dtype: np.dtype[np.generic]
    elements: int


class Call(NamedTuple):
    """A kernel and its operands."""

    number: int
    function: Callable[..., None]
    tasks: int
    operands: tuple[Operand, ...]


class PythonProgram(Program):
    """A program that knows its calls, in order, and the reference steps between them."""

    __slots__ = ("calls",)
    calls: tuple[Call | ReferenceStep, ...]


class PythonGenerator(CodeGenerator):
    @property
    def preferences(self) -> Preferences:
        # There are no vectors to fill, so channels stay where they are; no kernel for attention as
        # a whole; and branches stay with the host, so that no step has a guard.
        return Preferences(
            channel_block=None,
            without=frozenset({"recognise_attention", "flatten_branches"}),
            concat_in_place=False,
        )

    @property
    def tile(self) -> Tile:
        return Tile(rows=1, vectors=1, lanes=1, cache_bytes=1 << 20, transforms=False)

    def render(self, kernels: Sequence[Kernel], origins: Sequence[Sequence[str]]) -> Rendered:
        code: list[KernelCode | None] = []
        refused: dict[int, str] = {}
        functions: dict[str, KernelFunction] = {}
        for number, (kernel, names) in enumerate(zip(kernels, origins, strict=True)):
            try:
                text = render(kernel, "SYMBOL")
            except UnsupportedError as error:
                refused[number] = str(error)
                code.append(None)
                continue
            symbol = f"kernel_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
            comment = "# " + " + ".join(names).replace("\n", " ")
            functions.setdefault(
                symbol, KernelFunction(symbol, f"{comment}\n{text.replace('SYMBOL', symbol)}")
            )
            code.append(KernelCode(symbol))
        source = "\n".join(["import numpy as np", *(each.text for each in functions.values())])
        units = (KernelUnit("kernels", source, (), tuple(functions.values())),)
        return Rendered(code, units, refused)

    def assemble(self, lowered: Lowered, progress: Progress | None) -> PythonProgram:
        graph, layout, (unit,) = lowered.graph, lowered.layout, lowered.rendered.units
        built: dict[str, Any] = {}
        exec(compile(unit.source, "<kernels>", "exec"), built)
        weights = Weights()
        calls: list[Call | ReferenceStep] = []
        for number, step, code, guards in lowered.steps:
            assert not guards
            if code is None or step.kernel is None:
                # A group whose kernel was refused is divided into its operators: one a step.
                calls.append(ReferenceStep(number, step.members[0].id))
                continue
            places = operand_locations(lowered, step, weights)
            operands = [
                Operand(place, param.dtype.numpy, param.elements)
                for place, param in zip(places, step.kernel.params, strict=True)
            ]
            calls.append(Call(number, built[code.symbol], step.kernel.tasks, tuple(operands)))
        if graph.variables:
            raise UnsupportedError("the python engine runs no models with state")
        plan = Plan(
            input_blocks(graph, layout),
            output_blocks(graph, layout),
            actions=(),
            arena_bytes=layout.memory.arena_bytes,
        )
        program = PythonProgram(plan, weights.finish(), None, details_of(lowered))
        program.calls = tuple(calls)
        return program


class PythonInstance:
    """Memory of one run at a time, and the run itself."""

    def __init__(self, program: PythonProgram) -> None:
        self.program = program
        self._arena = np.zeros(program.plan.arena_bytes, np.uint8)

    def run(self, inputs: Sequence[Value], profiler: Profiler | None) -> list[Value]:
        host = HostSteps.for_run(self.program, self._arena, inputs)
        for call in self.program.calls:
            if isinstance(call, ReferenceStep):
                host.do(call, profiler)
                continue
            begin = time.monotonic_ns()
            arrays = [host.array(*operand) for operand in call.operands]
            call.function(0, call.tasks, *arrays)
            if profiler is not None:
                profiler.note(begin, time.monotonic_ns(), call.number)
        return host.results()


class PythonBackend(Backend):
    """Runs kernels one after the other, in this process."""

    kind = "python"
    threads = 1

    @classmethod
    def devices(cls) -> list[DeviceRow]:
        return [DeviceRow("this process", 1, driver="Python")]

    def generator(self) -> PythonGenerator:
        return PythonGenerator()

    def instance(self, program: Program) -> PythonInstance:
        assert isinstance(program, PythonProgram)
        return PythonInstance(program)

    def run(
        self,
        instance: PythonInstance,
        inputs: Sequence[Value],
        *,
        queue: Any = None,
        profiler: Any = None,
        state: Any = None,
        out: Sequence[Value] | None = None,
    ) -> list[Value]:
        return instance.run(inputs, profiler)

    def profiler(self) -> Profiler:
        return Profiler()
