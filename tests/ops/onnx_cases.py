"""The `onnx` package's own node tests, which its wheel carries as programs: one operator each, with
inputs and expected outputs.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
from onnx.backend.test.case.node import collect_testcases

from whence.ops.definition import Attrs, Call, TypeQuery
from whence.ops.fallback import type_of
from whence.ops.registry import REGISTRY
from whence.ops.tensor.control import INTERPRETED
from whence.ops.types.onnx_node import from_type_proto, schema_of
from whence.types import SequenceType, TensorType, ValueType


@dataclass(frozen=True)
class Case:
    """One operator applied to given values, and what must come out."""

    name: str
    call: Call
    expected: tuple[Any, ...]


def to_value(item: Any) -> Any:
    """A test's datum as a run-time value of whence."""
    if isinstance(item, list):
        return [to_value(element) for element in item]
    if isinstance(item, onnx.TensorProto):
        item = onnx.numpy_helper.to_array(item)
    if item is None or isinstance(item, dict):
        return item
    array = np.asarray(item)
    return array.astype(np.object_) if array.dtype.kind in "UST" else array


def attrs_of(node: onnx.NodeProto) -> Attrs:
    return {attribute.name: _attribute(attribute) for attribute in node.attribute}


def _attribute(attribute: onnx.AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return to_value(value)
    if isinstance(value, onnx.TypeProto):
        return from_type_proto(value)
    if isinstance(value, bytes):
        return value.decode()
    if attribute.type == onnx.AttributeProto.STRINGS:
        return tuple(item.decode() for item in value)
    return tuple(value) if not isinstance(value, (int, float, str)) else value


def _cases_of(test: Any) -> list[Case]:
    model: onnx.ModelProto = test.model
    if len(model.graph.node) != 1:
        return []
    node = model.graph.node[0]
    domain = "" if node.domain == "ai.onnx" else node.domain
    op = f"{domain}::{node.op_type}" if domain else node.op_type
    schema = schema_of(op)
    versions = {
        ("" if entry.domain == "ai.onnx" else entry.domain): entry.version
        for entry in model.opset_import
    }
    nested = any(attribute.type == onnx.AttributeProto.GRAPH for attribute in node.attribute)
    if (
        op not in REGISTRY
        or schema is None
        or versions[domain] < schema.since_version
        or op in INTERPRETED
        or nested
    ):
        return []
    found = []
    for index, (inputs, outputs) in enumerate(test.data_sets):
        given = dict(
            zip((item.name for item in model.graph.input), map(to_value, inputs), strict=True)
        )
        wanted = dict(
            zip((item.name for item in model.graph.output), map(to_value, outputs), strict=True)
        )
        call = Call(
            op,
            attrs_of(node),
            tuple(given.get(name) if name else None for name in node.input),
            len(node.output),
        )
        name = test.name.removeprefix("test_") + (f"_{index}" if index else "")
        found.append(Case(name, call, tuple(wanted.get(name) for name in node.output)))
    return found


@functools.cache
def cases() -> dict[str, Case]:
    """Every test of a single operator in the form it has in the newest opset, by name."""
    with warnings.catch_warnings():
        # Some of the programs overflow on purpose.
        warnings.simplefilter("ignore")
        tests = collect_testcases(None)
    return {case.name: case for test in tests for case in _cases_of(test)}


def type_variants(case: Case) -> Iterator[tuple[str, TypeQuery]]:
    """The case as inference may meet it: all values known, then only types, then types with less
    and less of their shapes.
    """
    types = tuple(None if value is None else type_of(value) for value in case.call.inputs)
    unknown = (None,) * len(types)
    yield "values", _query(case, types, case.call.inputs)
    yield "types", _query(case, types, unknown)
    yield "names", _query(case, tuple(_blur(kind, "names") for kind in types), unknown)
    yield "ranks", _query(case, tuple(_blur(kind, "ranks") for kind in types), unknown)
    yield "dtypes", _query(case, tuple(_blur(kind, "dtypes") for kind in types), unknown)


def _query(case: Case, types: tuple[ValueType | None, ...], values: tuple[Any, ...]) -> TypeQuery:
    return TypeQuery(case.call.op, case.call.attrs, types, values, case.call.n_outputs)


def _blur(kind: ValueType | None, keep: str) -> ValueType | None:
    if isinstance(kind, SequenceType):
        element = _blur(kind.element, keep)
        assert element is not None
        return SequenceType(element)
    if not isinstance(kind, TensorType) or kind.shape is None:
        return kind
    if keep == "names":
        # Equal lengths get equal names, as a model that knows its own dimensions would have it.
        return TensorType(kind.dtype, tuple(f"d{dim}" for dim in kind.shape))
    return TensorType(kind.dtype, (None,) * len(kind.shape) if keep == "ranks" else None)
