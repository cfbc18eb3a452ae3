"""Axes that do not exist, and that only become known while constants are folded, are refused: no
pass takes them for others.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import whence
from whence.errors import ModelError, WhenceError
from whence.passes.parameters import axes_from_front


def computed_axes(nodes, shape, axes):
    """A model whose operators read `axes` as a sum that the file does not hold."""
    first = [helper.make_node("Add", ["half", "rest"], ["axes"])]
    halves = [np.array(axes, np.int64), np.zeros(len(axes), np.int64)]
    graph = helper.make_graph(
        [*first, *nodes],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_value_info("y", helper.make_tensor_type_proto(TensorProto.FLOAT, None))],
        [
            helper.make_tensor("half", TensorProto.INT64, [len(axes)], halves[0]),
            helper.make_tensor("rest", TensorProto.INT64, [len(axes)], halves[1]),
            helper.make_tensor("small", TensorProto.FLOAT, [], [1e-5]),
            helper.make_tensor("pads", TensorProto.INT64, [2], [1, 1]),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


NORM = [
    helper.make_node("Mul", ["x", "x"], ["squares"]),
    helper.make_node("ReduceMean", ["squares", "axes"], ["mean"]),
    helper.make_node("Add", ["mean", "small"], ["above"]),
    helper.make_node("Sqrt", ["above"], ["root"]),
    helper.make_node("Div", ["x", "root"], ["y"]),
]
TRANSPOSED = [
    helper.make_node("Transpose", ["x"], ["t"]),
    helper.make_node("ReduceMax", ["t", "axes"], ["m"]),
    helper.make_node("Transpose", ["m"], ["y"]),
]
PADDED = [
    helper.make_node("Pad", ["x", "pads", "", "axes"], ["p"]),
    helper.make_node("MaxPool", ["p"], ["y"], kernel_shape=[2, 2]),
]


@pytest.mark.parametrize(
    ("nodes", "shape", "axes", "named"),
    [
        (NORM, [], [-3], "ReduceMean"),
        (NORM, [2, 3], [5], "ReduceMean"),
        (TRANSPOSED, [2, 3], [5], "ReduceMax"),
        (PADDED, [1, 1, 4, 4], [7], "Pad"),
    ],
)
def test_they_are_refused(nodes, shape, axes, named):
    with pytest.raises(WhenceError, match=named):
        whence.compile(computed_axes(nodes, shape, axes))(np.ones(shape, np.float32))


def test_axes_counted_from_the_front():
    assert axes_from_front((-1, 0), 3) == (2, 0)
    assert axes_from_front((), 0) == ()
    assert axes_from_front((0,), 0) is None
    assert axes_from_front((-4,), 3) is None


@pytest.mark.parametrize("perm", [[-2], [0], [1, 0], [0, 1, 2], [2, 0, 1], [0, 0, 1, 2]])
def test_a_permutation_of_another_rank_is_refused(perm):
    """The rank is known once the axes are: until then nothing is taken for the identity."""
    nodes = [
        helper.make_node("Unsqueeze", ["x", "axes"], ["u"]),
        helper.make_node("LeakyRelu", ["u"], ["r"]),
        helper.make_node("Transpose", ["r"], ["y"], perm=perm),
    ]
    model = computed_axes(nodes, ["m", 3, 4], [1])
    with pytest.raises(ModelError, match=r"'y'.*perm \[.*\] does not order the axes of f32"):
        whence.compile(model)(np.zeros((2, 3, 4), np.float32))
