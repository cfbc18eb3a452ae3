"""Between ONNX's attribute messages and plain Python values."""

from __future__ import annotations

from typing import cast

import numpy as np
from onnx import AttributeProto, NodeProto

from whence.errors import ModelError, UnsupportedError
from whence.frontends.naming import quoted
from whence.frontends.onnx.types import TensorReader, tensor_proto, value_type
from whence.ops.definition import Attr
from whence.ops.types.onnx_node import to_type_proto
from whence.types import MapType, OptionalType, SequenceType, TensorType, ValueType

_KIND = AttributeProto


def read_attribute(proto: AttributeProto, tensors: TensorReader, owner: object) -> Attr:
    """The value of an attribute that is not a graph; `owner` is what messages call its operator.

    A type (`Optional` has one) is kept as a `ValueType`.
    """
    kind = proto.type
    if kind == _KIND.INT:
        return int(proto.i)
    if kind == _KIND.INTS:
        return tuple(proto.ints)
    if kind == _KIND.FLOAT:
        return float(proto.f)
    if kind == _KIND.STRING:
        return proto.s.decode("utf-8", "surrogateescape")
    if kind == _KIND.FLOATS:
        return tuple(proto.floats)
    if kind == _KIND.STRINGS:
        return tuple(text.decode("utf-8", "surrogateescape") for text in proto.strings)
    if kind == _KIND.TENSOR:
        return tensors.read(proto.t)
    if kind == _KIND.SPARSE_TENSOR:
        return tensors.read_sparse(proto.sparse_tensor)
    if kind == _KIND.TYPE_PROTO:
        return cast("Attr", value_type(proto.tp))
    if kind == _KIND.UNDEFINED:
        raise ModelError(
            f"{owner}: attribute {quoted(proto.name)} does not say what kind of value it has"
        )
    raise UnsupportedError(
        f"{owner}: attribute {quoted(proto.name)} is a list of tensors, graphs or types"
    )


def write_attribute(node: NodeProto, name: str, value: Attr | ValueType) -> None:
    """Add an attribute to a node message."""
    attribute = node.attribute.add()
    attribute.name = name
    if isinstance(value, (bool, int)):
        attribute.type, attribute.i = _KIND.INT, int(value)
    elif isinstance(value, float):
        attribute.type, attribute.f = _KIND.FLOAT, value
    elif isinstance(value, str):
        attribute.type, attribute.s = _KIND.STRING, value.encode("utf-8", "surrogateescape")
    elif isinstance(value, (TensorType, SequenceType, OptionalType, MapType)):
        attribute.type = _KIND.TYPE_PROTO
        attribute.tp.CopyFrom(to_type_proto(value))
    elif isinstance(value, bytes):
        attribute.type, attribute.s = _KIND.STRING, value
    elif isinstance(value, np.ndarray):
        attribute.type = _KIND.TENSOR
        attribute.t.CopyFrom(tensor_proto(value, name))
    else:
        _write_list(attribute, value)


def _write_list(
    attribute: AttributeProto,
    values: tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | tuple[bytes, ...],
) -> None:
    if all(isinstance(item, int) for item in values):
        attribute.type = _KIND.INTS
        attribute.ints.extend(int(item) for item in values)
    elif all(isinstance(item, (int, float)) for item in values):
        attribute.type = _KIND.FLOATS
        attribute.floats.extend(float(item) for item in values)
    else:
        attribute.type = _KIND.STRINGS
        attribute.strings.extend(
            item if isinstance(item, bytes) else str(item).encode("utf-8", "surrogateescape")
            for item in values
        )
