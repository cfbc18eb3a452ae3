"""A small file cannot make whence work for long or fill memory while it is read and compiled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import whence
from whence.errors import ModelError, WhenceError


def save(
    folder: Path,
    nodes: list[onnx.NodeProto],
    shape: list[int],
    *constants: onnx.TensorProto,
    sparse: tuple[onnx.SparseTensorProto, ...] = (),
    kind: int = TensorProto.FLOAT,
    result: int = TensorProto.FLOAT,
) -> Path:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", result, None)],
        constants,
        sparse_initializer=sparse,
    )
    path = folder / "model.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    path.write_bytes(model.SerializeToString())
    return path


def sparse(name: str, dims: list[int]) -> onnx.SparseTensorProto:
    found = onnx.SparseTensorProto(dims=dims)
    found.values.CopyFrom(numpy_helper.from_array(np.ones(1, np.float32), name))
    found.indices.CopyFrom(numpy_helper.from_array(np.zeros(1, np.int64), f"{name}_indices"))
    return found


@pytest.mark.parametrize("size", [9, 2**62 + 1])
def test_a_window_wider_than_the_channels_is_all_of_them(tmp_path: Path, size: int) -> None:
    nodes = [helper.make_node("LRN", ["x"], ["y"], size=size, alpha=float(size), beta=1.0)]
    x = np.arange(1, 17, dtype=np.float32).reshape(1, 4, 2, 2)
    y = whence.compile(save(tmp_path, nodes, [1, 4, 2, 2]))(x)
    np.testing.assert_allclose(y, x / (1 + np.square(x).sum(1, keepdims=True)), rtol=1e-5)


def test_a_wide_window_is_not_unrolled(tmp_path: Path) -> None:
    nodes = [helper.make_node("LRN", ["x"], ["y"], size=1999, alpha=1999.0, beta=1.0)]
    x = np.ones((1, 1000, 1, 1), np.float32)
    y = whence.compile(save(tmp_path, nodes, [1, 1000, 1, 1]))(x)
    np.testing.assert_allclose(y, x / 1001, rtol=1e-5)


def test_a_wide_concatenation_is_not_one_expression(tmp_path: Path) -> None:
    """Compilers take minutes over a choice between a thousand parts."""
    relu = helper.make_node("Relu", ["x"], ["r"])
    nodes = [relu, helper.make_node("Concat", ["r"] * 1000, ["y"], axis=0)]
    x = np.array([[-1, 2, 3]], np.float32)
    y = whence.compile(save(tmp_path, nodes, [1, 3]))(x)
    np.testing.assert_array_equal(y, np.repeat(np.maximum(x, 0), 1000, axis=0))


def test_ranks(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="3000 dimensions, and the limit is 64"):
        whence.load(save(tmp_path, [helper.make_node("Relu", ["x"], ["y"])], [1] * 3000))
    many = helper.make_tensor("c", TensorProto.FLOAT, [1] * 3000, [1.0])
    add = [helper.make_node("Add", ["x", "c"], ["y"])]
    with pytest.raises(ModelError, match="tensor 'c' has 3000 dimensions, and the limit is 64"):
        whence.load(save(tmp_path, add, [1], many))
    shape = numpy_helper.from_array(np.ones(100, np.int64), "s")
    for op in ("Reshape", "Expand"):
        node = helper.make_node(op, ["x", "s"], ["y"], name="mine")
        with pytest.raises(
            ModelError, match=rf"'mine' .*{op}.*100 dimensions, and the limit is 64"
        ):
            whence.load(save(tmp_path, [node], [1], shape))


def test_sparse_tensors_count_together(tmp_path: Path) -> None:
    names = [f"c{index}" for index in range(8)]
    nodes = [helper.make_node("Sum", ["x", *names], ["y"])]
    with pytest.raises(
        ModelError, match=r"sparse tensor 'c0' is declared .* the limit is 268435456"
    ):
        whence.load(save(tmp_path, nodes, [1], sparse=tuple(sparse(n, [1 << 27]) for n in names)))
    with pytest.raises(
        ModelError, match=r"sparse tensor 'c4' is declared .* the limit is 268435456"
    ):
        whence.load(save(tmp_path, nodes, [1], sparse=tuple(sparse(n, [1 << 24]) for n in names)))
    with pytest.raises(ModelError, match=r"sparse tensor 'c0' has 300 dimensions"):
        whence.load(save(tmp_path, nodes, [1], sparse=(sparse("c0", [1] * 300),)))


def test_text_is_not_doubled_while_compiling(tmp_path: Path) -> None:
    nodes = [helper.make_node("StringConcat", [f"v{i}", f"v{i}"], [f"v{i + 1}"]) for i in range(45)]
    nodes.append(helper.make_node("StringConcat", ["v45", "x"], ["y"]))
    text = numpy_helper.from_array(np.array(["abcd"], object), "v0")
    string = TensorProto.STRING
    model = whence.compile(save(tmp_path, nodes, [1], text, kind=string, result=string))
    with pytest.raises(
        ModelError, match=r"\(StringConcat\): .* characters, and the limit is 268435456"
    ):
        model(np.array(["x"], object))


def test_patterns_are_judged_when_the_model_is_read(tmp_path: Path) -> None:
    node = helper.make_node("RegexFullMatch", ["x"], ["y"], name="mine", pattern=r"(a)\1")
    path = save(tmp_path, [node], [1], kind=TensorProto.STRING, result=TensorProto.BOOL)
    with pytest.raises(ModelError, match=r"'mine' .*RegexFullMatch\): its pattern has a backrefer"):
        whence.load(path)


@pytest.mark.parametrize("sizes", [(1, 1, 7, 2**50), (1, 0, 2**63 - 1, 3)])
def test_an_image_beyond_memory(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    nodes = [helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="nearest")]
    wanted = numpy_helper.from_array(np.array(sizes, np.int64), "sizes")
    with pytest.raises(WhenceError, match=r"no memory|of \d+ bytes"):
        whence.compile(save(tmp_path, nodes, [1, 1, 2, 2], wanted))(
            np.ones((1, 1, 2, 2), np.float32)
        )
