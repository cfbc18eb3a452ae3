"""Half precision is computed in single and rounded where the file says so, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnxruntime
import pytest

from tests.passes.rewriting import only, operators, rewrite
from whence.api import compile_model, prepare, save
from whence.graph import Check, Graph, check_graph
from whence.graph.builder import GraphBuilder
from whence.passes.equivalence import difference
from whence.passes.lower.widen_half import WidenHalf
from whence.runtime.engine import Engine
from whence.types import DType

F16, F32, BF16 = DType.F16, DType.F32, DType.BF16


def _network(half: DType = F16) -> Graph:
    """Convolutions with what stands between them in networks, and a classifier."""
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / 8).astype(half.numpy)

    build = GraphBuilder("network")
    x = build.input("x", half, [1, 3, 16, 16])
    y = build.op(
        "Relu",
        build.op(
            "Conv",
            x,
            build.const(weights(32, 3, 3, 3)),
            build.const(weights(32)),
            pads=(1, 1, 1, 1),
            name="first",
        ),
    )
    pooled = build.op("MaxPool", y, kernel_shape=(2, 2), strides=(2, 2), name="pool")
    z = build.op("Conv", pooled, build.const(weights(32, 32, 1, 1)), name="second")
    z = build.op("Concat", build.op("Add", z, pooled), pooled, axis=1)
    z = build.op("Sigmoid", build.op("AveragePool", z, kernel_shape=(2, 2), strides=(2, 2)))
    flat = build.op("Flatten", z, axis=1)
    scores = build.op("Gemm", flat, build.const(weights(1024, 10)), build.const(weights(10)))
    build.output("y", build.op("Softmax", scores))
    build.output("features", pooled)
    return build.finish()


def test_nothing_is_lost() -> None:
    graph = _network()
    rewrite(graph, WidenHalf())
    check_graph(graph, Check.ALL)
    assert not graph.ledger.lost()
    assert {source for node in graph for source in node.origin} == set(
        range(1, graph.ledger.n_sources + 1)
    )
    first = next(node for node in graph if node.op == "Conv")
    assert [graph.ledger.source(source).name for source in first.origin] == ["first"]


@pytest.mark.parametrize("half", [F16, BF16])
def test_the_results_are_those_of_the_file_to_the_bit(half: DType) -> None:
    """The reference implementations compute in single and round once, which is what the pass writes
    out.
    """
    graph = _network(half)
    x = np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype(half.numpy)
    expected = graph.run([x])
    rewrite(graph, WidenHalf())
    for was, now in zip(expected, graph.run([x]), strict=True):
        np.testing.assert_array_equal(now.astype(np.float32), was.astype(np.float32))


def test_rounding_is_kept() -> None:
    build = GraphBuilder()
    x = build.input("x", F16, [1, 2])
    total = build.op("MatMul", x, build.const(np.array([[1.0], [1.0]], np.float16)))
    build.output("y", build.op("Sub", total, build.const(np.float16(2048))))
    graph = build.finish()
    given = [np.array([[2048, 1]], np.float16)]
    assert graph.run(given)[0].item() == 0, "2049 is no value in half precision"
    assert prepare(graph).run(given)[0].item() == 0


def test_casts_of_the_file() -> None:
    build = GraphBuilder()
    x = build.input("x", F32, [2, 4])
    low = build.op("Cast", x, to=int(F16), name="low")
    product = build.op("MatMul", low, build.const(np.ones((4, 3), np.float16)), name="product")
    build.output("high", build.op("Cast", product, to=int(F32), name="high"))
    build.output("whole", build.op("Cast", product, to=int(DType.I32), name="whole"))
    graph = build.finish()
    given = [np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32) * 10]
    expected = graph.run(given)
    rewrite(graph, WidenHalf())
    assert operators(graph).count("Cast") == 1
    assert only(graph, "Cast").attrs["to"] == int(DType.I32)
    for was, now in zip(expected, graph.run(given), strict=True):
        np.testing.assert_array_equal(now, was)
    check_graph(graph, Check.ALL)


def test_what_depends_on_the_type_is_left_alone() -> None:
    build = GraphBuilder()
    x = build.input("x", F16, [4, 4])
    product = build.op("MatMul", x, x)
    build.output("bits", build.op("BitCast", product, to=int(DType.I16)))
    graph = build.finish()
    given = [np.random.default_rng(0).standard_normal((4, 4)).astype(np.float16)]
    expected = graph.run(given)
    rewrite(graph, WidenHalf())
    np.testing.assert_array_equal(graph.run(given)[0], expected[0])


def test_compiled_against_onnx_runtime(tmp_path: Path) -> None:
    graph = _network()
    save(graph, tmp_path / "m.onnx")
    x = np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype(np.float16)
    model = compile_model(tmp_path / "m.onnx", engine=Engine(threads=2))
    assert all(step.symbol for step in model.programs[0].steps)
    results = model(x)
    peer = onnxruntime.InferenceSession(
        str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"]
    ).run(None, {"x": x})
    for was, now, reference in zip(peer, results, graph.run([x]), strict=True):
        assert now.dtype == np.float16
        assert difference(was, now) <= 5e-3
        assert difference(reference, now) <= 2e-3


def test_compiled_brain_floats() -> None:
    graph = _network(BF16)
    x = np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype(ml_dtypes.bfloat16)
    for now, reference in zip(compile_model(graph, threads=1)(x), graph.run([x]), strict=True):
        assert difference(reference.astype(np.float32), now.astype(np.float32)) <= 1e-2


@pytest.mark.parametrize("half", [F16, BF16])
def test_results_that_leave_in_half_precision(half: DType) -> None:
    """What stores half precision must not write as much as single precision would."""
    rng = np.random.default_rng(0)

    def values(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / 4).astype(half.numpy)

    build = GraphBuilder()
    x, image = build.input("x", half, [7, 33]), build.input("image", half, [1, 32, 9, 9])
    build.output("product", build.op("MatMul", x, build.const(values(33, 65))))
    build.output(
        "conv", build.op("Conv", image, build.const(values(32, 32, 3, 3)), pads=(1, 1, 1, 1))
    )
    build.output(
        "depthwise",
        build.op("Relu", build.op("Conv", image, build.const(values(32, 1, 3, 3)), group=32)),
    )
    build.output("few", build.op("Conv", image, build.const(values(3, 32, 1, 1))))
    build.output("mean", build.op("GlobalAveragePool", image))
    build.output("pool", build.op("MaxPool", image, kernel_shape=(3, 3)))
    build.output("scaled", build.op("LayerNormalization", x, build.const(values(33))))
    build.output(
        "attended",
        build.op("Attention", *[build.op("Reshape", x, build.const(np.array([1, 3, 7, 11])))] * 3),
    )
    graph = build.finish()
    given = [values(7, 33), values(1, 32, 9, 9)]
    for now, reference in zip(
        compile_model(graph, threads=1)(*given), graph.run(given), strict=True
    ):
        assert now.dtype == half.numpy
        assert difference(reference.astype(np.float32), now.astype(np.float32)) <= (
            1e-2 if half is BF16 else 2e-3
        )
