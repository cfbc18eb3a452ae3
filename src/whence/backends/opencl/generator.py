"""Code for OpenCL devices: kernels as OpenCL C, compiled by the device's driver."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from whence.backends.opencl.devices import require_pyopencl
from whence.backends.opencl.program import TRANSFERS, HostStep, LaunchStep, OpenClProgram
from whence.building.backend import (
    CodeGenerator,
    KernelCode,
    Lowered,
    LoweredStep,
    Progress,
    Rendered,
)
from whence.building.build import lower_graph
from whence.building.program import Details, Plan, ProgramStep
from whence.building.program_parts import details_of, input_blocks, operand_locations, output_blocks
from whence.building.variables import variables_of
from whence.building.weights import Weights
from whence.codegen.cache import Cache, cache_key, kept_if_possible
from whence.codegen.emit import KernelUnit
from whence.codegen.opencl.emit import TILE, emit_opencl
from whence.codegen.opencl.render_cl import Device
from whence.errors import UnsupportedError
from whence.graph import Graph
from whence.kernels.ir import Kernel
from whence.kernels.tile import Tile
from whence.passes.preferences import Preferences
from whence.provenance import Origin

if TYPE_CHECKING:
    from whence.backends.opencl.backend import OpenClBackend


PREFERENCES = Preferences(
    channel_block=TILE.lanes, without=frozenset({"split_at_run_time_sizes"}), concat_in_place=False
)
"""A device keeps every value in memory of its own."""
# What Clang says of a processor that is newer than it is.
_UNKNOWN_CPU = "unknown target CPU"
_NEWER_DRIVER = (
    "its compiler is older than this processor: install a newer driver (of PoCL, Debian's and"
    " Ubuntu's: apt install pocl-opencl-icd)"
)


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """A program before anything of it is on a device."""

    details: Details
    plan: Plan
    actions: tuple[LaunchStep | HostStep, ...]
    weights: Weights
    """The constants that kernels read; not finished, so that more can be placed."""
    initial: Weights
    """The initial values of variables."""


@dataclass(frozen=True, slots=True)
class OpenClGenerator(CodeGenerator):
    """OpenCL C for devices that can do this much; without a `device` to compile for, programs can
    be planned and exported only.
    """

    abilities: Device
    device: OpenClBackend | None = None

    @property
    def preferences(self) -> Preferences:
        return PREFERENCES

    @property
    def tile(self) -> Tile:
        return TILE

    def render(self, kernels: Sequence[Kernel], origins: Sequence[Sequence[str]]) -> Rendered:
        emitted = emit_opencl(kernels, origins, self.abilities)
        return Rendered(
            [None if each is None else KernelCode(each.symbol, each) for each in emitted.launches],
            (KernelUnit("kernels", emitted.source, (), emitted.functions),),
            emitted.refused,
        )

    def assemble(self, lowered: Lowered, progress: Progress | None) -> OpenClProgram:
        if self.device is None:
            raise UnsupportedError("kernels for no device in particular can only be exported")
        planned = plan_device(lowered)
        (unit,) = lowered.rendered.units
        built = _compile(self.device, unit.source) if unit.functions else None
        if progress is not None:
            progress(self.device.name, 1, 1)
        weights = planned.weights.finish().block
        return OpenClProgram(
            planned.plan,
            planned.details,
            built,
            planned.initial.finish().block,
            self.device.buffer(weights.nbytes, weights),
            planned.actions,
        )


def plan_opencl(graph: Graph, abilities: Device, *, fusion: str = "dominator") -> DevicePlan:
    """Fuse, lower and plan a prepared graph for devices that can do this much."""
    return plan_device(lower_graph(graph, OpenClGenerator(abilities), fusion=fusion))


def plan_device(lowered: Lowered) -> DevicePlan:
    """Steps as launches, with constants placed."""
    graph, layout = lowered.graph, lowered.layout
    # Initial values stay on the host, which writes them when the state is made or reset.
    weights, initial = Weights(), Weights()
    actions = tuple(_action(lowered, step, weights) for step in lowered.steps)
    copies = tuple(
        ProgramStep(
            len(lowered.steps) + extra, name, "copy", (), Origin(), (), "", residual=TRANSFERS
        )
        for extra, name in enumerate(("copy to the device", "copy from the device"))
    )
    plan = Plan(
        input_blocks(graph, layout),
        output_blocks(graph, layout),
        (),
        layout.memory.arena_bytes,
        0,
        0,
        variables_of(graph, layout, initial),
    )
    return DevicePlan(details_of(lowered, more=copies), plan, actions, weights, initial)


def _action(lowered: Lowered, each: LoweredStep, weights: Weights) -> LaunchStep | HostStep:
    number, step, code, guards = each
    if code is None:
        return HostStep(number, step.members[0].id, guards)
    graph, layout = lowered.graph, lowered.layout
    reads = tuple(ref for ref in step.inputs if not graph[layout.owner(ref).node].is_const)
    places = tuple(operand_locations(lowered, step, weights))
    return LaunchStep(number, code.launch, places, reads, guards)


def _compile(engine: OpenClBackend, source: str) -> Any:
    """The program, compiled or from the cache. A device's driver is part of the key: its binaries
    are good for nothing else.
    """
    cl = require_pyopencl()
    device = engine.device
    # Denormals and infinities behave as on the CPU; nothing else is relaxed.
    options = ["-cl-std=CL1.2", "-cl-mad-enable"]
    cache = Cache()
    key = cache_key("opencl", source, device.name, device.version, device.driver_version, *options)
    cached = cache.map(key)
    if cached is not None:
        # A binary that the driver no longer takes is compiled anew.
        with contextlib.suppress(cl.RuntimeError, cl.LogicError):
            return cl.Program(engine.context, [device], [bytes(cached)]).build(options=options)
    try:
        built = cl.Program(engine.context, source).build(
            options=options, devices=[device], cache_dir=False
        )
    except cl.RuntimeError as error:
        first = next(
            (line for line in str(error).splitlines() if "error" in line.lower()),
            str(error).splitlines()[0],
        )
        raise UnsupportedError(
            f"the driver of '{device.name}' does not compile a kernel: {first.strip()}"
            + (f"; {_NEWER_DRIVER}" if _UNKNOWN_CPU in first else "")
        ) from error
    binaries = built.get_info(cl.program_info.BINARIES)
    if binaries and binaries[0]:
        with kept_if_possible("the kernels are not cached"):
            cache.put(key, binaries[0])
    return built
