"""Sequences (lists of tensors) and optionals (a value or nothing)."""

from __future__ import annotations

from functools import partial
from typing import Unpack

import numpy as np

from whence.errors import ModelError
from whence.ops.attributes import get_int
from whence.ops.definition import Call, Facts, OpClass, OpDef, Pattern, Reference, TypeQuery, Value
from whence.ops.operand import INDEX, PARAMETER, named, variadic
from whence.ops.precision import number, optional_tensor, tensor
from whence.ops.tensor.movement import split_at
from whence.ops.types.type_rules import axis_of, identity
from whence.types import UNKNOWN, DType, MapType, OptionalType, SequenceType, TensorType, ValueType


def _list(call: Call) -> list[Value]:
    value = call.input(0)
    if not isinstance(value, list):
        raise ModelError("input 0 must be a sequence")
    return value


def _position(call: Call, index: int, length: int, last: int) -> int:
    """Input `index` as a place in a sequence of `length`; `last` is the last place that exists."""
    at = int(number(call, index))
    if not -length <= at <= last:
        raise ModelError(f"position {at} is outside a sequence of {length}")
    return at + length if at < 0 else at


def _length(call: Call) -> Value:
    return np.array(len(_list(call)), np.int64)


def _at(call: Call) -> Value:
    items = _list(call)
    return items[_position(call, 1, len(items), len(items) - 1)]


def _insert(call: Call) -> Value:
    items = list(_list(call))
    items.insert(
        len(items) if call.input(2) is None else _position(call, 2, len(items), len(items)),
        call.inputs[1],
    )
    return items


def _erase(call: Call) -> Value:
    items = list(_list(call))
    del items[-1 if call.input(1) is None else _position(call, 1, len(items), len(items) - 1)]
    return items


def _concat(call: Call) -> Value:
    items, axis = [np.asarray(item) for item in _list(call)], get_int(call.attrs, "axis", 0)
    if not items:
        raise ModelError("the sequence is empty")
    return (
        np.stack(items, axis) if get_int(call.attrs, "new_axis", 0) else np.concatenate(items, axis)
    )


def _split(call: Call) -> Value:
    x, sizes = tensor(call, 0), optional_tensor(call, 1)
    axis = axis_of(call, x.ndim)
    length = x.shape[axis]
    if sizes is None and not get_int(call.attrs, "keepdims", 1):
        return [np.take(x, at, axis) for at in range(length)]
    if sizes is None or not sizes.ndim:
        step = 1 if sizes is None else int(sizes)
        if step < 1:
            raise ModelError(f"cannot split into parts of {step}")
        parts = [step] * (length // step) + ([length % step] if length % step else [])
    else:
        parts = [int(size) for size in sizes]
    if sum(parts) != length:
        raise ModelError(f"parts {parts} do not make up axis {axis} of {list(x.shape)}")
    return split_at(x, parts, axis) if parts else []


def _optional_type(query: TypeQuery) -> OptionalType:
    element = query.types[0] if query.types else None
    if element is None:
        given: object = query.attrs.get("type")
        element = UNKNOWN
        if isinstance(given, (TensorType, SequenceType, OptionalType, MapType)):
            element = given
    return OptionalType(element)


def _get_element(call: Call) -> Value:
    value = call.input(0)
    if value is None:
        raise ModelError("the optional is empty")
    return value


def _get_element_type(query: TypeQuery) -> ValueType:
    found = identity(query)
    return found.element if isinstance(found, OptionalType) else found


def _sequence(
    name: str, reference: Reference, classes: OpClass = OpClass.NONE, **facts: Unpack[Facts]
) -> OpDef:
    return OpDef(name, Pattern.OPAQUE, classes, reference=reference, flops=0, **facts)


_optional_op = partial(OpDef, flops=0, operands=named("input"))
OPS: tuple[OpDef, ...] = (
    _sequence("SequenceConstruct", lambda call: list(call.inputs), operands=variadic("inputs")),
    _sequence("SequenceEmpty", lambda call: []),
    _sequence("SequenceLength", _length, operands=named("input_sequence")),
    _sequence("SequenceAt", _at, operands=named("input_sequence", position=INDEX)),
    _sequence(
        "SequenceInsert", _insert, operands=named("input_sequence", "tensor", position=INDEX)
    ),
    _sequence("SequenceErase", _erase, operands=named("input_sequence", position=INDEX)),
    _sequence("ConcatFromSequence", _concat, OpClass.MOVEMENT, operands=named("input_sequence")),
    _sequence(
        "SplitToSequence", _split, OpClass.MOVEMENT, operands=named("input", split=PARAMETER)
    ),
    _optional_op("Optional", infer=_optional_type, reference=lambda call: call.input(0)),
    _optional_op("OptionalGetElement", infer=_get_element_type, reference=_get_element),
    _optional_op(
        "OptionalHasElement",
        infer=lambda query: TensorType(DType.BOOL, ()),
        reference=lambda call: np.array(call.input(0) is not None),
    ),
)
