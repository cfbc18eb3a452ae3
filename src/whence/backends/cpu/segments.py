"""The steps of a program for the processor: where their operands lie, and what they take."""

from __future__ import annotations

from collections.abc import Iterator

from whence.building.backend import Lowered, LoweredStep
from whence.building.native_code import GANG
from whence.building.plan_template import StepGuard, StepTemplate, dims_location, grain_of
from whence.building.program_parts import location_of, operand_locations
from whence.building.weights import Weights
from whence.graph.guards import Guards
from whence.kernels.ir import Kernel


def step_templates(lowered: Lowered, weights: Weights) -> Iterator[StepTemplate]:
    """The steps in order; constants are packed on the way."""
    for each in lowered.steps:
        yield _template(lowered, each, weights)


def _template(lowered: Lowered, each: LoweredStep, weights: Weights) -> StepTemplate:
    number, step, code, guards = each
    kernel = step.kernel
    if kernel is None:
        conditions = _conditions(lowered, guards, weights)
        return StepTemplate(number, node=step.members[0].id, guards=conditions)
    operands = operand_locations(lowered, step, weights)
    if kernel.dimensions:
        operands.append(dims_location(len(lowered.graph.inputs)))
    return StepTemplate(
        number,
        "" if code is None else code.symbol,
        tasks=kernel.tasks,
        flops=sum(member.flops for member in kernel.members),
        bytes=sum(member.bytes for member in kernel.members),
        flops_per_ns=kernel.flops_per_ns,
        is_gang=kernel.gang,
        scratch_bytes=kernel.scratch_bytes,
        operands=tuple(operands),
        guards=_conditions(lowered, guards, weights),
    )


def _conditions(lowered: Lowered, guards: Guards, weights: Weights) -> tuple[StepGuard, ...]:
    return tuple(
        StepGuard(
            location_of(lowered, guard.condition, weights),
            (guard.condition.node, guard.condition.index),
            guard.wanted,
        )
        for guard in guards
    )


def grain(kernel: Kernel) -> int:
    """How many work items make a piece that is worth handing to another thread."""
    if kernel.gang:
        return GANG
    return grain_of(work_ns(kernel), kernel.tasks)


def work_ns(kernel: Kernel) -> float:
    """What the kernel takes on one thread, roughly."""
    step = StepTemplate(
        0,
        flops=sum(member.flops for member in kernel.members),
        bytes=sum(member.bytes for member in kernel.members),
        flops_per_ns=kernel.flops_per_ns,
    )
    return step.work_ns
