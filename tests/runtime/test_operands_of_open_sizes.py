"""Operands that only the sizes of a call show to be wrong are refused by name, compiled as well."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import whence
from whence.errors import WhenceError
from whence.frontends.onnx.reader import read_onnx


def test_an_integer_product_whose_inner_sizes_differ() -> None:
    weights = np.arange(12, dtype=np.uint8).reshape(4, 3)
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"], name="product")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [3, "n"])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, None)],
        [helper.make_tensor("w", TensorProto.UINT8, [4, 3], weights.tobytes(), raw=True)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 10)], ir_version=8)
    compiled = whence.compile(read_onnx(model.SerializeToString()))
    x = np.arange(12, dtype=np.uint8).reshape(3, 4)
    np.testing.assert_array_equal(compiled(x), x.astype(np.int32) @ weights)
    with pytest.raises(WhenceError, match=r"product.*MatMulInteger.*inner dimensions differ"):
        compiled(x[:, :2].copy())


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("start", [-1, -2, 3])
def test_a_cache_has_no_places_before_its_first_or_behind_its_last(start: int, fixed: bool) -> None:
    starts = np.array([1, start], np.int64)
    given = helper.make_tensor_value_info("at", TensorProto.INT64, [2])
    held = helper.make_tensor("at", TensorProto.INT64, [2], starts)
    graph = helper.make_graph(
        [helper.make_node("TensorScatter", ["past", "new", "at"], ["y"], name="append")],
        "g",
        [
            helper.make_tensor_value_info("past", TensorProto.FLOAT, [2, 4, 3]),
            helper.make_tensor_value_info("new", TensorProto.FLOAT, [2, 2, 3]),
            *([] if fixed else [given]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [held] if fixed else [],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=12)
    past, new = np.zeros((2, 4, 3), np.float32), np.ones((2, 2, 3), np.float32)
    feeds = (past, new) if fixed else (past, new, starts)
    with pytest.raises(WhenceError, match=r"append.*TensorScatter"):
        whence.compile(read_onnx(model.SerializeToString()))(*feeds)


@pytest.mark.parametrize("length", [-1, -9, 4, 1 << 40])
def test_a_sequence_is_as_long_as_the_axis_at_most(length: int) -> None:
    graph = helper.make_graph(
        [helper.make_node("ReverseSequence", ["x", "n"], ["y"], name="turn")],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 2]),
            helper.make_tensor_value_info("n", TensorProto.INT64, [2]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 2])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    read = read_onnx(model.SerializeToString())
    x, lengths = np.ones((3, 2), np.float32), np.array([3, length])
    with pytest.raises(WhenceError, match=r"turn.*ReverseSequence"):
        read.run([x, lengths])
    with pytest.raises(WhenceError, match=r"turn.*ReverseSequence"):
        whence.compile(read)(x, lengths)
