"""Which opset a graph can be written in: the lowest that says all its operators as they are meant.

Operators are held in the terms of the newest opset. Walking an operator's schemas from the newest
down, each still fits as long as it knows the attributes that matter, takes as many inputs and these
element types, and means the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import numpy as np
from onnx import defs

from whence.errors import UnsupportedError
from whence.frontends.onnx.attributes import read_attribute
from whence.frontends.onnx.types import TensorReader, schema_type
from whence.frontends.onnx.upgrade import last_break
from whence.ops.definition import Attr
from whence.ops.registry import REGISTRY
from whence.ops.types.onnx_node import NEWEST_OPSETS, schema_of, split_name
from whence.types import OptionalType, SequenceType, TensorType, ValueType

LOWEST_WRITTEN = 18


def lowest_opset(
    op: str,
    attrs: Mapping[str, Attr],
    inputs: Sequence[ValueType | None],
    outputs: Sequence[ValueType],
) -> int:
    """The first opset of its domain in which this node is valid and means what it means now."""
    telling = frozenset(name for name, value in attrs.items() if not _is_default(op, name, value))
    return _lowest(
        op,
        telling,
        tuple(_type_name(kind) for kind in inputs),
        tuple(_type_name(kind) for kind in outputs),
    )


def attributes_at(op: str, attrs: Mapping[str, Attr], version: int) -> dict[str, Attr]:
    """The attributes to write at an opset: those it does not know yet are left out, since
    `lowest_opset` saw that they say nothing.
    """
    domain, name = split_name(op)
    if is_extension(op):
        return dict(attrs)
    known = defs.get_schema(name, version, domain).attributes
    return {key: value for key, value in attrs.items() if key in known}


def is_extension(op: str) -> bool:
    """Is its domain unknown to ONNX? Such operators are written as they are read."""
    domain, _ = split_name(op)
    return bool(domain) and domain not in NEWEST_OPSETS and op in REGISTRY


@cache
def _lowest(
    op: str, attrs: frozenset[str], inputs: tuple[str, ...], outputs: tuple[str, ...]
) -> int:
    domain, name = split_name(op)
    newest = schema_of(op)
    if is_extension(op):
        return 1
    if newest is None:
        raise UnsupportedError(f"{op} is not an operator of ONNX and cannot be written")
    # The newest form holds the operator even where the file stretched its rules; older forms must
    # fit strictly.
    lowest = newest.since_version
    for schema in _older_schemas(domain, name, newest.since_version):
        if (
            schema.since_version < last_break(domain, name)
            or schema.deprecated
            or not _fits(schema, attrs, inputs, outputs)
        ):
            break
        lowest = schema.since_version
    return lowest


def _older_schemas(domain: str, name: str, version: int) -> Iterator[defs.OpSchema]:
    """The schemas an operator had before `version`, latest first."""
    while version > 1:
        try:
            schema = defs.get_schema(name, version - 1, domain)
        except defs.SchemaError:
            return
        yield schema
        version = schema.since_version


def _fits(
    schema: defs.OpSchema, attrs: frozenset[str], inputs: tuple[str, ...], outputs: tuple[str, ...]
) -> bool:
    if (
        not attrs.issubset(schema.attributes)
        or len(inputs) > schema.max_input
        or len(outputs) > schema.max_output
    ):
        return False
    return _types_fit(schema.inputs, inputs) and _types_fit(schema.outputs, outputs)


def _types_fit(formals: Sequence[defs.OpSchema.FormalParameter], actual: tuple[str, ...]) -> bool:
    return all(
        not kind or kind in formals[min(index, len(formals) - 1)].types
        for index, kind in enumerate(actual)
    )


def _type_name(kind: ValueType | None) -> str:
    """A type as schemas write it; empty when it is not known or not simple."""
    if isinstance(kind, TensorType):
        return schema_type(kind.dtype)
    if isinstance(kind, (SequenceType, OptionalType)):
        element = _type_name(kind.element)
        if element:
            return f"{'seq' if isinstance(kind, SequenceType) else 'optional'}({element})"
    return ""


def _is_default(op: str, name: str, value: Attr) -> bool:
    default = _defaults(op).get(name)
    if default is None or isinstance(value, np.ndarray):
        return False
    return bool(value == default)


@cache
def _defaults(op: str) -> Mapping[str, Attr]:
    schema = schema_of(op)
    if schema is None:
        return {}
    stated = {name: attribute.default_value for name, attribute in schema.attributes.items()}
    return {
        name: read_attribute(default, TensorReader(None), op)
        for name, default in stated.items()
        if default.type
    }
