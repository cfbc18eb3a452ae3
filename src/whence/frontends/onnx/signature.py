"""Does an operator have the inputs, outputs and attributes that its definition asks for?

Checked before anyone looks closer: inference, the `onnx` package's above all, trusts that what must
be there is.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from whence.errors import ModelError
from whence.frontends.onnx.record import OpRecord
from whence.frontends.onnx.types import schema_type
from whence.graph.node import Ref
from whence.ops.definition import Attr
from whence.ops.signature import unknown_attributes, why_malformed
from whence.ops.types.onnx_node import schema_of
from whence.types import DType, TensorType, ValueType

# The `onnx` package reads memory that is not its own when these are out of all bounds.
_COUNTS_OF_AXES: Mapping[str, tuple[str, ...]] = {
    "LayerNormalization": ("axis",),
    "GatherND": ("batch_dims",),
}
_MOST_AXES = 64


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
    why = why_malformed(op, inputs, n_outputs, attrs)
    if why:
        raise ModelError(f"{record}{why}")
    for name in _COUNTS_OF_AXES.get(op, ()):
        value = attrs.get(name, 0)
        if isinstance(value, int) and not -_MOST_AXES <= value <= _MOST_AXES:
            raise ModelError(
                f"{record}: attribute '{name}' is {value}, which no tensor has axes for"
            )
        if op == "GatherND" and isinstance(value, int) and value < 0:
            raise ModelError(f"{record}: attribute '{name}' is {value}; it counts dimensions")


def known_attributes(op: str, record: OpRecord, attrs: Mapping[str, Attr]) -> Mapping[str, Attr]:
    """The attributes without those that the operator does not have, which other engines do not look
    at either. A warning names each: it may be another one, misspelt.
    """
    unknown = unknown_attributes(op, attrs) if attrs else {}
    if not unknown:
        return attrs
    for why in unknown.values():
        warnings.warn(f"{record}{why}; it is left out", RuntimeWarning, stacklevel=2)
    return {name: value for name, value in attrs.items() if name not in unknown}


def check_element_types(op: str, record: OpRecord, types: Sequence[ValueType | None]) -> None:
    """Raise a `ModelError` when an operand has elements that the operator's newest definition does
    not take, or that are to be equal and are not.
    """
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


_ELEMENTS: Mapping[str, DType] = {schema_type(dtype): dtype for dtype in DType}
