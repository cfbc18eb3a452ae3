"""Which module an operator belongs to, and how that is known."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.attribution.harness import profile_of
from whence.attribution.modules import Module, ModuleEvidence, find_modules, module_of_weight
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.types import DType


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("layer1.0.conv1.weight", "layer1.0.conv1"),
        ("encoder.layer.0.attention.self.query.bias", "encoder.layer.0.attention.self.query"),
        (
            "encoder.layer.0.attention.self.query.weight_quantized",
            "encoder.layer.0.attention.self.query",
        ),
        ("lstm.weight_ih_l0_reverse", "lstm"),
        ("model/dense/kernel", "model.dense"),
        ("conv2d_10.w_0", "conv2d_10"),
        ("fire5/squeeze1x1_w_0", "fire5.squeeze1x1"),
        ("onnx::Conv_1270", ""),
        ("weight", ""),
        ("val_12", ""),
        ("", ""),
    ],
)
def test_a_weight_s_name_is_a_path_to_it(name: str, module: str) -> None:
    assert module_of_weight(name) == module


def test_folding_leaves_a_sibling_s_metadata_and_the_weight_knows_better() -> None:
    graph = _network(module="layer1.0.bn1")
    found = find_modules(graph)
    assert found[1] == Module("layer1.0.conv1", ModuleEvidence.WEIGHTS)
    assert found[2] == Module("layer1.0.relu", ModuleEvidence.METADATA)


def test_a_shared_weight_does_not_move_an_operator_into_another_module() -> None:
    assert find_modules(_network(module="lm_head.proj"))[1] == Module(
        "lm_head.proj", ModuleEvidence.METADATA
    )


def test_a_module_around_the_weight_s_says_less() -> None:
    assert find_modules(_network(module="layer1"))[1].path == "layer1.0.conv1"


def test_names_and_neighbours_where_nothing_else_is_said() -> None:
    build = GraphBuilder("plain")
    x = build.input("x", DType.F32, [8, 16])
    one, two = (
        build.const(np.ones((16, 16), np.float32), name=f"block.{name}.weight")
        for name in ("fc1", "fc2")
    )
    first = build.op("MatMul", x, one, name="MatMul_1")
    between = build.op("Relu", first, name="Relu_2")
    second = build.op("MatMul", between, two, name="MatMul_3")
    build.output("y", build.op("Exp", second, name="/head/act/Exp"))
    found = find_modules(build.finish())
    assert [found[number] for number in (1, 2, 3, 4)] == [
        Module("block.fc1", ModuleEvidence.WEIGHTS),
        Module("block", ModuleEvidence.NEIGHBOURS),
        Module("block.fc2", ModuleEvidence.WEIGHTS),
        Module("head.act", ModuleEvidence.NAME),
    ]


def test_a_layer_without_a_name_is_not_taken_for_its_neighbour() -> None:
    build = GraphBuilder("plain")
    x = build.input("x", DType.F32, [8, 16])
    named = build.const(np.ones((16, 16), np.float32), name="a.weight")
    nameless = build.const(np.ones((16, 16), np.float32), name="onnx::MatMul_7")
    x = build.op("MatMul", x, named, name="first")
    build.output("y", build.op("MatMul", x, nameless, name="second"))
    assert set(find_modules(build.finish())) == {1}


def test_a_product_without_a_name_belongs_to_its_bias() -> None:
    build = GraphBuilder("plain")
    x = build.input("x", DType.F32, [8, 16])
    nameless = build.const(np.ones((16, 16), np.float32), name="val_49")
    bias = build.const(np.ones(16, np.float32), name="layer.0.query.bias")
    product = build.op("MatMul", x, nameless, name="node_MatMul_1")
    build.output("y", build.op("Add", product, bias, name="node_Add_2"))
    found = find_modules(build.finish())
    assert found[1] == found[2] == Module("layer.0.query", ModuleEvidence.WEIGHTS)


def test_groups_by_depth_add_up() -> None:
    found = profile_of(_network(module="layer1.0.bn1"), 1_000_003)
    whole = {group.key: group.time_ns for group in found.by("module")}
    assert set(whole) == {"layer1.0.conv1", "layer1.0.relu"}
    (rolled,) = found.by("module", depth=2)
    assert (rolled.key, rolled.time_ns) == ("layer1.0", sum(whole.values()))
    assert found.sources[0].module_from == "weights"


def _network(module: str) -> Graph:
    """A product whose weight is of `layer1.0.conv1`, with this metadata, and an activation."""
    build = GraphBuilder("net")
    x = build.input("x", DType.F32, [8, 16])
    weight = build.const(np.ones((16, 16), np.float32), name="layer1.0.conv1.weight")
    product = build.op("MatMul", x, weight, name="node_Conv_1")
    build.output("y", build.op("Relu", product, name="node_relu"))
    graph = build.finish()
    for number, path in enumerate((module, "layer1.0.relu")):
        source = graph.ledger.sources[number]
        graph.ledger.sources[number] = dataclasses.replace(source, module=path)
    return graph
