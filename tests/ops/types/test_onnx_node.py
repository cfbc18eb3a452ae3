from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.defs
import pytest

from whence.errors import UnsupportedError
from whence.ops.types.onnx_node import (
    NEWEST_OPSETS,
    from_type_proto,
    make_node,
    opsets_for,
    schema_of,
    split_name,
)
from whence.types import DType, TensorType


def test_names() -> None:
    assert split_name("Conv") == ("", "Conv")
    assert split_name("ai.onnx.ml::Scaler") == ("ai.onnx.ml", "Scaler")


def test_newest_opsets() -> None:
    assert NEWEST_OPSETS[""] == onnx.defs.onnx_opset_version()
    assert NEWEST_OPSETS["ai.onnx.ml"] >= 5


def test_the_last_schema_of_a_deprecated_operator_is_found() -> None:
    schema = schema_of("ai.onnx.ml::TreeEnsembleRegressor")
    assert schema is not None
    assert not schema.deprecated
    assert (
        opsets_for("ai.onnx.ml::TreeEnsembleRegressor")["ai.onnx.ml"]
        == schema.since_version
        < NEWEST_OPSETS["ai.onnx.ml"]
    )
    assert opsets_for("Conv") == dict(NEWEST_OPSETS)
    assert schema_of("Nothing") is None
    assert schema_of("nowhere::Conv") is None


def test_attribute_kinds_come_from_the_schema() -> None:
    node = make_node("Resize", {"cubic_coeff_a": -1, "axes": (), "mode": "cubic"}, ["x"], ["y"])
    kinds = {attribute.name: attribute.type for attribute in node.attribute}
    assert kinds == {
        "cubic_coeff_a": onnx.AttributeProto.FLOAT,
        "axes": onnx.AttributeProto.INTS,
        "mode": onnx.AttributeProto.STRING,
    }
    node = make_node("ConstantOfShape", {"value": np.array([3], np.int8)}, ["x"], ["y"])
    assert onnx.numpy_helper.to_array(node.attribute[0].t).tolist() == [3]
    kind: Any = TensorType(DType.F16, ("n",))
    node = make_node("Optional", {"type": kind}, [], ["y"])
    assert from_type_proto(node.attribute[0].tp) == TensorType(DType.F16, ("n",))


def test_an_element_type_from_the_future() -> None:
    proto = onnx.TypeProto()
    proto.tensor_type.elem_type = 1234
    with pytest.raises(UnsupportedError, match="element type number 1234"):
        from_type_proto(proto)
