"""`whence why`: the life of an operator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.cli.conftest import Whence, conv_bn_relu
from whence.api import save
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.types import DType


def test_tells_the_life_of_a_folded_operator(whence: Whence, tiny: Path) -> None:
    done = whence("why", tiny, "bn1")
    assert done.code == 0
    assert "bn1 (BatchNormalization) folded" in done.out
    assert "read from the file as number 2" in done.out
    assert "by fold_batch_norm, with 'conv1'" in done.out
    assert "BN(conv(x, w, b)) = conv(x, w·s, (b-mean)·s+beta)" in done.out
    assert "now part of node" in done.out


def test_tells_why_an_operator_is_gone(whence: Whence, tiny: Path) -> None:
    done = whence("why", tiny, "same")
    assert done.code == 0
    assert "same (Identity) removed" in done.out
    assert "removed by remove_no_ops: identity" in done.out


def test_finds_operators_by_number_and_by_a_part_of_the_name(whence: Whence, tiny: Path) -> None:
    by_name = whence("why", tiny, "bn1").out
    assert whence("why", tiny, "2").out == by_name
    assert whence("why", tiny, "n1").out == by_name


def test_lists_every_operator(whence: Whence, tiny: Path) -> None:
    done = whence("why", tiny)
    assert done.code == 0
    for name in ("conv1", "bn1", "relu1", "same"):
        assert name in done.out
    assert "4 source operators: 2 live, 1 folded, 1 removed, 0 lost" in done.out
    assert "... and 2 more" in whence("why", tiny, "--limit", "2").out


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("nothing", "no operator 'nothing'"),
        ("n", "fits 2 operators"),
        ("relu2", "did you mean 'relu1'"),
        ("²", "no operator '²'"),
        ("id:²", "no operator 'id:²'"),
        ("9" * 5000, "no operator '999"),
    ],
)
def test_an_unknown_or_ambiguous_name_is_explained(
    whence: Whence, tiny: Path, wanted: str, said: str
) -> None:
    done = whence("why", tiny, wanted)
    assert done.code == 1
    assert done.out == ""
    assert said in done.err
    assert len(done.err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "name",
    ["", "a*/b", "]]>", "two\nlines", "bell\x07", "[bold red]markup[/]", "esc\x1b[31m", "中文"],
)
def test_hostile_names_are_only_text(whence: Whence, tmp_path: Path, name: str) -> None:
    path = tmp_path / "hostile.onnx"
    onnx.save(conv_bn_relu(name), path)
    done = whence("why", path, "2")
    assert done.code == 0
    assert "\x1b" not in done.out
    assert "\x07" not in done.out
    assert "(BatchNormalization) folded" in done.out.splitlines()[0]


def test_a_converted_model_still_speaks_of_the_first_file(
    whence: Whence, tiny: Path, tmp_path: Path
) -> None:
    small = tmp_path / "small.onnx"
    assert whence("convert", tiny, "-o", small).code == 0
    done = whence("why", small, "bn1")
    assert done.code == 0
    assert "bn1 (BatchNormalization) folded" in done.out
    assert "4 source operators" in whence("why", small).out
    assert "same (Identity) removed" in whence("why", small, "same").out


def test_a_live_operator_has_kernels_and_neighbours(whence: Whence, tiny: Path) -> None:
    done = whence("why", tiny, "conv1")
    assert done.code == 0
    assert "  runs in kernel " in done.out
    assert "  is fed by 'x', an input of the model" in done.out
    assert "  feeds 'bn1' (BatchNormalization), which does not run: folded" in done.out
    assert "  feeds 'relu1' (Relu) behind 'bn1', in the same kernel, kernel " in done.out
    assert "takes" not in done.out


def test_why_neighbours_are_apart_is_said(whence: Whence, tmp_path: Path) -> None:
    path = tmp_path / "apart.onnx"
    weights = numpy_helper.from_array(np.ones((8, 8), np.float32), "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("MatMul", ["a", "w"], ["y"], name="second"),
        helper.make_node("ReduceMax", ["a"], ["m"], name="largest", keepdims=0),
        helper.make_node("Exp", ["m"], ["e"], name="exp"),
    ]
    kinds = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in {"x": [8, 8], "y": [8, 8], "e": []}.items()
    }
    graph = helper.make_graph(nodes, "apart", [kinds["x"]], [kinds["y"], kinds["e"]], [weights])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path
    )
    first, second = (whence("why", path, name).out.splitlines() for name in ("first", "second"))
    reason = "      not fused: MatMul reads its inputs many times, so they are stored first"
    assert first[first.index("  feeds 'second' (MatMul), in kernel 1") + 1] == reason
    assert second[second.index("  is fed by 'first' (MatMul), in kernel 0") + 1] == reason
    assert any(line.startswith("  feeds 'largest' (ReduceMax), in kernel ") for line in first)
    assert "  feeds 'y', an output of the model" in second


def test_the_time_comes_from_a_profile_or_is_measured(
    whence: Whence, tiny: Path, tmp_path: Path
) -> None:
    assert whence("profile", tiny, "--runs", 2, "-o", tmp_path).code == 0
    saved = whence("why", tiny, "conv1", "--profile", tmp_path)
    assert saved.code == 0
    assert "  takes " in saved.out
    assert " of kernel " in saved.out
    assert "modelled; 2 runs of tiny.onnx" in saved.out
    assert "modelled; 20 runs of " in whence("why", tiny, "relu1", "--time").out
    assert "takes" not in whence("why", tiny, "same", "--time").out


def test_a_profile_of_another_model_is_refused(whence: Whence, tiny: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.onnx"
    onnx.save(conv_bn_relu("different"), other)
    assert whence("profile", other, "--runs", 1, "-o", tmp_path / "out").code == 0
    done = whence("why", tiny, "bn1", "--profile", tmp_path / "out")
    assert done.code == 1
    assert "is it of another model?" in done.err
    assert done.err.count("\n") == 1


def test_open_shapes_are_those_that_a_profile_would_take(whence: Whence, tmp_path: Path) -> None:
    path = tmp_path / "open.onnx"
    kinds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 8]) for name in "xy"]
    onnx.save(
        helper.make_model(
            helper.make_graph(
                [helper.make_node("Exp", ["x"], ["y"], name="exp")], "open", kinds[:1], kinds[1:]
            )
        ),
        path,
    )
    done = whence("why", path, "exp")
    assert "runs in kernel 0" in done.out
    assert "f32[1,8]" in done.out
    assert "these are taken: --dim n=1" in done.err
    assert "f32[4,8]" in whence("why", path, "exp", "--shape", "4x8").out
    assert "runs in kernel 0" in whence("why", path, "exp", "--shape", "x=4x8").out
    assert "runs in kernel 0" in whence("why", path, "exp", "--time").out


def test_tells_of_a_concatenation_that_is_made_in_place(whence: Whence, tmp_path: Path) -> None:
    made = [
        helper.make_node("Softmax", ["x"], ["a"], "a"),
        helper.make_node("LogSoftmax", ["x"], ["b"], "b"),
    ]
    nodes = [
        *made,
        helper.make_node("Concat", ["a", "b"], ["c"], "join", axis=0),
        helper.make_node("Softmax", ["c"], ["y"], "last"),
    ]
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, 16])
        for name, rows in (("x", 2), ("y", 4))
    )
    path = tmp_path / "joined.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "joined", [x], [y])), path)
    done = whence("why", path, "join")
    assert "in place: its inputs are written where its output lies" in done.out
    assert "runs in kernel" not in done.out
    assert (
        "feeds 'join' (Concat), in place: its inputs are written where its output lies"
        in whence("why", path, "a").out
    )


def test_why_and_profile_take_modules(whence: Whence, tmp_path: Path) -> None:
    save(network_without_names(), tmp_path / "m.onnx")
    done = whence("why", tmp_path / "m.onnx", "layer1.0.conv1")
    assert done.code == 0, done.err
    assert done.out.startswith("node_Conv_1 (MatMul) live")
    assert "module layer1.0.conv1, by its weights" in done.out
    done = whence("profile", tmp_path / "m.onnx", "--runs", 1, "--by", "module", "--depth", 1)
    assert "layer1 " in done.out
    assert whence("profile", tmp_path / "m.onnx", "--depth", 1).code == 2


def network_without_names() -> Graph:
    """A product whose weight is of `layer1.0.conv1`, and an activation."""
    build = GraphBuilder("net")
    x = build.input("x", DType.F32, [8, 16])
    weight = build.const(np.ones((16, 16), np.float32), name="layer1.0.conv1.weight")
    product = build.op("MatMul", x, weight, name="node_Conv_1")
    build.output("y", build.op("Relu", product, name="node_relu"))
    return build.finish()
