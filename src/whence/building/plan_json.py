"""Plans, and the types of values, as JSON and back: read at every start from the cache, so nothing
in it can run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from whence.building.native_code import Library, NativeSlot, NativeStep
from whence.building.program import (
    Block,
    Chain,
    Plan,
    ReferenceStep,
    Segment,
    Variable,
    WorkRange,
    make_segment,
)
from whence.extent import is_symbolic
from whence.types import DType, MapType, OptionalType, SequenceType, TensorType, ValueType


def encode_plan(plan: Plan) -> dict[str, Any]:
    """A plan without addresses: kernels are named by their symbols."""
    return {
        "inputs": [encode_block(block) for block in plan.inputs],
        "outputs": [encode_block(block) for block in plan.outputs],
        "actions": [_encode_action(action) for action in plan.actions],
        "arena_bytes": plan.arena_bytes,
        "scratch_bytes": plan.scratch_bytes,
        "n_slots": plan.n_slots,
        "variables": [encode_variable(each) for each in plan.variables],
    }


def decode_plan(record: Mapping[str, Any], library: Library | None) -> Plan:
    """The plan, its kernels looked up in the library. What is no plan raises some error or other."""
    return Plan(
        inputs=tuple(decode_block(block) for block in record["inputs"]),
        outputs=tuple(decode_block(block) for block in record["outputs"]),
        actions=tuple(_decode_action(action, library) for action in record["actions"]),
        arena_bytes=int(record["arena_bytes"]),
        scratch_bytes=int(record["scratch_bytes"]),
        n_slots=int(record["n_slots"]),
        variables=tuple(decode_variable(row) for row in record["variables"]),
    )


def encode_size(size: int) -> int | str:
    return str(size) if is_symbolic(size) else size


def encode_block(block: Block | None) -> list[Any] | None:
    if block is None:
        return None
    dtype = int(DType.of(np.empty(0, block.dtype)))
    return [block.name, dtype, [encode_size(size) for size in block.shape]]


def decode_block(row: Sequence[Any] | None, size: Callable[[int | str], int] = int) -> Block | None:
    """`size` reads those that are open."""
    if row is None:
        return None
    name, dtype, shape = row
    return Block(str(name), DType(dtype).numpy, tuple(size(each) for each in shape))


def encode_variable(variable: Variable) -> list[Any]:
    return [
        encode_block(variable.block),
        variable.initial_offset,
        variable.initial_bytes,
        variable.is_assigned,
        variable.in_place,
    ]


def decode_variable(row: Sequence[Any]) -> Variable:
    block = decode_block(row[0])
    if block is None:
        raise ValueError("a variable without a type")
    return Variable(block, int(row[1]), int(row[2]), bool(row[3]), bool(row[4]))


def decode_chain(row: Sequence[Any]) -> Chain:
    first, last, ranges = row
    return Chain(int(first), int(last), tuple(WorkRange(*map(int, each)) for each in ranges))


def _encode_action(action: Segment | ReferenceStep) -> dict[str, Any]:
    if isinstance(action, ReferenceStep):
        return {"number": action.number, "node": action.node}
    plan = action.plan
    return {
        "first_step": plan.first_step,
        "scratch_bytes": plan.scratch_bytes,
        "steps": [
            # Its address is its symbol's.
            (symbol, *(getattr(step, name) for name, _ in NativeStep._fields_[1:]))
            for symbol, step in zip(action.symbols, plan.steps[: plan.n_steps], strict=True)
        ],
        "conditional_steps": [(step.number, step.node) for step in action.conditional_steps],
        "chains": action.chains,
        "slots": [(slot.region, slot.index, slot.offset) for slot in plan.slots[: plan.n_slots]],
    }


def _decode_action(row: Mapping[str, Any], library: Library | None) -> Segment | ReferenceStep:
    if "node" in row:
        return ReferenceStep(row["number"], row["node"])
    symbols = tuple(str(step[0]) for step in row["steps"])
    if library is None and any(symbols):
        raise ValueError("native steps without native code")
    addresses = {
        symbol: library.address(symbol) if library is not None and symbol else None
        for symbol in set(symbols)
    }
    conditional_steps = tuple(
        ReferenceStep(number, node) for number, node in row["conditional_steps"]
    )
    steps = [NativeStep(addresses[symbol], *numbers) for symbol, *numbers in row["steps"]]
    return make_segment(
        steps,
        symbols,
        [NativeSlot(*slot) for slot in row["slots"]],
        row["scratch_bytes"],
        row["first_step"],
        conditional_steps,
        [decode_chain(chain) for chain in row["chains"]],
    )


# ---- types of values ----


def encode_type(kind: ValueType) -> list[Any]:
    """As lists, strings and numbers."""
    match kind:
        case TensorType(dtype, shape):
            return ["tensor", int(dtype), None if shape is None else list(shape)]
        case SequenceType(element):
            return ["sequence", encode_type(element)]
        case OptionalType(element):
            return ["optional", encode_type(element)]
        case MapType(key, value):
            return ["map", int(key), encode_type(value)]


def decode_type(row: list[Any]) -> ValueType:
    """What was encoded. Raises `ValueError` for anything else."""
    match row:
        case ["tensor", int(dtype), None]:
            return TensorType(DType(dtype))
        case ["tensor", int(dtype), list(shape)] if all(
            dim is None or isinstance(dim, int | str) for dim in shape
        ):
            return TensorType(DType(dtype), tuple(shape))
        case ["sequence", list(element)]:
            return SequenceType(decode_type(element))
        case ["optional", list(element)]:
            return OptionalType(decode_type(element))
        case ["map", int(key), list(value)]:
            return MapType(DType(key), decode_type(value))
    raise ValueError(f"{row!r} is no type")
