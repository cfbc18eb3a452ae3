"""Outputs of which only what is last along an axis is computed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import whence
from tests.llm.tiny_model import write_folder
from whence.errors import InputError
from whence.graph import Graph, check_graph
from whence.graph.builder import GraphBuilder
from whence.graph.only_last import only_last
from whence.types import DType

_X = np.random.default_rng(0).standard_normal((2, 5, 8)).astype(np.float32)
_W = np.random.default_rng(1).standard_normal((8, 6)).astype(np.float32)


def _scores(weights: np.ndarray = _W, *, shown: bool = False) -> Graph:
    """What a decoder ends with; `shown` gives the hidden values away, too."""
    build = GraphBuilder("scores")
    hidden = build.op("Relu", build.input("x", DType.F32, [2, 5, 8]))
    product = build.op("MatMul", hidden, build.const(weights))
    build.output("scores", build.op("Tanh", product))
    if shown:
        build.output("raw", product)
    return build.finish()


def _ops(graph: Graph) -> list[str]:
    return [node.op for node in graph if node.op not in {"Const", "Input", "Output"}]


def test_the_rows_before_the_last_are_taken_off_before_the_product() -> None:
    graph, whole = only_last(_scores(), {"scores": 1}), _scores()
    check_graph(graph)
    assert _ops(graph) == ["Gather", "Relu", "MatMul", "Tanh"]
    (made,), (expected,) = graph.run([_X]), whole.run([_X])
    np.testing.assert_allclose(made, expected[:, -1:], rtol=1e-6)


def test_an_axis_counts_from_either_end() -> None:
    (made,) = only_last(_scores(), {"scores": -2}).run([_X])
    assert made.shape == (2, 1, 6)


def test_a_value_that_is_read_elsewhere_stays_whole() -> None:
    graph = only_last(_scores(shown=True), {"scores": 1})
    check_graph(graph)
    assert _ops(graph) == ["Relu", "MatMul", "Gather", "Tanh"]
    made, raw = graph.run([_X])
    assert raw.shape == (2, 5, 6)
    np.testing.assert_allclose(made, np.tanh(raw[:, -1:]), rtol=1e-6)


@pytest.mark.parametrize("axis", [0, 2])
def test_other_axes_are_left_to_the_product_or_cut_behind_it(axis: int) -> None:
    graph, whole = only_last(_scores(), {"scores": axis}), _scores()
    check_graph(graph)
    (made,), (expected,) = graph.run([_X]), whole.run([_X])
    np.testing.assert_allclose(made, np.take(expected, [-1], axis), rtol=1e-6)
    assert _ops(graph).index("Gather") == (0 if axis == 0 else 2)


def test_matrices_that_rows_have_of_their_own_are_not_cut() -> None:
    weights = np.random.default_rng(2).standard_normal((2, 8, 6)).astype(np.float32)
    graph, whole = only_last(_scores(weights), {"scores": 0}), _scores(weights)
    check_graph(graph)
    (made,), (expected,) = graph.run([_X]), whole.run([_X])
    np.testing.assert_allclose(made, expected[-1:], rtol=1e-6)


def test_what_there_is_not_is_an_error_that_names_what_there_is() -> None:
    with pytest.raises(InputError, match="no output 'logits'; it has 'scores'"):
        only_last(_scores(), {"logits": 1})
    with pytest.raises(InputError, match="no axis 3"):
        only_last(_scores(), {"scores": 3})


def test_graphs_are_compiled_so_and_files_are_read_so(tmp_path: Path) -> None:
    model = whence.compile(_scores(), threads=1, only_last={"scores": 1})
    (whole,) = _scores().run([_X])
    np.testing.assert_allclose(model(_X), whole[:, -1:], rtol=1e-5, atol=1e-6)

    path = write_folder(tmp_path) / "model.onnx"
    names = [node.name for node in whence.load(path).outputs]
    graph = whence.load(path, only_last={names[0]: 1})
    rows = [node.op for node in graph if node.op.endswith("MatMulNBits")]
    ops = [node.op for node in graph if node.op not in {"Const", "Output"}]
    assert rows
    assert ops[-2:] == ["Gather", rows[-1]], "the product with the vocabulary has one row"
