"""Code for processors: kernels as C, compiled into a library whose functions a plan calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from whence.building.aligned_memory import ALIGNMENT
from whence.building.arena import Planner, plan_arena, side_by_side
from whence.building.backend import (
    CodeGenerator,
    KernelCode,
    Lowered,
    LoweredStep,
    Progress,
    Rendered,
)
from whence.building.build import build
from whence.building.location import Location
from whence.building.machine_record import measured
from whence.building.native_code import Library
from whence.building.nominal_rates import nominal_rates
from whence.building.packed_weights import PackedWeights
from whence.building.plan_template import (
    PlanTemplate,
    StepGuard,
    StepTemplate,
    WorkRates,
    dims_location,
    plan_at,
)
from whence.building.program import Program
from whence.building.program_parts import (
    copies_of,
    details_of,
    dimensions_of_graph,
    input_blocks,
    location_of,
    operand_locations,
    output_blocks,
)
from whence.building.program_template import ProgramTemplate
from whence.building.redzones import watched_bytes
from whence.building.variables import variables_of
from whence.building.weights import Weights
from whence.codegen.compile_ahead import CompileAhead
from whence.codegen.emit import NO_KERNELS, emit
from whence.codegen.target import Feature
from whence.codegen.toolchain import Toolchain
from whence.graph import Graph
from whence.kernels.choice import NO_CHOICES, Choices
from whence.kernels.ir import Kernel
from whence.kernels.tile import AVX2, AVX512, NEON, SSE, Tile
from whence.passes.preferences import Preferences
from whence.rates import ArithmeticUnit, MachineRates
from whence.types import TensorType

# Slices cost up to a tenth of a kernel's time, windows over few rows most. Where the third-level
# cache is half as fast as the second, that is more than is gained.
_SLOW_BEYOND = 3.0
# A float32 product is made of so many of bfloat16.
_BF16_PRODUCTS = 3
# What a piece of work takes that is worth handing to another thread: fetching it from there costs a
# few cache lines that go from core to core.
_PIECE_NS = 2_000
# A run that takes less than so many wake-ups, by a reckoning that counts weights as far away, is
# over by the time the others are awake. However long they take: where calls follow each other, they
# do not sleep.
_WAKE_UPS, _LONGEST_ALONE_NS = 4, 250_000


def tile_for(toolchain: Toolchain, threads: int = 1, *, bf16x2: bool = False) -> Tile:
    """The register tile of the toolchain's target, for kernels that so many threads share; with
    `bf16x2`, its matrix units too, if it has them.
    """
    narrow = NEON if toolchain.target.vector_registers == 32 else SSE
    base = {16: AVX512, 8: AVX2}.get(toolchain.target.lanes, narrow)
    tile = replace(base, cache_bytes=toolchain.target.l2, threads=threads)
    rates = measured(toolchain)
    if rates is not None:
        tile = replace(tile, memory_bytes=rates.bytes_per_cycle(rates.levels[-1], threads))
    has_units = toolchain.target.has(Feature.AMX_TILE, Feature.AMX_BF16, Feature.AVX512_BF16)
    return replace(
        tile,
        bf16x2=bf16x2 and has_units,
        # Threads that share each kernel would have to wait for each other at every slice.
        interleaved=threads == 1 and (rates is None or _is_slow_beyond_l2(rates)),
    )


def _is_slow_beyond_l2(rates: MachineRates) -> bool:
    """Does it pay to go through layers slice by slice, for the sake of what is still in the
    second-level cache? All cores may be busy so, each with a run of its own.
    """
    near, beyond = (level.bandwidth.all for level in rates.levels[1:3])
    return near > _SLOW_BEYOND * beyond


@dataclass(frozen=True, slots=True)
class CpuGenerator(CodeGenerator):
    """For the processor of a toolchain. Kernels are divided for `threads` threads; any number of
    them can run the program.
    """

    toolchain: Toolchain
    threads: int = 1
    choices: Choices = field(default_factory=lambda: NO_CHOICES)
    """By problem, which kernels to take; for other problems the cost model chooses."""
    load: bool = True
    """Without it, the code is made to be exported: it is neither linked nor loaded."""
    bf16x2: bool = False
    """May float32 products be made of bfloat16 ones (see `kernels/bf16x2.py`)? Whether the outputs
    show it is for the caller to see.
    """
    channel_block: int | None = 16
    """Channels that convolutions work on at a time: a vector of AVX-512, two of AVX2, four of
    NEON.
    """

    @property
    def preferences(self) -> Preferences:
        return Preferences(channel_block=self.channel_block, threads=self.threads)

    @property
    def tile(self) -> Tile:
        return tile_for(self.toolchain, self.threads, bf16x2=self.bf16x2)

    @property
    def plan_arena(self) -> Planner:
        return side_by_side if self.toolchain.sanitize else plan_arena

    def render(self, kernels: Sequence[Kernel], origins: Sequence[Sequence[str]]) -> Rendered:
        ahead = CompileAhead(self.toolchain, NO_KERNELS) if self.load else None
        emitted = emit(kernels, origins, None if ahead is None else ahead.add)
        code = [KernelCode(symbol) if symbol else None for symbol in emitted.symbols]
        finish = None if ahead is None else ahead.finish
        return Rendered(code, emitted.units, emitted.refused, finish)

    def assemble(self, lowered: Lowered, progress: Progress | None) -> Program:
        # Constants are packed while the compiler runs.
        with ThreadPoolExecutor(1) as background:
            made = background.submit(self._compiled, lowered.rendered, progress)
            return self._assembled(lowered, made.result)

    def _compiled(self, rendered: Rendered, progress: Progress | None) -> Library | None:
        if not rendered.units or not self.load:
            return None
        if rendered.finish_compiling is not None:
            rendered.finish_compiling(progress)
        return Library(self.toolchain.build_library(rendered.units, progress=progress))

    def _assembled(self, lowered: Lowered, compiled: Callable[[], Library | None]) -> Program:
        graph, layout = lowered.graph, lowered.layout
        dimensions = dimensions_of_graph(graph)
        weights = Weights(ALIGNMENT if self.toolchain.sanitize else 0)
        template = PlanTemplate(
            inputs=input_blocks(graph, layout),
            outputs=output_blocks(graph, layout),
            steps=tuple(_step_template(lowered, each, weights) for each in lowered.steps),
            rates=work_rates(self.toolchain),
            arena=layout.blocks,
            arena_bytes=layout.memory.arena_bytes,
            variables=variables_of(graph, layout, weights),
            dimensions=() if dimensions is None else tuple(dimensions.sizes),
            chains=lowered.chains,
        )
        details = details_of(lowered, copies_of(graph, layout, weights))
        block = weights.finish()
        if self.toolchain.sanitize:
            block = PackedWeights.of(watched_bytes(block.nbytes, weights.used, block.block))
        if lowered.weights_ready is not None:
            lowered.weights_ready(block)
        library = compiled()
        if dimensions is not None:
            whole = ProgramTemplate(
                dimensions,
                {
                    node.name: node.type.static_shape if isinstance(node.type, TensorType) else None
                    for node in graph.inputs
                },
                template,
                details,
                self.plan_arena,
            )
            return whole.program(dimensions.sizes, block, library)
        return Program(plan_at(template, {}, library), block, library, details)


def _step_template(lowered: Lowered, each: LoweredStep, weights: Weights) -> StepTemplate:
    """What a step takes; its constants are packed on the way."""
    number, step, code, guards = each
    made = StepTemplate(number, node=step.members[0].id)
    operands: list[Location] = []
    if step.kernel is not None:
        made = _kernel_template(number, "" if code is None else code.symbol, step.kernel)
        operands = operand_locations(lowered, step, weights)
        if step.kernel.dimensions:
            operands.append(dims_location(len(lowered.graph.inputs)))
    conditions = (
        StepGuard(
            location_of(lowered, guard.condition, weights),
            (guard.condition.node, guard.condition.index),
            guard.wanted,
        )
        for guard in guards
    )
    return replace(made, operands=tuple(operands), guards=tuple(conditions))


def _kernel_template(number: int, symbol: str, kernel: Kernel) -> StepTemplate:
    """What a step takes that runs this kernel, wherever its operands lie."""
    return StepTemplate(
        number,
        symbol,
        tasks=kernel.tasks,
        flops=sum(member.flops for member in kernel.members),
        bytes=sum(member.bytes for member in kernel.members),
        unit=kernel.unit,
        is_gang=kernel.gang,
        scratch_bytes=kernel.scratch_bytes,
    )


def work_rates(toolchain: Toolchain) -> WorkRates:
    """How fast kernels of the toolchain are, as measured or as their kind should be, and what it
    takes to share work.
    """
    machine = measured(toolchain) or nominal_rates(toolchain.target)
    reached = {unit.value: machine.peak_of(unit, 1) * machine.reached for unit in ArithmeticUnit}
    reached[ArithmeticUnit.BF16] /= _BF16_PRODUCTS
    memory = machine.bandwidth_of(machine.levels[-1], 1)
    alone = min(_WAKE_UPS * machine.wake_ns, _LONGEST_ALONE_NS)
    return WorkRates(reached, memory, _PIECE_NS, alone)


def grain(kernel: Kernel, rates: WorkRates) -> int:
    """How many work items make a piece that is worth handing to another thread."""
    return _kernel_template(0, "", kernel).grain(rates)


def build_program(
    graph: Graph,
    toolchain: Toolchain,
    *,
    threads: int = 1,
    fusion: str = "dominator",
    choices: Choices = NO_CHOICES,
    progress: Progress | None = None,
    load: bool = True,
    bf16x2: bool = False,
) -> Program:
    """A prepared graph as a program for the processor of a toolchain."""
    generator = CpuGenerator(toolchain, threads, choices, load, bf16x2)
    return build(graph, generator, fusion=fusion, progress=progress)
