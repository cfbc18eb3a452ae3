"""A program for an OpenCL device: launches of its kernels, steps of the host between them, and
copies from one to the other.
"""

from __future__ import annotations

import contextlib
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from whence.building.allocate import allocate
from whence.building.build import (
    check_graph_operands,
    described,
    guards_of,
    input_blocks,
    kernel_of,
    output_blocks,
    source_names,
)
from whence.building.memory_layout import Aliasing, Location, MemoryLayout, Region, written
from whence.building.program import Details, Plan, Program, ProgramStep
from whence.building.reference_fallback import is_native, with_reference_steps
from whence.building.variables import assignments, variables_of
from whence.building.weights import Weights
from whence.codegen.cache import Cache, cache_key
from whence.codegen.emit import KernelUnit
from whence.codegen.opencl.emit import TILE, Launch, emit_opencl
from whence.codegen.opencl.render_cl import Device
from whence.errors import CacheError, UnsupportedError
from whence.fusion import Limits, find_groups, fuse
from whence.graph import Graph, Ref
from whence.graph.guards import Guards
from whence.kernels.lower import Step, lower
from whence.provenance import Origin
from whence.runtime.opencl.devices import require_pyopencl

if TYPE_CHECKING:
    from whence.runtime.opencl.engine import OpenClEngine

TRANSFERS = "transfers"
"""What copies between host and device are called in a profile: no operator's time."""


@dataclass(frozen=True, slots=True)
class LaunchStep:
    """A kernel to start, and where its operands lie."""

    number: int
    launch: Launch
    places: tuple[Location, ...]
    reads: tuple[Ref, ...]
    """The values it reads, which are on the device before it starts."""
    guards: Guards
    """What must hold for it to run."""


@dataclass(frozen=True, slots=True)
class HostStep:
    """A step that the reference implementation of its operator does, on the host."""

    number: int
    node: int
    guards: Guards


class OpenClProgram(Program):
    """A program whose steps run on a device. Shared by all runs, never changed by one."""

    __slots__ = ("built", "device_weights", "launches", "read_by_device", "to_device", "to_host")

    def __init__(
        self,
        plan: Plan,
        details: Details,
        built: Any,
        initial: np.ndarray,
        device_weights: Any,
        actions: tuple[LaunchStep | HostStep, ...],
    ) -> None:
        super().__init__(plan, initial, None, details)
        self.built = built
        """pyopencl's program; `None` when nothing runs on the device."""
        self.device_weights = device_weights
        self.launches = actions
        self.read_by_device = frozenset(
            details.layout.owner(ref)
            for action in actions
            if isinstance(action, LaunchStep)
            for ref in action.reads
        )
        self.to_device, self.to_host = len(details.steps) - 2, len(details.steps) - 1
        """The numbers that copies have in a profile."""

    def release_constants(self) -> None:
        """Drop the constants that only the device reads from the graph, which keeps their types."""
        nodes = [
            self.graph[action.node] for action in self.launches if isinstance(action, HostStep)
        ]
        read = {
            self.layout.owner(ref).node
            for node in (*nodes, *self.graph.results)
            for ref in node.inputs
            if ref is not None
        }
        # Guards ask the host for their conditions.
        read |= {
            self.layout.owner(ref).node
            for node in self.graph
            if node.op == "Choose" and (ref := node.inputs[0]) is not None
        }
        for node in self.graph:
            if node.is_const and node.id not in read:
                node.value = None


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
    source: str
    """Of all kernels."""
    has_kernels: bool


def build_opencl(graph: Graph, engine: OpenClEngine, *, fusion: str = "dominator") -> OpenClProgram:
    """Fuse, lower, compile and plan a prepared graph for a device."""
    planned = plan_opencl(graph, engine.abilities, fusion=fusion)
    built = _compile(engine, planned.source) if planned.has_kernels else None
    return OpenClProgram(
        planned.plan,
        planned.details,
        built,
        planned.initial.finish(),
        engine.buffer_of(planned.weights.finish()),
        planned.actions,
    )


