"""The sign of a zero, where something depends on it: 1 / (x · 0) is infinite with the sign of x."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import whence


@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("op", ["Reciprocal", "BitCast"])
@pytest.mark.parametrize("codes", [True, False])
def test_a_product_with_zero_keeps_its_sign(zero, op, codes):
    made = "DequantizeLinear" if codes else "Mul"
    result = TensorProto.INT32 if op == "BitCast" else TensorProto.FLOAT
    attrs: dict[str, Any] = {"to": TensorProto.INT32} if op == "BitCast" else {}
    given = TensorProto.INT8 if codes else TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node(made, ["x", "zero"], ["z"]), helper.make_node(op, ["z"], ["y"], **attrs)],
        "g",
        [helper.make_tensor_value_info("x", given, [37])],
        [helper.make_tensor_value_info("y", result, [37])],
        [numpy_helper.from_array(np.array(zero, np.float32), "zero")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 26)], ir_version=13)
    x = np.arange(-18, 19).astype(np.int8 if codes else np.float32)
    (expected,) = whence.load(model.SerializeToString()).run([x])
    np.testing.assert_array_equal(whence.compile(model)(x), expected)
    assert len(np.unique(expected)) == 2
