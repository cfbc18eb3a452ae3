"""Quantised ONNX models compute on codes: the same bits as ONNX Runtime, which fuses the same
patterns.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnxruntime
import pytest

from tests.exact_integers import codes
from tests.passes.quantised.litert import operators
from whence.frontends.onnx.reader import read_onnx
from whence.frontends.onnx.writer import to_model
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.passes.manager import CheckLevel, run_passes
from whence.passes.pipeline import PREPARE
from whence.passes.quantised.integer_arithmetic import IntegerArithmetic
from whence.types import DType

TYPES = {np.int8: DType.I8, np.uint8: DType.U8}


def real(build: GraphBuilder, x: Symbol, scale: Any, zero: Any, **attrs: Any) -> Symbol:
    return build.op(
        "DequantizeLinear",
        x,
        build.const(np.asarray(scale, np.float32)),
        build.const(zero),
        **attrs,
    )


def quantised(build: GraphBuilder, x: Symbol, scale: float, zero: Any) -> Symbol:
    return build.op("QuantizeLinear", x, build.const(np.float32(scale)), build.const(zero))


def onnx_runtime(
    graph: Graph, feeds: list[np.ndarray], *, optimise: bool = True
) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    # Without it, sums of two products saturate at 16 bits on processors without VNNI.
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(
        to_model(graph).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(
        session.run(
            None, dict(zip([each.name for each in session.get_inputs()], feeds, strict=True))
        )
    )


def check(
    build: GraphBuilder, feeds: list[np.ndarray], *, quanta: int = 0, optimise: bool = True
) -> Counter[str]:
    graph = build.finish()
    expected = onnx_runtime(graph, feeds, optimise=optimise)
    run_passes(graph, PREPARE, check=CheckLevel.INVARIANTS)
    assert graph.ledger.lost() == []
    for mine, other in zip(graph.run(feeds), expected, strict=True):
        assert mine.dtype == other.dtype
        assert np.abs(mine.astype(np.float64) - other.astype(np.float64)).max() <= quanta
    return operators(graph)


@pytest.mark.parametrize(
    ("x_type", "w_type"), [(np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8)]
)
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("relu", [False, True])
def test_conv(
    rng: np.random.Generator, x_type: Any, w_type: Any, per_channel: bool, relu: bool
) -> None:
    build = GraphBuilder()
    x = build.input("x", TYPES[x_type], [1, 6, 9, 8])
    scales = (0.01 + 0.002 * np.arange(8)).astype(np.float32) if per_channel else np.float32(0.011)
    zeros = (
        np.zeros(8, w_type) if per_channel else np.asarray(3 if w_type is np.uint8 else 0, w_type)
    )
    w = real(build, build.const(codes(rng, w_type, 8, 6, 3, 3)), scales, zeros, axis=0)
    bias = real(
        build,
        build.const(rng.integers(-900, 900, 8).astype(np.int32)),
        np.float32(0.02) * scales,
        np.zeros(np.shape(scales), np.int32),
        axis=0,
    )
    y = build.op(
        "Conv", real(build, x, 0.02, x_type(5)), w, bias, pads=(1, 1, 1, 1), strides=(2, 1)
    )
    build.output("y", quantised(build, build.op("Relu", y) if relu else y, 0.07, x_type(4)))
    found = check(build, [codes(rng, x_type, 1, 6, 9, 8)])
    assert found["IntegerConv"] == 1
    assert not {"DequantizeLinear", "QuantizeLinear", "Conv"} & set(found)


def test_transposes_between_convolutions_cancel(rng: np.random.Generator) -> None:
    """Also over a pool, a residual and a mean."""
    build = GraphBuilder()
    x: Symbol = build.input("x", DType.U8, [1, 4, 12, 12])
    skip = None
    for index in range(3):
        w = real(build, build.const(codes(rng, np.int8, 4, 4, 3, 3)), 0.01, np.int8(0))
        y = build.op("Conv", real(build, x, 0.05, np.uint8(100)), w, pads=(1, 1, 1, 1))
        x = quantised(build, y, 0.05, np.uint8(100))
        if index == 0:
            x = skip = build.op("MaxPool", x, kernel_shape=(2, 2), strides=(2, 2))
    assert skip is not None
    total = build.op(
        "Add", real(build, x, 0.05, np.uint8(100)), real(build, skip, 0.05, np.uint8(100))
    )
    x = quantised(build, total, 0.06, np.uint8(90))
    x = quantised(
        build, build.op("GlobalAveragePool", real(build, x, 0.06, np.uint8(90))), 0.03, np.uint8(80)
    )
    build.output("y", x)
    found = check(build, [codes(rng, np.uint8, 1, 4, 12, 12)], quanta=1)
    assert found["Transpose"] == 1
    assert found["ChannelsLastMaxPool"] == 1
    assert found["ReduceSum"] == 1


@pytest.mark.parametrize("per_column", [False, True])
def test_matmul(rng: np.random.Generator, per_column: bool) -> None:
    build = GraphBuilder()
    x = build.input("x", DType.U8, [2, 5, 16])
    scales = (0.01 + 0.001 * np.arange(7)).astype(np.float32) if per_column else np.float32(0.01)
    w = real(
        build,
        build.const(codes(rng, np.int8, 16, 7)),
        scales,
        np.zeros(np.shape(scales), np.int8),
        axis=1,
    )
    build.output(
        "y",
        quantised(
            build, build.op("MatMul", real(build, x, 0.02, np.uint8(120)), w), 0.06, np.uint8(128)
        ),
    )
    assert check(build, [codes(rng, np.uint8, 2, 5, 16)])["MatMulInteger"] == 1


def test_gemm_with_bias(rng: np.random.Generator) -> None:
    build = GraphBuilder()
    x = build.input("x", DType.U8, [5, 16])
    w = real(build, build.const(codes(rng, np.int8, 7, 16)), 0.01, np.int8(0))
    bias = real(
        build,
        build.const(rng.integers(-900, 900, 7).astype(np.int32)),
        np.float32(0.02) * np.float32(0.01),
        np.int32(0),
    )
    build.output(
        "y",
        quantised(
            build,
            build.op("Gemm", real(build, x, 0.02, np.uint8(120)), w, bias, transB=1),
            0.06,
            np.uint8(128),
        ),
    )
    assert check(build, [codes(rng, np.uint8, 5, 16)])["MatMulInteger"] == 1


@pytest.mark.parametrize("zero", [True, False])
@pytest.mark.parametrize("op", ["Conv", "Gemm", "MatMul"])
def test_layers_that_share_weights_and_bias(rng: np.random.Generator, op: str, zero: bool) -> None:
    """Each DequantizeLinear is an operator of the file, and serves two layers."""
    build = GraphBuilder()
    shape = (1, 4, 3, 3) if op == "Conv" else (3, 4)
    x = build.input("x", DType.U8, shape)
    weights = codes(rng, np.int8, *((4, 4, 1, 1) if op == "Conv" else (4, 4)))
    w = real(build, build.const(weights), 0.02, np.int8(0))
    numbers = np.zeros(4, np.int32) if zero else rng.integers(-99, 99, 4).astype(np.int32)
    b = real(build, build.const(numbers), np.float32(0.02) * np.float32(0.05), np.int32(0))
    for _ in range(2):
        value = real(build, x, 0.05, np.uint8(128))
        if op == "MatMul":
            value = build.op("Add", build.op("MatMul", value, w), b)
        else:
            value = build.op(op, value, w, b)
        x = quantised(build, value, 0.05, np.uint8(128))
    build.output("y", x)
    # ONNX Runtime's optimiser does not load a model in which two layers share their weights.
    found = check(build, [codes(rng, np.uint8, *shape)], optimise=False)
    assert found["DequantizeLinear"] == 0


@pytest.mark.parametrize("bias", [2**31 - 100, -(2**31) + 212])
def test_a_bias_that_32_bits_have_no_room_beside(rng: np.random.Generator, bias: int) -> None:
    """Sums would begin again at the other end; real numbers do not."""
    build = GraphBuilder()
    x = build.input("x", DType.U8, [2, 16])
    w = real(build, build.const(codes(rng, np.int8, 16, 4)), 0.02, np.int8(0))
    numbers = np.array([0, bias, 5, -bias // 4], np.int32)
    b = real(build, build.const(numbers), np.float32(0.02) * np.float32(0.02), np.int32(0))
    gemm = build.op("Gemm", real(build, x, 0.02, np.uint8(120)), w, b)
    build.output("y", quantised(build, gemm, 0.06, np.uint8(128)))
    found = check(build, [codes(rng, np.uint8, 2, 16)], optimise=False)
    assert found["MatMulInteger"] == 0


def test_a_product_that_stays_real(rng: np.random.Generator) -> None:
    """Exact sums, times a scale: a last place each for the scale, the sum and the product."""
    build = GraphBuilder()
    x = build.input("x", DType.U8, [5, 16])
    weights, given = codes(rng, np.int8, 16, 7), codes(rng, np.uint8, 5, 16)
    w = real(build, build.const(weights), 0.01, np.int8(0))
    build.output("y", build.op("MatMul", real(build, x, 0.02, np.uint8(120)), w))
    graph = build.finish()
    scale = float(np.float32(0.02)) * float(np.float32(0.01))
    exact = (given.astype(np.int64) - 120) @ weights.astype(np.int64) * scale
    (fused,) = onnx_runtime(graph, [given])
    run_passes(graph, PREPARE, check=CheckLevel.INVARIANTS)
    assert operators(graph)["MatMulInteger"] == 1
    limit = 3 * float(np.finfo(np.float32).eps)
    np.testing.assert_allclose(np.asarray(graph.run([given])[0]), exact, rtol=limit)
    np.testing.assert_allclose(fused, exact, rtol=limit)


@pytest.mark.parametrize("op", ["Sigmoid", "Tanh", "LeakyRelu", "Relu", "HardSwish", "Exp"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_functions_are_tables(op: str, dtype: Any) -> None:
    build = GraphBuilder()
    x = build.input("x", TYPES[dtype], [16, 16])
    build.output(
        "y", quantised(build, build.op(op, real(build, x, 0.05, dtype(10))), 0.03, dtype(3))
    )
    assert check(build, [np.arange(256, dtype=np.uint8).view(dtype).reshape(16, 16)]) == {
        "LookUp": 1
    }


@pytest.mark.parametrize("arithmetic", ["", "fixed_point"])
@pytest.mark.parametrize("op", ["MatMul", "Tanh"])
@pytest.mark.parametrize(
    "limits",
    [
        [(0.0, 3.4028235e38)],  # what frameworks write for no upper limit
        [(-3.4028235e38, -0.5)],  # below every code
        [(5.0, 6.0)],  # above every code
        [(-0.05, 0.0), (0.2, 0.3)],  # the second begins where the first has ended
    ],
)
def test_limits_that_codes_do_not_reach(
    op: str, limits: list[tuple[float, float]], arithmetic: str
) -> None:
    build = GraphBuilder()
    x = build.input("x", DType.U8, [4, 4])
    y = real(build, x, 1 / 128, np.uint8(128))
    others = [real(build, build.const(np.eye(4, dtype=np.int8)), 1.0, np.int8(0))]
    y = build.op(op, y, *(others if op == "MatMul" else ()))
    for low, high in limits:
        y = build.op("Clip", y, build.const(np.float32(low)), build.const(np.float32(high)))
    parameters = build.const(np.float32(1 / 128)), build.const(np.uint8(10))
    attrs: dict[str, Any] = {"arithmetic": arithmetic} if arithmetic else {}
    build.output("y", build.op("QuantizeLinear", y, *parameters, **attrs))
    graph = build.finish()
    data = np.arange(0, 256, 16, dtype=np.uint8).reshape(4, 4)
    expected = graph.run([data])[0]
    run_passes(graph, PREPARE)
    assert "DequantizeLinear" not in operators(graph)
    np.testing.assert_array_equal(graph.run([data])[0], expected)


def test_a_gate_is_a_table_too() -> None:
    """x · sigmoid(x) + 1, whose parts all come from one code."""
    build = GraphBuilder()
    x = real(build, build.input("x", DType.U8, [256]), 0.05, np.uint8(128))
    y = build.op(
        "Add", build.op("Mul", x, build.op("Sigmoid", x)), build.const(np.array([1.0], np.float32))
    )
    build.output("y", quantised(build, y, 0.04, np.uint8(20)))
    assert check(build, [np.arange(256, dtype=np.uint8)], quanta=1) == {"LookUp": 1}


def test_two_values_are_no_table(rng: np.random.Generator) -> None:
    build = GraphBuilder()
    a, b = (real(build, build.input(name, DType.U8, [64]), 0.05, np.uint8(128)) for name in "ab")
    build.output("y", quantised(build, build.op("Mul", a, b), 0.04, np.uint8(20)))
    found = check(build, [codes(rng, np.uint8, 64), codes(rng, np.uint8, 64)], quanta=1)
    assert found == {"DequantizeLinear": 2, "Mul": 1, "QuantizeLinear": 1}


@pytest.mark.parametrize("op", ["Concat", "Max"])
def test_what_chooses_and_moves_works_on_codes(rng: np.random.Generator, op: str) -> None:
    build = GraphBuilder()
    parts = [real(build, build.input(name, DType.I8, [4, 6]), 0.05, np.int8(7)) for name in "ab"]
    attrs: dict[str, Any] = {"axis": 1} if op == "Concat" else {}
    build.output("y", quantised(build, build.op(op, *parts, **attrs), 0.05, np.int8(7)))
    assert check(build, [codes(rng, np.int8, 4, 6), codes(rng, np.int8, 4, 6)]) == {op: 1}


def test_conv_integer(rng: np.random.Generator) -> None:
    build = GraphBuilder()
    x, zero = build.input("x", DType.U8, [1, 4, 8, 8]), build.input("zero", DType.U8, [])
    build.output(
        "y",
        build.op(
            "ConvInteger",
            x,
            build.const(codes(rng, np.uint8, 6, 2, 3, 3)),
            zero,
            group=2,
            pads=(1, 1, 1, 1),
        ),
    )
    found = check(build, [codes(rng, np.uint8, 1, 4, 8, 8), np.asarray(77, np.uint8)])
    assert found["IntegerConv"] == 1
    assert "ConvInteger" not in found


def test_operators_on_codes_are_read_as_the_same(rng: np.random.Generator) -> None:
    """QLinearConv and QLinearMatMul with constant scales arrive at the operators that a model of
    dequantise and quantise arrives at.
    """
    build = GraphBuilder()
    parameters = {
        name: build.const(value)
        for name, value in {
            "xs": np.float32(0.02),
            "xz": np.uint8(5),
            "ys": np.float32(0.07),
            "yz": np.uint8(9),
        }.items()
    }
    x = build.input("x", DType.U8, [1, 6, 9, 8])
    scales, zeros = (
        build.const((0.01 + 0.002 * np.arange(8)).astype(np.float32)),
        build.const(np.zeros(8, np.int8)),
    )
    w, bias = (
        build.const(codes(rng, np.int8, 8, 6, 3, 3)),
        build.const(rng.integers(-900, 900, 8).astype(np.int32)),
    )
    y = build.op(
        "QLinearConv",
        x,
        parameters["xs"],
        parameters["xz"],
        w,
        scales,
        zeros,
        parameters["ys"],
        parameters["yz"],
        bias,
    )
    m, one, none = (
        build.const(codes(rng, np.int8, 6, 5)),
        build.const(np.float32(0.01)),
        build.const(np.int8(0)),
    )
    z = build.op(
        "QLinearMatMul",
        y,
        parameters["ys"],
        parameters["yz"],
        m,
        one,
        none,
        parameters["ys"],
        parameters["yz"],
    )
    build.output("z", z)
    written = to_model(build.finish())
    graph = read_onnx(written)
    feeds = [codes(rng, np.uint8, 1, 6, 9, 8)]
    (expected,) = onnx_runtime(graph, feeds)
    assert operators(graph)["QuantizeLinear"] == 2
    run_passes(graph, PREPARE, check=CheckLevel.INVARIANTS)
    found = operators(graph)
    assert (found["IntegerConv"], found["MatMulInteger"]) == (1, 1)
    np.testing.assert_array_equal(graph.run(feeds)[0], expected)


def test_a_value_that_others_read_stays(rng: np.random.Generator) -> None:
    """The real sum is an output as well, so it must be computed."""
    build = GraphBuilder()
    x = build.input("x", DType.U8, [5, 16])
    y = build.op(
        "MatMul",
        real(build, x, 0.02, np.uint8(120)),
        real(build, build.input("w", DType.I8, [16, 7]), 0.01, np.int8(0)),
    )
    build.output("real", y)
    build.output("y", quantised(build, y, 0.06, np.uint8(128)))
    graph = build.finish()
    run_passes(graph, [IntegerArithmetic()], check=CheckLevel.INVARIANTS)
    assert operators(graph) == {"DequantizeLinear": 2, "MatMul": 1, "QuantizeLinear": 1}


def test_the_strictest_check_takes_the_new_arithmetic_for_granted_and_nothing_else(
    rng: np.random.Generator,
) -> None:
    """A sum whose real value lies just beside a half rounds one way in float32 and the other in
    integers.
    """
    build = GraphBuilder()
    x = build.input("x", DType.U8, [64, 33])
    w = real(build, build.const(codes(rng, np.int8, 33, 50)), 0.01, np.int8(0))
    build.output(
        "y",
        quantised(
            build, build.op("MatMul", real(build, x, 0.5, np.uint8(1)), w), 0.0399, np.uint8(128)
        ),
    )
    graph = build.finish()
    run_passes(graph, PREPARE, check=CheckLevel.OUTPUTS)
    assert operators(graph)["MatMulInteger"] == 1
    assert IntegerArithmetic.rounds_otherwise
