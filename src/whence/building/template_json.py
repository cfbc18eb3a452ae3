"""Templates of programs as JSON and back: sizes that are open are written as expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from whence.building.arena import Lifetime
from whence.building.location import Location, MemoryRegion
from whence.building.plan_json import (
    decode_block,
    decode_chain,
    decode_variable,
    encode_block,
    encode_size,
    encode_variable,
)
from whence.building.plan_template import PlanTemplate, StepGuard, StepTemplate, WorkRates
from whence.building.program_template import ProgramTemplate
from whence.extent import Dimensions, Relation


def encode_template(template: ProgramTemplate) -> dict[str, Any]:
    """A template without what explains it."""
    dimensions, plan = template.dimensions, template.plan
    return {
        "sizes": dimensions.sizes,
        "most": dimensions.most,
        "guards": [
            (
                encode_size(guard.left),
                guard.relation.value,
                encode_size(guard.right),
                guard.asked_by,
            )
            for guard in dimensions.guards
        ],
        "labels": dimensions.labels,
        "shapes": [
            (name, None if shape is None else [encode_size(size) for size in shape])
            for name, shape in template.inputs.items()
        ],
        "inputs": [encode_block(block) for block in plan.inputs],
        "outputs": [encode_block(block) for block in plan.outputs],
        "steps": [_encode_step(step) for step in plan.steps],
        "arena": [
            [
                (encode_size(each.size), each.first, each.last, encode_size(each.offset))
                for each in block
            ]
            for block in plan.arena
        ],
        "rates": plan.rates,
        "arena_bytes": plan.arena_bytes,
        "variables": [encode_variable(each) for each in plan.variables],
        "chains": plan.chains,
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
        inputs=tuple(decode_block(row, read) for row in record["inputs"]),
        outputs=tuple(decode_block(row, read) for row in record["outputs"]),
        steps=tuple(read.step(row) for row in record["steps"]),
        arena=tuple(
            tuple(
                Lifetime(read(size), int(first), int(last), read(offset))
                for size, first, last, offset in block
            )
            for block in record["arena"]
        ),
        rates=WorkRates(*record["rates"]),
        arena_bytes=int(record["arena_bytes"]),
        variables=tuple(decode_variable(row) for row in record["variables"]),
        dimensions=tuple(sizes),
        chains=tuple(decode_chain(row) for row in record["chains"]),
    )
    shapes = {
        str(name): None if shape is None else [read(size) for size in shape]
        for name, shape in record["shapes"]
    }
    return ProgramTemplate(dimensions, shapes, plan, details)


def _encode_location(location: Location) -> list[Any]:
    return [int(location.region), location.index, encode_size(location.offset)]


def _encode_step(step: StepTemplate) -> list[Any]:
    return [
        step.number,
        step.symbol,
        step.node,
        *map(encode_size, (step.tasks, step.flops, step.bytes, step.scratch_bytes)),
        step.unit,
        step.is_gang,
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

    def location(self, row: Sequence[Any]) -> Location:
        region, index, offset = row
        return Location(MemoryRegion(region), int(index), self(offset))

    def step(self, row: Sequence[Any]) -> StepTemplate:
        number, symbol, node, *sizes, unit, is_gang, operands, guards = row
        tasks, flops, traffic, scratch = map(self, sizes)
        return StepTemplate(
            int(number),
            str(symbol),
            int(node),
            tasks,
            flops,
            traffic,
            str(unit),
            bool(is_gang),
            scratch,
            tuple(self.location(each) for each in operands),
            tuple(
                StepGuard(self.location(condition), (int(value[0]), int(value[1])), bool(wanted))
                for condition, value, wanted in guards
            ),
        )
