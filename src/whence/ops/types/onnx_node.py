"""One operator as the `onnx` package sees it: its schema at the newest opset and a `NodeProto` to
hand to the package's own machinery.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnx.defs
import onnx.helper
import onnx.numpy_helper

from whence.errors import UnsupportedError
from whence.ops.definition import Attrs
from whence.types import DType, MapType, OptionalType, SequenceType, TensorType, ValueType


def split_name(op: str) -> tuple[str, str]:
    """Domain and name of an operator: ("ai.onnx.ml", "Scaler") of `ai.onnx.ml::Scaler`."""
    domain, _, name = op.rpartition("::")
    return domain, name


def _newest_opsets() -> Mapping[str, int]:
    # The package's own table: its schemas, asked one by one, take 20 ms at every import. One of the
    # domains in it has no operators.
    versions = onnx.defs.C.schema_version_map()
    return MappingProxyType(
        {domain: newest for domain, (_, newest) in versions.items() if domain != "ai.onnx.training"}
    )


NEWEST_OPSETS: Mapping[str, int] = _newest_opsets()


def schema_of(op: str) -> onnx.defs.OpSchema | None:
    """The newest schema that is not deprecated; `None` when the package does not know it."""
    domain, name = split_name(op)
    version = NEWEST_OPSETS.get(domain, 0)
    while version > 0:
        try:
            schema = onnx.defs.get_schema(name, version, domain)
        except onnx.defs.SchemaError:
            return None
        if not schema.deprecated:
            return schema
        version = schema.since_version - 1
    return None


def operand_names(given: Sequence[object], n_outputs: int) -> tuple[list[str], list[str]]:
    """Names of the operands that are given, with gaps but none at the end, and of the outputs."""
    inputs = ["" if each is None else f"i{index}" for index, each in enumerate(given)]
    while inputs and not inputs[-1]:
        inputs.pop()
    return inputs, [f"o{index}" for index in range(n_outputs)]


def opset_imports(op: str) -> list[onnx.OperatorSetIdProto]:
    """The opsets to read `op` at."""
    return [onnx.helper.make_opsetid(domain, version) for domain, version in opsets_for(op).items()]


def opsets_for(op: str) -> dict[str, int]:
    """The opset of each domain to read `op` at: the newest, or the last that has it."""
    domain, name = split_name(op)
    opsets = dict(NEWEST_OPSETS)
    schema = schema_of(op)
    if schema is not None and onnx.defs.get_schema(name, NEWEST_OPSETS[domain], domain).deprecated:
        opsets[domain] = schema.since_version
    return opsets


def make_node(
    op: str, attrs: Attrs, inputs: Sequence[str], outputs: Sequence[str]
) -> onnx.NodeProto:
    """The operator as a node. Attribute kinds come from the schema, so that an empty list or a
    whole number lands right.
    """
    domain, name = split_name(op)
    schema = schema_of(op)
    node = onnx.helper.make_node(name, inputs, outputs, domain=domain)
    for key, value in sorted(attrs.items()):
        # The schema's kinds carry the names of the file format's kinds.
        declared = ""
        if schema is not None and key in schema.attributes:
            declared = str(schema.attributes[key].type).rpartition(".")[2]
        kind = onnx.AttributeProto.AttributeType.Value(declared) if declared else None
        node.attribute.append(
            onnx.helper.make_attribute(key, _plain(value, declared), attr_type=kind)
        )
    return node


def _plain(value: Any, declared: str) -> Any:
    if declared == "FLOAT":
        return float(value)
    if declared == "FLOATS":
        return [float(item) for item in value]
    if isinstance(value, np.ndarray):
        return to_tensor_proto(value)
    if isinstance(value, (TensorType, SequenceType, OptionalType, MapType)):
        return to_type_proto(value)
    return list(value) if isinstance(value, tuple) else value


def to_tensor_proto(value: np.ndarray) -> onnx.TensorProto:
    return onnx.numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape))


def to_type_proto(kind: ValueType) -> onnx.TypeProto:
    """The type as the package has it: a name is a `dim_param`, an unknown dimension empty."""
    match kind:
        case TensorType(dtype, shape):
            return onnx.helper.make_tensor_type_proto(int(dtype), shape)
        case SequenceType(element):
            return onnx.helper.make_sequence_type_proto(to_type_proto(element))
        case OptionalType(element):
            return onnx.helper.make_optional_type_proto(to_type_proto(element))
        case MapType(key, value):
            return onnx.helper.make_map_type_proto(int(key), to_type_proto(value))


def from_type_proto(proto: onnx.TypeProto) -> ValueType:
    """The other way round. A type that says nothing is `UNKNOWN`, a sparse tensor a dense one."""
    which = proto.WhichOneof("value")
    if which == "sequence_type":
        return SequenceType(from_type_proto(proto.sequence_type.elem_type))
    if which == "optional_type":
        return OptionalType(from_type_proto(proto.optional_type.elem_type))
    if which == "map_type":
        return MapType(_dtype(proto.map_type.key_type), from_type_proto(proto.map_type.value_type))
    tensor = proto.sparse_tensor_type if which == "sparse_tensor_type" else proto.tensor_type
    shape = tuple(_from_dim(dim) for dim in tensor.shape.dim) if tensor.HasField("shape") else None
    return TensorType(_dtype(tensor.elem_type), shape)


def _dtype(number: int) -> DType:
    try:
        return DType(number)
    except ValueError:
        raise UnsupportedError(f"element type number {number} is not supported") from None


def _from_dim(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    if dim.HasField("dim_value"):
        return int(dim.dim_value)
    return str(dim.dim_param) or None
