"""Templates of programs as JSON and back: sizes that are open are written as expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from whence.building.arena import Lifetime
from whence.building.location import Location, MemoryRegion
from whence.building.plan_json import decode_variable, encode_variable
from whence.building.plan_template import PlanTemplate, StepGuard, StepTemplate
from whence.building.program import Block
from whence.building.program_template import ProgramTemplate
from whence.extent import Dimensions, Relation, is_symbolic
from whence.types import DType


def encode_template(template: ProgramTemplate) -> dict[str, Any]:
    """A template without what explains it."""
    dimensions, plan = template.dimensions, template.plan
    return {
        "sizes": dimensions.sizes,
        "most": dimensions.most,
        "guards": [
            (_size(guard.left), guard.relation.value, _size(guard.right), guard.asked_by)
            for guard in dimensions.guards
        ],
        "labels": dimensions.labels,
        "shapes": [
            (name, None if shape is None else _sizes(shape))
            for name, shape in template.inputs.items()
        ],
        "inputs": [_encode_block(block) for block in plan.inputs],
        "outputs": [_encode_block(block) for block in plan.outputs],
        "steps": [_encode_step(step) for step in plan.steps],
        "arena": [
            [(_size(each.size), each.first, each.last, _size(each.offset)) for each in block]
            for block in plan.arena
        ],
        "arena_bytes": plan.arena_bytes,
        "variables": [encode_variable(each) for each in plan.variables],
    }


def decode_template(record: Mapping[str, Any], details: Any) -> ProgramTemplate:
    """The template, `details` explaining it. What is none raises some error or other."""
    sizes = {str(name): int(size) for name, size in record["sizes"].items()}
    most = {str(name): int(size) for name, size in record["most"].items()}
    dimensions = Dimensions(sizes, most)
    dimensions.labels.update((str(name), str(label)) for name, label in record["labels"].items())
    read = _Reader(dimensions)
    for left, relation, right, asked_by in record["guards"]:
        dimensions.add_guard(read(left), Relation(relation), read(right), str(asked_by))
    plan = PlanTemplate(
        inputs=tuple(read.block(row) for row in record["inputs"]),
        outputs=tuple(read.block(row) for row in record["outputs"]),
        steps=tuple(read.step(row) for row in record["steps"]),
        arena=tuple(
            tuple(
                Lifetime(read(size), int(first), int(last), read(offset))
                for size, first, last, offset in block
            )
            for block in record["arena"]
        ),
        arena_bytes=int(record["arena_bytes"]),
        variables=tuple(decode_variable(row) for row in record["variables"]),
        dimensions=tuple(sizes),
    )
    shapes = {
        str(name): None if shape is None else read.sizes(shape) for name, shape in record["shapes"]
    }
    return ProgramTemplate(dimensions, shapes, plan, details)


def _size(size: int) -> int | str:
    return str(size) if is_symbolic(size) else size


def _sizes(sizes: Sequence[int]) -> list[int | str]:
    return [_size(size) for size in sizes]


def _encode_block(block: Block | None) -> list[Any] | None:
    if block is None:
        return None
    return [block.name, int(DType.of(np.empty(0, block.dtype))), _sizes(block.shape)]


def _encode_location(location: Location) -> list[Any]:
    return [int(location.region), location.index, _size(location.offset)]


def _encode_step(step: StepTemplate) -> list[Any]:
    return [
        step.number,
        step.symbol,
        step.node,
        _size(step.tasks),
        _size(step.flops),
        _size(step.bytes),
        step.flops_per_ns,
        step.is_gang,
        _size(step.scratch_bytes),
        [_encode_location(each) for each in step.operands],
        [(_encode_location(each.condition), each.value, each.wanted) for each in step.guards],
    ]


class _Reader:
    """Numbers and expressions; each expression is parsed once."""

    def __init__(self, dimensions: Dimensions) -> None:
        self._dimensions = dimensions
        self._parsed: dict[str, int] = {}

    def __call__(self, size: int | str) -> int:
        if isinstance(size, int):
            return size
        if size not in self._parsed:
            self._parsed[size] = self._dimensions.parse(size)
        return self._parsed[size]

    def sizes(self, sizes: Sequence[int | str]) -> tuple[int, ...]:
        return tuple(self(size) for size in sizes)

    def block(self, row: Sequence[Any] | None) -> Block | None:
        if row is None:
            return None
        name, dtype, shape = row
        return Block(str(name), DType(dtype).numpy, self.sizes(shape))

    def location(self, row: Sequence[Any]) -> Location:
        region, index, offset = row
        return Location(MemoryRegion(region), int(index), self(offset))

    def step(self, row: Sequence[Any]) -> StepTemplate:
        (
            number,
            symbol,
            node,
            tasks,
            flops,
            traffic,
            flops_per_ns,
            is_gang,
            scratch,
            operands,
            guards,
        ) = row
        return StepTemplate(
            int(number),
            str(symbol),
            int(node),
            self(tasks),
            self(flops),
            self(traffic),
            int(flops_per_ns),
            bool(is_gang),
            self(scratch),
            tuple(self.location(each) for each in operands),
            tuple(
                StepGuard(self.location(condition), (int(value[0]), int(value[1])), bool(wanted))
                for condition, value, wanted in guards
            ),
        )
