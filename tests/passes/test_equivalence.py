"""Comparing what a graph computes before and after."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.graph.making import F32X4, chain, fresh
from whence.errors import GraphError
from whence.graph import Graph, Node, Ref
from whence.graph.builder import GraphBuilder
from whence.passes.equivalence import EquivalenceProbe, difference, random_inputs
from whence.types import DType, OptionalType, SequenceType, TensorType, ValueType

NAN, INF = float("nan"), float("inf")


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


class TestDifference:
    @pytest.mark.parametrize(
        ("left", "right", "expected"),
        [
            (f32(1, 2), f32(1, 2), 0.0),
            (f32(0, 10), f32(1, 10), 0.1),
            (f32(0, 0), f32(0, 0.5), 0.5),
            (f32(NAN, 1), f32(NAN, 1), 0.0),
            (f32(INF, 1), f32(INF, 1), 0.0),
            (f32(NAN), f32(NAN), 0.0),
            (f32(), f32(), 0.0),
            (np.array(["a"], object), np.array(["a"], object), 0.0),
            (np.array([True]), np.array([True]), 0.0),
            (np.array([1, 2], DType.BF16.numpy), np.array([1, 2], DType.BF16.numpy), 0.0),
            (np.array([1 + 2j]), np.array([1 + 2j]), 0.0),
            (np.int64(50_001), np.int64(50_000), 1.0),
            ([f32(1), f32(2)], [f32(1), f32(1)], 0.5),
            ([], [], 0.0),
            (None, None, 0.0),
            ({"a": 1.0}, {"a": 1.0}, 0.0),
        ],
    )
    def test_finite(self, left: Any, right: Any, expected: float) -> None:
        assert difference(left, right) == pytest.approx(expected)

    @pytest.mark.parametrize(
        ("left", "right"),
        [
            (f32(1), f32(1, 1)),
            (f32(1), np.array([1.0])),
            (f32(NAN), f32(1)),
            (f32(1), f32(NAN)),
            (f32(INF), f32(-INF)),
            (f32(INF), f32(NAN)),
            (np.array(["a"], object), np.array(["b"], object)),
            (np.array([True]), np.array([False])),
            ([f32(1)], []),
            ([f32(1)], f32(1)),
            (None, f32(1)),
            ({"a": 1.0}, {"b": 1.0}),
        ],
    )
    def test_infinite(self, left: Any, right: Any) -> None:
        assert difference(left, right) == INF


class TestInputs:
    @pytest.mark.parametrize(
        ("kind", "shape", "dtype"),
        [
            (F32X4, (4,), np.float32),
            (TensorType(DType.F32, ("batch", 3, None)), (2, 3, 2), np.float32),
            (TensorType(DType.F16, ()), (), np.float16),
            (TensorType(DType.I64, (5,)), (5,), np.int64),
            (TensorType(DType.BOOL, (5,)), (5,), np.bool_),
            (TensorType(DType.STRING, (2,)), (2,), np.object_),
            (TensorType(DType.F32, None), (), np.float32),
            (TensorType(DType.BF16, (3,)), (3,), DType.BF16.numpy),
        ],
    )
    def test_fit_the_declared_type(
        self, kind: TensorType, shape: tuple[int, ...], dtype: Any
    ) -> None:
        graph = signature(kind)
        value = random_inputs(graph)["in"]
        assert value.shape == shape
        assert value.dtype == dtype
        assert graph.run(random_inputs(graph))[0].shape == shape

    def test_same_seed_same_inputs(self) -> None:
        graph = signature(F32X4)
        assert np.array_equal(random_inputs(graph, 3)["in"], random_inputs(graph, 3)["in"])
        assert not np.array_equal(random_inputs(graph, 3)["in"], random_inputs(graph, 4)["in"])

    def test_sequences_and_optionals_are_empty(self) -> None:
        assert random_inputs(signature(SequenceType(F32X4))) == {"in": []}
        assert random_inputs(signature(OptionalType(F32X4))) == {"in": None}


def signature(kind: ValueType) -> Graph:
    graph = Graph()
    node = graph.append(Node(graph.new_id(), "Input", (), (kind,), name="in"))
    graph.append(Node(graph.new_id(), "Output", (node.ref(),), (), name="out"))
    return graph


class TestProbe:
    def test_an_unchanged_graph(self) -> None:
        graph = chain("Relu", "Neg")
        EquivalenceProbe(graph).compare(graph, "p")

    def test_a_changed_graph(self) -> None:
        graph = chain("Relu", "Neg")
        probe = EquivalenceProbe(graph)
        graph.set_input(graph.outputs[0], 0, Ref(1))
        with pytest.raises(
            GraphError, match="pass 'p' changed output 'y' by 2 of its largest magnitude"
        ):
            probe.compare(graph, "p")

    def test_a_graph_that_does_not_run_any_more(self) -> None:
        graph = chain("Relu", "Neg")
        probe = EquivalenceProbe(graph)
        broken = graph.insert_before(graph.outputs[0], fresh(graph, "vendor::Nothing", graph[1]))
        graph.set_input(graph.outputs[0], 0, broken.ref())
        with pytest.raises(
            GraphError, match=r"pass 'p' left a graph that does not run any more: .*Nothing"
        ):
            probe.compare(graph, "p")

    def test_outputs_that_disappeared(self) -> None:
        graph = chain("Relu")
        probe = EquivalenceProbe(graph)
        graph.remove(graph.outputs[0])
        with pytest.raises(GraphError, match="pass 'p' left 0 outputs, there were 1"):
            probe.compare(graph, "p")

    def test_random_models_are_not_compared(self) -> None:
        build = GraphBuilder()
        build.output("y", build.op("RandomNormalLike", build.input("x", DType.F32, [4])))
        graph = build.finish()
        probe = EquivalenceProbe(graph)
        assert not probe.comparable
        assert probe.why_not == "the model draws random numbers"
        probe.compare(graph, "p")

    def test_models_that_cannot_run_are_not_compared(self) -> None:
        graph = chain("Relu")
        graph[1].op = "vendor::Nothing"
        probe = EquivalenceProbe(graph)
        assert not probe.comparable
        assert "Nothing" in probe.why_not
        probe.compare(graph, "p")