def plan_opencl(graph: Graph, abilities: Device, *, fusion: str = "dominator") -> DevicePlan:
    """Fuse, lower and plan a prepared graph for devices that can do this much."""
    check_graph_operands(graph)
    # A device keeps every value in a place of its own: there is nothing to gain by setting
    # concatenations apart.
    fused = fuse(graph, find_groups(graph, fusion, Limits(in_place=False)))
    lowered = lower(fused, TILE)
    lowered += assignments(graph, lowered, Aliasing())
    positions = [position for position, step in enumerate(lowered) if is_native(graph, step)]
    kernels = [kernel_of(lowered[position]) for position in positions]
    emitted = emit_opencl(
        kernels, [source_names(graph, lowered[position]) for position in positions], abilities
    )
    refused = {
        position: emitted.refused[number]
        for number, position in enumerate(positions)
        if number in emitted.refused
    }
    launches = {
        id(lowered[position]): launch
        for position, launch in zip(positions, emitted.launches, strict=True)
    }
    steps = with_reference_steps(graph, lowered, refused)
    running = [step for step in steps if not step.is_view]
    layout = allocate(graph, steps)
    # Initial values stay on the host, which writes them when the state is made or reset.
    weights, initial = Weights(), Weights()
    actions: list[LaunchStep | HostStep] = []
    guards = guards_of(graph, steps, steps)
    for number, step in enumerate(running):
        launch = launches.get(id(step))
        if launch is None:
            actions.append(HostStep(number, step.members[0].id, guards[number]))
        else:
            actions.append(
                _launch_step(graph, layout, weights, number, step, launch, guards[number])
            )
    explained = tuple(
        described(number, step, _symbol(launches.get(id(step))))
        for number, step in enumerate(running)
    )
    copies = tuple(
        ProgramStep(len(running) + extra, name, "copy", (), Origin(), (), "", residual=TRANSFERS)
        for extra, name in enumerate(("copy to the device", "copy from the device"))
    )
    details = Details(
        graph=graph,
        fused=fused,
        steps=(*explained, *copies),
        layout=layout,
        copies=(),
        units=(KernelUnit("kernels", emitted.source, (), emitted.functions),),
        tile=TILE,
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
    return DevicePlan(
        details,
        plan,
        tuple(actions),
        weights,
        initial,
        emitted.source,
        bool(emitted.functions),
    )


def _symbol(launch: Launch | None) -> str:
    return "" if launch is None else launch.symbol


def _launch_step(
    graph: Graph,
    layout: MemoryLayout,
    weights: Weights,
    number: int,
    step: Step,
    launch: Launch,
    guards: Guards,
) -> LaunchStep:
    kernel = kernel_of(step)
    places = []
    for position, ref in enumerate((*step.inputs, *step.outputs)):
        node = graph[layout.owner(ref).node]
        place = (
            weights.place(node, kernel.packings.get(position))
            if node.is_const
            else layout.places[ref]
        )
        assert place.region is not Region.DYNAMIC
        places.append(written(place) if position >= len(step.inputs) else place)
    reads = tuple(ref for ref in step.inputs if not graph[layout.owner(ref).node].is_const)
    return LaunchStep(number, launch, tuple(places), reads, guards)


def _compile(engine: OpenClEngine, source: str) -> Any:
    """The program, compiled or from the cache. A device's driver is part of the key: its binaries
    are good for nothing else.
    """
    cl = require_pyopencl()
    device = engine.found.handle
    # Denormals and infinities behave as on the CPU; nothing else is relaxed.
    options = ["-cl-std=CL1.2", "-cl-mad-enable"]
    cache, key = (
        Cache(),
        cache_key("opencl", source, device.name, device.version, device.driver_version, *options),
    )
    kept = cache.map(key)
    if kept is not None:
        # A binary that the driver no longer takes is compiled anew.
        with contextlib.suppress(cl.RuntimeError, cl.LogicError):
            return cl.Program(engine.context, [device], [bytes(kept)]).build(options=options)
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
        ) from error
    binaries = built.get_info(cl.program_info.BINARIES)
    if binaries and binaries[0]:
        try:
            cache.put(key, binaries[0])
        except (CacheError, OSError) as error:
            # What was compiled runs all the same.
            warnings.warn(
                f"the kernels are not kept for the next start: {error}",
                RuntimeWarning,
                stacklevel=2,
            )
    return built


__all__ = [
    "TRANSFERS",
    "DevicePlan",
    "HostStep",
    "LaunchStep",
    "OpenClProgram",
    "build_opencl",
    "plan_opencl",
]
