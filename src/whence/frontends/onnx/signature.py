"""Does an operator have the inputs, outputs and attributes that its definition asks for?

Checked before anyone looks closer: inference, the `onnx` package's above all, trusts that what must
be there is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from onnx import TensorProto, defs

from whence.errors import ModelError
from whence.frontends.naming import quoted
from whence.frontends.onnx.record import OpRecord
from whence.graph.node import Ref
from whence.ops.definition import Attr, TypeQuery
from whence.ops.formula import parameters
from whence.ops.registry import REGISTRY
from whence.ops.types.onnx_node import schema_of
from whence.types import DType, TensorType, ValueType

# The `onnx` package reads memory that is not its own when these are out of all bounds.
_COUNTS_OF_AXES: Mapping[str, tuple[str, ...]] = {
    "LayerNormalization": ("axis",),
    "GatherND": ("batch_dims",),
}
_MOST_AXES = 64


@dataclass(frozen=True, slots=True)
class _Signature:
    fewest: int
    most: int
    required: tuple[int, ...]
    most_outputs: int
    attributes: Mapping[str, Callable[[Attr], bool]]
    required_attributes: tuple[str, ...]


def check_signature(
    op: str,
    record: OpRecord,
    inputs: Sequence[Ref | None],
    n_outputs: int,
    attrs: Mapping[str, Attr],
) -> None:
    """Raise a `ModelError` when the operator does not have the form its newest definition asks
    for.
    """
    signature = _signature(op)
    if signature is None:
        return
    if not signature.fewest <= len(inputs) <= signature.most:
        raise ModelError(
            f"{record} has {len(inputs)} inputs; it takes"
            f" {_range(signature.fewest, signature.most)}"
        )
    for index in signature.required:
        if index < len(inputs) and inputs[index] is None:
            raise ModelError(f"{record} lacks its input {index}")
    if n_outputs > signature.most_outputs:
        raise ModelError(
            f"{record} has {n_outputs} outputs; it makes {_range(1, signature.most_outputs)}"
        )
    for name, value in attrs.items():
        fits = signature.attributes.get(name)
        if fits is not None and not fits(value):
            raise ModelError(f"{record}: attribute {quoted(name)} is of the wrong kind")
    for name in signature.required_attributes:
        if name not in attrs:
            raise ModelError(f"{record} lacks its attribute '{name}'")
    for name in _COUNTS_OF_AXES.get(op, ()):
        value = attrs.get(name, 0)
        if isinstance(value, int) and not -_MOST_AXES <= value <= _MOST_AXES:
            raise ModelError(
                f"{record}: attribute '{name}' is {value}, which no tensor has axes for"
            )
        if op == "GatherND" and isinstance(value, int) and value < 0:
            raise ModelError(f"{record}: attribute '{name}' is {value}; it counts dimensions")


class ElementCheck:
    """Are operands of element types that the operator's newest definition takes? Layers that repeat
    have operands of the same types, and are looked at once.
    """

    def __init__(self) -> None:
        self._accepted: set[tuple[str, tuple[ValueType | None, ...]]] = set()

    def check(self, record: OpRecord, query: TypeQuery) -> None:
        """Raise a `ModelError` when an operand has elements that the operator does not take, or
        that are to be equal and are not.
        """
        key = (query.op, query.types)
        if key not in self._accepted:
            _check_elements(query.op, record, query.types)
            self._accepted.add(key)


def _check_elements(op: str, record: OpRecord, types: Sequence[ValueType | None]) -> None:
    bound: dict[str, tuple[int, DType]] = {}
    for index, (formal, kind) in enumerate(zip(_formals(op, len(types)), types, strict=False)):
        if not isinstance(kind, TensorType) or kind.dtype is DType.UNDEFINED:
            continue
        if kind.dtype not in formal.allowed:
            raise ModelError(
                f"{record}: input {index} is {kind}; it takes"
                f" {', '.join(sorted(str(dtype) for dtype in formal.allowed))}"
            )
        first, dtype = bound.setdefault(formal.variable, (index, kind.dtype))
        if formal.variable and dtype is not kind.dtype:
            raise ModelError(
                f"{record}: input {index} is {kind}, and should have the elements of input"
                f" {first}, {dtype}"
            )


@dataclass(frozen=True, slots=True)
class _Formal:
    """What the elements of an operand may be."""

    variable: str
    """Operands with the same one have elements of one type; empty where that does not matter."""
    allowed: frozenset[DType]


_ANYTHING = _Formal("", frozenset(DType))


@cache
def _formals(op: str, count: int) -> tuple[_Formal, ...]:
    schema = schema_of(op)
    if schema is None or not schema.inputs:
        return ()
    constraints = {each.type_param_str: each for each in schema.type_constraints}
    found = []
    for index in range(count):
        formal = schema.inputs[min(index, len(schema.inputs) - 1)]
        constraint = constraints.get(formal.type_str)
        names = [formal.type_str] if constraint is None else constraint.allowed_type_strs
        allowed = frozenset(_ELEMENTS[name] for name in names if name in _ELEMENTS)
        shared = constraint is not None and formal.is_homogeneous
        found.append(_Formal(formal.type_str if shared else "", allowed) if allowed else _ANYTHING)
    return tuple(found)


_ELEMENTS: Mapping[str, DType] = {
    f"tensor({TensorProto.DataType.Name(int(dtype)).lower()})": dtype
    for dtype in DType
    if dtype is not DType.UNDEFINED and int(dtype) in TensorProto.DataType.values()
}


@cache
def _signature(op: str) -> _Signature | None:
    schema = schema_of(op)
    if schema is None:
        return _signature_of_formula(op)
    single = defs.OpSchema.FormalParameterOption.Single
    kinds: dict[str, str] = {}
    for name, attribute in schema.attributes.items():
        # The package's stubs do not say that its kinds of attributes have names.
        kinds[name] = attribute.type.name  # type: ignore[attr-defined]
    return _Signature(
        schema.min_input,
        schema.max_input,
        tuple(index for index, formal in enumerate(schema.inputs) if formal.option == single),
        schema.max_output,
        {name: _KINDS[kind] for name, kind in kinds.items() if kind in _KINDS},
        tuple(
            name
            for name, kind in kinds.items()
            if kind in _KINDS and schema.attributes[name].required
        ),
    )


def _signature_of_formula(op: str) -> _Signature | None:
    """Of an operator that ONNX does not define and that is a formula: that has its operands and
    parameters in it.
    """
    definition = REGISTRY.get(op)
    if definition is None or definition.formula is None or definition.operands.variadic:
        return None
    count = len(definition.operands.names)
    numbers = dict.fromkeys(parameters(definition.formula), _is_number)
    return _Signature(count, count, tuple(range(count)), 1, numbers, ())


def _range(fewest: int, most: int) -> str:
    if fewest == most:
        return str(fewest)
    return f"{fewest} or more" if most > 1 << 20 else f"{fewest} to {most}"


def _is_int(value: Attr) -> bool:
    return isinstance(value, int)


def _is_number(value: Attr) -> bool:
    return isinstance(value, (int, float))


def _is_text(value: Attr) -> bool:
    return isinstance(value, (str, bytes))


def _list_of(fits: Callable[[Attr], bool]) -> Callable[[Attr], bool]:
    return lambda value: isinstance(value, tuple) and all(map(fits, value))


_KINDS: Mapping[str, Callable[[Attr], bool]] = {
    "INT": _is_int,
    "FLOAT": _is_number,
    "STRING": _is_text,
    "INTS": _list_of(_is_int),
    "FLOATS": _list_of(_is_number),
    "STRINGS": _list_of(_is_text),
    "TENSOR": lambda value: isinstance(value, np.ndarray),
}
