"""Models whose weights are one number repeated get random ones."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from whence.frontends.onnx.random_weights import has_filled_weights, with_random_weights


def _filled(op: str = "Conv") -> onnx.ModelProto:
    fill = helper.make_tensor("value", TensorProto.FLOAT, [1], [0.02])
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["w"], value=fill),
        helper.make_node(op, ["x", "w"], ["y"]),
    ]
    shape = numpy_helper.from_array(np.array([5, 3, 1, 1], np.int64), "shape")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 4, 4])
    y = helper.make_empty_tensor_value_info("y")
    return helper.make_model(helper.make_graph(nodes, "filled", [x], [y], [shape]))


def test_a_fill_that_is_no_weight_stays() -> None:
    assert has_filled_weights(_filled("Conv"))
    assert not has_filled_weights(_filled("Add"))


def test_every_filter_gets_weights_of_its_own() -> None:
    model = with_random_weights(_filled())
    assert not has_filled_weights(model)
    (weights,) = (
        numpy_helper.to_array(each) for each in model.graph.initializer if each.name == "w"
    )
    assert weights.shape == (5, 3, 1, 1)
    assert len({filter_.tobytes() for filter_ in weights}) == 5
