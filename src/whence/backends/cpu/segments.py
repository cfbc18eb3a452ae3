"""The steps of a program for the processor: where their operands lie, and what they take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from whence.building.backend import Lowered, LoweredStep
from whence.building.plan_template import StepGuard, StepTemplate, dims_location
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
    if step.kernel is None:
        conditions = _conditions(lowered, guards, weights)
        return StepTemplate(number, node=step.members[0].id, guards=conditions)
    operands = operand_locations(lowered, step, weights)
    if step.kernel.dimensions:
        operands.append(dims_location(len(lowered.graph.inputs)))
    made = _kernel_template(number, "" if code is None else code.symbol, step.kernel)
    conditions = _conditions(lowered, guards, weights)
    return replace(made, operands=tuple(operands), guards=conditions)


def _kernel_template(number: int, symbol: str, kernel: Kernel) -> StepTemplate:
    """What a step takes that runs this kernel, wherever its operands lie."""
    return StepTemplate(
        number,
        symbol,
        tasks=kernel.tasks,
        flops=sum(member.flops for member in kernel.members),
        bytes=sum(member.bytes for member in kernel.members),
        flops_per_ns=kernel.flops_per_ns,
        is_gang=kernel.gang,
        scratch_bytes=kernel.scratch_bytes,
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
    return _kernel_template(0, "", kernel).grain
