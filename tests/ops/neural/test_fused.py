from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.ops.oracle import assert_close, assert_infers, evaluate, flops, run_onnxruntime
from whence.errors import UnsupportedError
from whence.ops.definition import TypeQuery
from whence.ops.neural.fused import FUSED_ACTIVATIONS, OPS, Arg, ExpandedOp, Result, Scalar, expand
from whence.types import DType, TensorType

DEFINITIONS = {definition.name: definition for definition in OPS}
NUMBERS = {
    "LeakyRelu": {"activation_alpha": 0.2},
    "Clip": {"activation_alpha": -0.5, "activation_beta": 0.75},
    "HardSigmoid": {"activation_alpha": 0.3, "activation_beta": 0.4},
    "Swish": {"activation_alpha": 1.5},
    "Elu": {"activation_alpha": 0.7},
}


def expanded(op, attrs, inputs, like):
    """The supernode as a plain ONNX model, evaluated by ONNX Runtime; its output is `like` this
    array.
    """
    types = [None if value is None else TensorType.of(value) for value in inputs]
    steps = expand(op, attrs, types)
    constants: list[onnx.TensorProto] = []
    nodes = []

    def name(slot):
        if isinstance(slot, Arg):
            return f"i{slot.index}"
        if isinstance(slot, Result):
            return f"s{slot.step}"
        constants.append(
            onnx.numpy_helper.from_array(
                np.array(slot.value, inputs[0].dtype), f"c{len(constants)}"
            )
        )
        return constants[-1].name

    for index, step in enumerate(steps):
        attributes: dict[str, Any] = dict(step.attrs)
        nodes.append(
            helper.make_node(
                step.op, [name(slot) for slot in step.inputs], [f"s{index}"], **attributes
            )
        )
    given = {f"i{index}": value for index, value in enumerate(inputs) if value is not None}
    graph = helper.make_graph(
        nodes,
        "expansion",
        [
            helper.make_tensor_value_info(
                key, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
            )
            for key, value in given.items()
        ],
        [
            helper.make_tensor_value_info(
                f"s{len(steps) - 1}", helper.np_dtype_to_tensor_dtype(like.dtype), like.shape
            )
        ],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    onnx.checker.check_model(model)
    return run_onnxruntime(model, given)[0]


def check(op, attrs, inputs):
    """Reference, inference and expansion agree; the expansion is evaluated by ONNX Runtime."""
    (actual,) = evaluate(DEFINITIONS[op], attrs, inputs)
    assert_close(actual, expanded(op, attrs, inputs, actual), 1e-4, 1e-5)
    assert_infers(DEFINITIONS[op], attrs, inputs, [actual])


def normal(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("activation", ["", *FUSED_ACTIVATIONS])
@pytest.mark.parametrize(("bias", "residual"), list(itertools.product([False, True], repeat=2)))
def test_convolution(activation, bias, residual):
    attrs = {
        "strides": (2, 1),
        "pads": (1, 0, 1, 2),
        "group": 2,
        "activation": activation,
        **NUMBERS.get(activation, {}),
    }
    inputs = [
        normal(2, 4, 7, 6),
        normal(6, 2, 3, 3),
        normal(6) if bias else None,
        normal(2, 6, 4, 6) if residual else None,
    ]
    check("FusedConv", attrs, inputs)


@pytest.mark.parametrize("activation", ["", *FUSED_ACTIVATIONS])
@pytest.mark.parametrize("residual", [False, True])
def test_transposed_convolution(activation, residual):
    attrs = {
        "strides": (2, 2),
        "output_padding": (1, 0),
        "activation": activation,
        **NUMBERS.get(activation, {}),
    }
    inputs = [
        normal(1, 3, 4, 5),
        normal(3, 2, 3, 2),
        normal(2),
        normal(1, 2, 10, 10) if residual else None,
    ]
    check("FusedConvTranspose", attrs, inputs)


@pytest.mark.parametrize("activation", ["", *FUSED_ACTIVATIONS])
@pytest.mark.parametrize("bias", [False, True])
def test_gemm(activation, bias):
    attrs = {
        "transB": 1,
        "alpha": 0.5,
        "beta": 2.0,
        "activation": activation,
        **NUMBERS.get(activation, {}),
    }
    check(
        "FusedGemm",
        attrs,
        [normal(3, 4), normal(5, 4), normal(5)] if bias else [normal(3, 4), normal(5, 4)],
    )


@pytest.mark.parametrize("activation", ["", "Relu", "Gelu"])
@pytest.mark.parametrize("bias", [None, (5,), (2, 1, 3, 5)])
@pytest.mark.parametrize(
    ("trans_a", "trans_b", "alpha"), [(0, 0, 1.0), (1, 0, 1.0), (0, 1, 0.25), (1, 1, 0.25)]
)
def test_matmul(activation, bias, trans_a, trans_b, alpha):
    attrs = {"trans_a": trans_a, "trans_b": trans_b, "alpha": alpha, "activation": activation}
    a = normal(2, 1, 4, 3) if trans_a else normal(2, 1, 3, 4)
    b = normal(6, 5, 4) if trans_b else normal(6, 4, 5)
    check("FusedMatMul", attrs, [a, b] if bias is None else [a, b, normal(*bias)])


@pytest.mark.parametrize("activation", FUSED_ACTIVATIONS)
def test_numbers_that_are_not_given_are_onnx_s(activation):
    check("FusedMatMul", {"activation": activation}, [normal(3, 4) * 4, normal(4, 5)])


def test_float16_is_rounded_once():
    a, b, c = (value.astype(np.float16) for value in (normal(3, 64), normal(64, 5), normal(5)))
    (y,) = evaluate(DEFINITIONS["FusedMatMul"], {"activation": "Relu"}, [a, b, c])
    exact = np.maximum(a.astype(np.float64) @ b.astype(np.float64) + c.astype(np.float64), 0)
    assert y.dtype == np.float16
    assert (np.abs(y.astype(np.float64) - exact) <= 2.0**-11 * exact + 1e-4).all()


def test_expansion_reads_as_the_formula():
    f32 = TensorType(DType.F32, (2, 3, 4))
    assert expand(
        "FusedMatMul", {"trans_b": 1, "alpha": 0.5, "activation": "Swish"}, [f32, f32, f32]
    ) == [
        ExpandedOp("Transpose", (Arg(1),), {"perm": (0, 2, 1)}),
        ExpandedOp("MatMul", (Arg(0), Result(0))),
        ExpandedOp("Mul", (Result(1), Scalar(0.5))),
        ExpandedOp("Add", (Result(2), Arg(2))),
        ExpandedOp("Sigmoid", (Result(3),)),
        ExpandedOp("Mul", (Result(3), Result(4))),
    ]
    assert expand(
        "FusedConv",
        {"group": 2, "activation": "Clip", "activation_alpha": 0.0, "activation_beta": 6.0},
        [f32, f32, None, f32],
    ) == [
        ExpandedOp("Conv", (Arg(0), Arg(1)), {"group": 2}),
        ExpandedOp("Add", (Result(0), Arg(3))),
        ExpandedOp("Clip", (Result(1), Scalar(0.0), Scalar(6.0))),
    ]


def test_what_cannot_be_expanded_says_so():
    f32 = TensorType(DType.F32, None)
    with pytest.raises(UnsupportedError, match="trans_a needs an operand of known rank"):
        expand("FusedMatMul", {"trans_a": 1}, [f32, f32])
    with pytest.raises(UnsupportedError, match="activation 'Cosine' is not one of Relu"):
        expand("FusedGemm", {"activation": "Cosine"}, [f32, f32])
    with pytest.raises(UnsupportedError, match="Conv is not one of whence's supernodes"):
        expand("Conv", {}, [f32, f32])


def test_unknown_dimensions_stay_unknown():
    infer = DEFINITIONS["FusedMatMul"].infer
    assert infer is not None
    types = (
        TensorType(DType.F32, ("batch", None, 4)),
        TensorType(DType.F32, (5, 4)),
        TensorType(DType.F32, (5,)),
    )
    found = infer(TypeQuery("FusedMatMul", {"trans_b": 1}, types, (None,) * 3, 1))
    assert found == TensorType(DType.F32, ("batch", None, 5))


def test_flops_count_what_is_added_and_applied():
    inputs = [normal(1, 4, 8, 8), normal(6, 4, 3, 3), normal(6), normal(1, 6, 6, 6)]
    outputs = evaluate(DEFINITIONS["FusedConv"], {"activation": "Relu"}, inputs)
    assert flops(DEFINITIONS["FusedConv"], {"activation": "Relu"}, inputs, outputs) == 6 * 36 * (
        2 * 36 + 3
    )
