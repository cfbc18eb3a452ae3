"""A model for OpenCL devices as files for C: kernels as text, weights, and a library that runs them
on an application's own device, context and queue.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from whence.backends.opencl.generator import plan_opencl
from whence.backends.opencl.program import HostStep, LaunchStep
from whence.building.export import (
    NativeFiles,
    c_slot,
    c_string,
    check_exportable,
    described_model,
    file_stem,
    table,
    write_library,
)
from whence.building.location import Location
from whence.building.program import Program
from whence.building.program_parts import copies_of
from whence.building.variables import variables_of
from whence.codegen.opencl.render_cl import Device
from whence.codegen.toolchain import SourceUnit, Toolchain
from whence.graph import Graph, Ref

FILES = NativeFiles(
    ("whence_opencl", "whence_opencl_stream", "whence_state", "whence_stream"),
    ("whence.h", "whence_cl.h", "whence_description.h", "whence_runtime.h"),
    public=("whence.h", "whence_opencl.h"),
)
# What every device of OpenCL 1.2's full profile has, except for the size of a group, which the
# standard leaves open and the library checks.
_LOCAL_BYTES = 32 * 1024
_GROUP_SIZE = 64


@dataclass(frozen=True, slots=True)
class DeviceExport:
    """A model that is ready to be written."""

    program: Program
    launches: tuple[LaunchStep, ...]
    conditions: tuple[tuple[Location, ...], ...]
    """Of each launch: where the conditions lie that it asks before it starts."""
    needs_doubles: bool


def plan_export(graph: Graph, *, fusion: str = "dominator") -> DeviceExport:
    """A prepared graph for any device; double precision is asked for only if the model needs it.

    Raises `UnsupportedError`, naming the operators, when not all of it can run on a device.
    """
    planned, needs_doubles = plan_opencl(graph, _device(False), fusion=fusion), False
    if _host_steps(planned.actions):
        again = plan_opencl(graph, _device(True), fusion=fusion)
        if len(_host_steps(again.actions)) < len(_host_steps(planned.actions)):
            planned, needs_doubles = again, True
    layout, weights = planned.details.layout, planned.weights

    def place(ref: Ref) -> Location:
        node = graph[layout.owner(ref).node]
        return weights.place(node) if node.is_const else layout.places[ref]

    launches = tuple(action for action in planned.actions if isinstance(action, LaunchStep))
    conditions = tuple(
        tuple(place(guard.condition) for guard in launch.guards) for launch in launches
    )
    details = replace(planned.details, copies=tuple(copies_of(graph, layout, weights)))
    plan = replace(planned.plan, variables=variables_of(graph, layout, weights))
    program = Program(plan, weights.finish(), None, details)
    check_exportable(program, "OpenCL kernel")
    return DeviceExport(program, launches, conditions, needs_doubles)


def _device(doubles: bool) -> Device:
    return Device(doubles=doubles, local_bytes=_LOCAL_BYTES, group_size=_GROUP_SIZE)


def _host_steps(actions: Sequence[LaunchStep | HostStep]) -> list[HostStep]:
    return [action for action in actions if isinstance(action, HostStep)]


def export_opencl(
    planned: DeviceExport, toolchain: Toolchain, folder: Path, name: str
) -> list[Path]:
    """Write `libNAME.so`, `NAME.h`, `whence.h`, `whence_opencl.h`, `NAME.weights`, `src/` and
    `NAME.cl`; returns what was written.
    """
    stem = file_stem(name)
    units = [SourceUnit(stem, model_source(planned, stem))]
    written = write_library(
        planned.program, toolchain, folder, stem, units, FILES, links_later=True
    )
    kernels = folder / f"{stem}.cl"
    (unit,) = planned.program.units
    kernels.write_text(unit.source, encoding="utf-8")
    return [*written, kernels]


def model_source(planned: DeviceExport, stem: str) -> str:
    """The tables of the model as C."""
    rows: list[str] = []
    slots: list[str] = []
    for launch, conditions in zip(planned.launches, planned.conditions, strict=True):
        geometry = launch.launch.geometry
        wanted = sum(guard.wanted << bit for bit, guard in enumerate(launch.guards))
        items, group = (
            "{" + ", ".join(map(str, sizes)) + "}" for sizes in (geometry.items, geometry.group)
        )
        rows.append(
            f"{{{c_string(launch.launch.symbol)}, {len(geometry.items)}, {items}, {group},"
            f" {len(slots)}, {len(launch.places)}, {len(conditions)}, {wanted}u,"
            f" {int(launch.launch.scratch_bytes > 0)}, {int(launch.launch.checks)}}}"
        )
        slots += [c_slot(place) for place in (*launch.places, *conditions)]
    scratch = max((launch.launch.scratch_bytes for launch in planned.launches), default=0)
    checks = any(launch.launch.checks for launch in planned.launches)
    largest = max(
        (math.prod(launch.launch.geometry.group) for launch in planned.launches), default=1
    )
    tables = [
        *table("wh_launch launches", rows, "{0}"),
        *table("wh_slot slots", slots, "{0}"),
        (
            f"static const wh_launch_plan launch_plan = {{launches, slots, {len(rows)}, {scratch},"
            f" {largest}, {int(planned.needs_doubles)}, {int(checks)}}};"
        ),
    ]
    return described_model(planned.program, stem, tables, "0, &launch_plan")
