"""What has its size from the data, as large as it can be: against ONNX Runtime, natively."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import whence

_KINDS = {
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.int64): TensorProto.INT64,
    np.dtype(np.bool_): TensorProto.BOOL,
}


def _model(
    nodes: Sequence[onnx.NodeProto],
    feeds: dict[str, np.ndarray],
    outputs: dict[str, int],
    consts: dict[str, np.ndarray] | None = None,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(k, _KINDS[v.dtype], v.shape) for k, v in feeds.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in (consts or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _check(model: onnx.ModelProto, runs: Sequence[dict[str, np.ndarray]]) -> set[str]:
    """Run it on each, compare, and say which operators ran by their reference."""
    session = onnxruntime.InferenceSession(model.SerializeToString())
    compiled = whence.compile(model)
    for feeds in runs:
        made = compiled(**feeds)
        found = made if isinstance(made, tuple) else (made,)
        for was, now in zip(session.run(None, feeds), found, strict=True):
            assert was.dtype == now.dtype
            np.testing.assert_allclose(now, was, rtol=1e-6)
    (program,) = compiled.programs
    return {program.graph[step.nodes[0]].op for step in program.steps if not step.symbol}


def _masks(*shape: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    last = np.zeros(shape, np.bool_)
    last.reshape(-1)[-1] = True
    return [np.zeros(shape, np.bool_), np.ones(shape, np.bool_), last, rng.random(shape) < 0.4]


@pytest.mark.parametrize("shape", [(9,), (4, 5), (2, 3, 4)])
def test_places_by_coordinate(shape: tuple[int, ...]) -> None:
    nodes = [helper.make_node("NonZero", ["m"], ["y"])]
    masks = _masks(*shape)
    model = _model(nodes, {"m": masks[0]}, {"y": TensorProto.INT64})
    turned = "Reshape" if len(shape) == 1 else "Transpose"
    assert _check(model, [{"m": mask} for mask in masks]) == {"Prefix", turned}


def test_rows_that_are_picked_and_changed() -> None:
    nodes = [
        helper.make_node("NonZero", ["m"], ["z"]),
        helper.make_node("Transpose", ["z"], ["t"]),
        helper.make_node("GatherND", ["x", "t"], ["g"]),
        helper.make_node("Mul", ["g", "w"], ["p"]),
        helper.make_node("Add", ["p", "g"], ["y"]),
    ]
    x = np.random.default_rng(1).standard_normal((4, 5, 3)).astype(np.float32)
    masks = _masks(4, 5)
    model = _model(
        nodes,
        {"m": masks[0], "x": x},
        {"y": TensorProto.FLOAT},
        {"w": np.array([1, 2, 3], np.float32)},
    )
    assert _check(model, [{"m": mask, "x": x} for mask in masks]) == {"Prefix"}


def test_rows_of_a_list() -> None:
    nodes = [
        helper.make_node("NonZero", ["m"], ["z"]),
        helper.make_node("Squeeze", ["z", "zero"], ["s"]),
        helper.make_node("Gather", ["x", "s"], ["g"]),
        helper.make_node("Sqrt", ["g"], ["y"]),
    ]
    x = np.random.default_rng(1).random((9, 2)).astype(np.float32)
    masks = _masks(9)
    model = _model(
        nodes, {"m": masks[0], "x": x}, {"y": TensorProto.FLOAT}, {"zero": np.array([0])}
    )
    assert _check(model, [{"m": mask, "x": x} for mask in masks]) == {"Prefix"}


def test_rows_that_are_written_back() -> None:
    """Without a single one, what indices are computed from may be anything: here a label that is no
    place in the table.
    """
    nodes = [
        helper.make_node("NonZero", ["m"], ["z"]),
        helper.make_node("Transpose", ["z"], ["t"]),
        helper.make_node("GatherND", ["label", "t"], ["g"]),
        helper.make_node("Unsqueeze", ["g", "last"], ["i"]),
        helper.make_node("GatherND", ["x", "t"], ["u"]),
        helper.make_node("ScatterND", ["table", "i", "u"], ["y"]),
        helper.make_node("Gather", ["table", "g"], ["w"]),
    ]
    rng = np.random.default_rng(2)
    feeds = {
        "m": np.zeros((4, 5), np.bool_),
        "label": np.full((4, 5), 99, np.int64),
        "x": rng.standard_normal((4, 5)).astype(np.float32),
        "table": rng.standard_normal(30).astype(np.float32),
    }
    runs = [feeds]
    # Each label once, as the order of writing is nobody's business.
    labels = rng.permutation(20).reshape(4, 5)
    runs += [{**feeds, "m": mask, "label": labels} for mask in _masks(4, 5)]
    model = _model(
        nodes,
        feeds,
        {"y": TensorProto.FLOAT, "w": TensorProto.FLOAT},
        {"last": np.array([-1])},
    )
    assert _check(model, runs) == {"Prefix"}


def test_the_last_of_equal_places_wins() -> None:
    nodes = [
        helper.make_node("NonZero", ["m"], ["z"]),
        helper.make_node("Transpose", ["z"], ["t"]),
        helper.make_node("GatherND", ["label", "t"], ["g"]),
        helper.make_node("Unsqueeze", ["g", "last"], ["i"]),
        helper.make_node("GatherND", ["x", "t"], ["u"]),
        helper.make_node("ScatterND", ["table", "i", "u"], ["y"]),
    ]
    x = np.arange(12, dtype=np.float32)
    feeds = {
        "m": np.ones(12, np.bool_),
        "label": np.arange(12) % 3,
        "x": x,
        "table": np.full(4, -1, np.float32),
    }
    masks = _masks(12)
    model = _model(nodes, feeds, {"y": TensorProto.FLOAT}, {"last": np.array([-1])})
    assert not _check(model, [{**feeds, "m": mask} for mask in masks])


def test_how_many_there_are() -> None:
    nodes = [
        helper.make_node("NonZero", ["m"], ["z"]),
        helper.make_node("Transpose", ["z"], ["t"]),
        helper.make_node("Shape", ["t"], ["y"]),
    ]
    masks = _masks(4, 5)
    model = _model(nodes, {"m": masks[0]}, {"y": TensorProto.INT64})
    assert not _check(model, [{"m": mask} for mask in masks])


def test_many_rows_are_not_computed_for_nothing() -> None:
    """Of large rows only those that are meant are made."""
    nodes = [
        helper.make_node("NonZero", ["m"], ["z"]),
        helper.make_node("Transpose", ["z"], ["t"]),
        helper.make_node("GatherND", ["x", "t"], ["g"]),
        helper.make_node("Sqrt", ["g"], ["y"]),
    ]
    x = np.random.default_rng(1).random((64, 2048)).astype(np.float32)
    masks = _masks(64)
    model = _model(nodes, {"m": masks[0], "x": x}, {"y": TensorProto.FLOAT})
    runs = [{"m": mask, "x": x} for mask in masks]
    assert _check(model, runs) == {"Prefix", "GatherND", "Sqrt"}


@pytest.mark.parametrize("is_sorted", [0, 1])
def test_different_elements(is_sorted: int) -> None:
    names = ["values", "first", "inverse", "counts"]
    nodes = [
        helper.make_node("Unique", ["x"], names, sorted=is_sorted),
    ]
    rng = np.random.default_rng(3)
    runs = [{"x": rng.integers(0, among, (5, 6))} for among in (1, 3, 100)]
    model = _model(nodes, runs[0], dict.fromkeys(names, TensorProto.INT64))
    assert _check(model, runs) == {"Prefix"}


def test_the_number_of_each_element_needs_no_count() -> None:
    nodes = [helper.make_node("Unique", ["x"], ["a", "b", "y"])]
    rng = np.random.default_rng(3)
    runs = [{"x": rng.integers(0, among, (5, 6))} for among in (1, 3, 100)]
    model = _model(nodes, runs[0], {"y": TensorProto.INT64})
    assert not _check(model, runs)


def test_what_reads_the_number_of_each_element_is_native() -> None:
    nodes = [
        helper.make_node("Unique", ["x"], ["a", "b", "inverse"]),
        helper.make_node("Cast", ["inverse"], ["y"], to=TensorProto.INT32),
    ]
    rng = np.random.default_rng(3)
    runs = [{"x": rng.integers(0, among, (5, 6))} for among in (1, 3, 100)]
    model = _model(nodes, runs[0], {"y": TensorProto.INT32})
    assert not _check(model, runs)


def test_different_rows_stay_with_the_reference() -> None:
    nodes = [helper.make_node("Unique", ["x"], ["y"], axis=0)]
    runs = [{"x": np.random.default_rng(3).integers(0, 2, (8, 2))}]
    model = _model(nodes, runs[0], {"y": TensorProto.INT64})
    assert _check(model, runs) == {"Unique"}
