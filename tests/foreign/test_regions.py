"""Cuts, epilogues and checks on engine graphs that are made up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.foreign.models import Build, make
from tests.foreign.record import MODEL
from whence.foreign.checks import Cause
from whence.foreign.openvino_reader import read_nodes
from whence.foreign.operator_costs import OperatorCosts
from whence.foreign.placement import Placement, place
from whence.foreign.recording import EngineNode, Evidence
from whence.foreign.run import load_source
from whence.foreign.source import SourceGraph


@pytest.fixture
def net(tmp_path: Path) -> SourceGraph:
    return SourceGraph(load_source(make("residual", tmp_path)))


def placed(source: SourceGraph, *nodes: EngineNode) -> Placement:
    return place(OperatorCosts(source, MODEL, {}), nodes)


def names(source: SourceGraph, placement: Placement) -> list[list[str]]:
    return [[source[each].name for each in place.weights] for place in placement.places]


def of(source: SourceGraph, *wanted: str) -> tuple[int, ...]:
    return tuple(source.by_name[name] for name in wanted)


def test_constants_and_sizes(net: SourceGraph) -> None:
    conv = net[net.by_name["stem"]]
    assert conv.is_heavy
    assert not conv.is_constant
    assert conv.window["kernel_shape"] == (3, 3)
    assert conv.feeds_from == ()
    assert net.by_output["stem_out"] == conv.id
    assert [net[each].name for each in net.readers(conv.id)] == ["stem_bn"]


def test_everything_between_two_tensors_belongs_to_the_later_node(net: SourceGraph) -> None:
    found = placed(
        net,
        EngineNode(0, "first", "Conv", makes=of(net, "stem_relu"), is_heavy=True),
        EngineNode(1, "second", "Conv", (0,), makes=of(net, "a_relu1"), is_heavy=True),
    )
    assert names(net, found) == [
        ["stem", "stem_bn", "stem_relu"],
        ["a_conv1", "a_bn1", "a_relu1"],
    ]
    assert found.checks.edges == 1
    assert found.checks.missing == ()


def test_an_edge_that_the_engine_lacks_is_reported(net: SourceGraph) -> None:
    found = placed(
        net,
        EngineNode(0, "first", "Conv", makes=of(net, "stem_relu"), is_heavy=True),
        EngineNode(1, "second", "Conv", (), makes=of(net, "a_relu1"), is_heavy=True),
    )
    (missing,) = found.checks.missing
    assert missing.cause is Cause.PLACE
    assert found.checks.uncertain[net.by_name["a_conv1"]].startswith("the engine's graph lacks")


def test_a_convolution_with_another_window_is_uncertain(net: SourceGraph) -> None:
    node = EngineNode(
        0,
        "odd",
        "Conv",
        makes=of(net, "stem_relu"),
        is_heavy=True,
        window={"kernel_shape": (5, 5)},
    )
    found = placed(net, node)
    assert found.places[0].weights == {}
    assert "kernel_shape (5, 5)" in found.places[0].doubt


def test_a_convolution_in_place_of_none_is_uncertain(net: SourceGraph) -> None:
    found = placed(
        net,
        EngineNode(0, "conv", "Conv", makes=of(net, "stem"), is_heavy=True),
        EngineNode(1, "odd", "Conv", (0,), makes=of(net, "stem_relu"), is_heavy=True),
    )
    assert "nothing of the kind" in found.places[1].doubt
    assert found.places[1].evidence is Evidence.NONE


def test_a_node_without_a_name_is_not_guessed(net: SourceGraph) -> None:
    found = placed(
        net,
        EngineNode(0, "first", "Conv", makes=of(net, "stem_relu"), is_heavy=True),
        EngineNode(1, "what", "Mystery", (0,)),
        EngineNode(2, "pool", "Pool", (1,), makes=of(net, "pool")),
    )
    assert found.places[1].weights == {}
    assert "no name" in found.places[1].doubt


def test_a_node_that_does_nothing_is_looked_through(tmp_path: Path) -> None:
    build = Build((1, 16, 8, 8))
    x = build.op("Identity", "same", build.conv("conv", "x", 16, 16))
    source = SourceGraph(load_source(build.save(tmp_path / "m.onnx", build.op("Relu", "r", x))))
    assert source[source.by_name["r"]].feeds_from == of(source, "conv")
    assert source.by_output["same_out"] == source.by_name["conv"]
    assert source[source.by_name["same"]].stands_for == source.by_name["conv"]


def test_layout_changes_are_charged_to_the_convolution_they_are_for(net: SourceGraph) -> None:
    found = placed(
        net,
        EngineNode(0, "in", "Reorder", is_layout=True),
        EngineNode(1, "first", "Conv", (0,), makes=of(net, "stem_relu"), is_heavy=True),
        EngineNode(2, "out", "Reorder", (1,), is_layout=True),
        EngineNode(3, "pool", "Pool", (2,), makes=of(net, "pool")),
    )
    assert names(net, found)[0] == ["stem"]
    assert found.places[0].is_inserted
    assert found.places[0].evidence is Evidence.NEIGHBOUR
    # What the pool's region has too much of shows in the checks: three convolutions are in no
    # kernel that convolves.
    assert len(found.checks.heavy_elsewhere) == 4


def test_slices_of_one_tensor_are_one_split(tmp_path: Path) -> None:
    """OpenVINO makes one of them, under a name of its own."""
    build = Build((1, 16, 8, 8))
    x = build.op("Neg", "negative", "x")
    ends = []
    for part, function in (("a", "Exp"), ("b", "Softplus")):
        at = 8 * "ab".index(part)
        limits = [
            build.constant(f"{part}_{name}", np.array([value]))
            for name, value in (("from", at), ("to", at + 8), ("axis", 1))
        ]
        y = build.op("Slice", f"{part}_slice", x, *limits)
        ends.append(build.op(function, f"{part}_end", y))
    source = SourceGraph(
        load_source(build.save(tmp_path / "m.onnx", build.op("Add", "total", *ends)))
    )
    nodes = (
        EngineNode(0, "negative", "Eltwise", makes=of(source, "negative")),
        EngineNode(1, "VariadicSplit_7", "Split", (0,), merges=("Slice",)),
        EngineNode(2, "a", "Eltwise", (1,), makes=of(source, "a_end")),
        EngineNode(3, "b", "Eltwise", (1,), makes=of(source, "b_end")),
        EngineNode(4, "total", "Eltwise", (2, 3), makes=of(source, "total")),
    )
    found = placed(source, *nodes)
    alone = [["a_end"], ["b_end"], ["total"]]
    assert names(source, found) == [["negative"], ["a_slice", "b_slice"], *alone]
    assert found.checks.missing == ()
    # Behind another kernel than the one that makes the tensor, it is something else.
    elsewhere = (nodes[0], replace(nodes[1], inputs=()), *nodes[2:])
    assert names(source, placed(source, *elsewhere))[1] == []


def test_nodes_without_a_name_are_parts_of_an_operator(tmp_path: Path) -> None:
    """OpenVINO computes a dynamic quantisation by reductions, a product and a conversion, and
    subtracts zero points in front of a product of integers.
    """
    build = Build((16, 16))
    x = build.op("Exp", "exp", "x")
    codes, scale, zero = build.ops("DynamicQuantizeLinear", "quantise", 3, x)
    weight = build.constant("w", np.ones((16, 16), np.int8))
    y = build.op("MatMulInteger", "product", codes, weight, zero)
    y = build.op("Mul", "scaled", build.op("Cast", "real", y, to=1), scale)
    source = SourceGraph(load_source(build.save(tmp_path / "m.onnx", y)))
    found = placed(
        source,
        EngineNode(0, "exp", "Eltwise", holds=of(source, "exp")),
        EngineNode(1, "ReduceMax_7", "Reduce", (0,)),
        EngineNode(2, "ReduceMin_8", "Reduce", (0,)),
        EngineNode(3, "Multiply_9", "Subgraph", (1, 2)),
        EngineNode(4, "Multiply_10", "Eltwise", (0, 3)),
        EngineNode(5, "quantise_2", "Convert", (4,), holds=of(source, "quantise")),
        EngineNode(6, "Convert_11", "Convert", (5,), is_layout=True),
        EngineNode(7, "Subtract_12", "Eltwise", (6, 3)),
        EngineNode(8, "product", "MatMul", (7,), holds=of(source, "product"), is_heavy=True),
        EngineNode(9, "scaled", "Eltwise", (8, 3), holds=of(source, "real", "scaled")),
    )
    told = names(source, found)
    assert told[1:6] == [["quantise"]] * 5
    assert told[7:] == [["product"], ["product"], ["real", "scaled"]]
    assert found.places[6].is_inserted
    assert found.checks.heavy_elsewhere == {}


def test_an_operand_that_only_its_type_is_read_of_is_no_edge(tmp_path: Path) -> None:
    build = Build((4, 4))
    x = build.op("Exp", "exp", "x")
    limit = build.op("CastLike", "limit", build.op("Neg", "negative", "x"), x)
    source = SourceGraph(
        load_source(build.save(tmp_path / "m.onnx", build.op("Max", "end", x, limit)))
    )
    assert source[source.by_name["limit"]].feeds_from == of(source, "negative")


def test_what_is_computed_once_is_in_the_node_that_has_the_name(tmp_path: Path) -> None:
    """ONNX Runtime keeps one of two equal operators. The other is not in the node that reads it."""
    build = Build((4, 4))
    x, weight = build.op("Exp", "exp", "x"), build.weight("w", 4, 4)
    first = build.op("Mul", "first", x, weight)
    second = build.op("Mul", "second", x, weight)
    y = build.op("Div", "quotient", build.op("Neg", "negative", first), second)
    source = SourceGraph(load_source(build.save(tmp_path / "m.onnx", y)))
    found = placed(
        source,
        EngineNode(0, "exp", "Exp", makes=of(source, "exp")),
        EngineNode(1, "first", "Mul", (0,), makes=of(source, "first")),
        EngineNode(2, "negative", "Neg", (1,), makes=of(source, "negative")),
        EngineNode(3, "quotient", "Div", (2, 1), makes=of(source, "quotient")),
    )
    assert names(source, found)[1] == ["first", "second"]
    assert names(source, found)[3] == ["quotient"]
    assert found.checks.missing == ()


def test_a_chain_that_is_computed_once(tmp_path: Path) -> None:
    build = Build((4, 4))
    x, weight = build.op("Exp", "exp", "x"), build.weight("w", 4, 4)
    first = build.op("Neg", "first_end", build.op("Mul", "first", x, weight))
    second = build.op("Neg", "second_end", build.op("Mul", "second", x, weight))
    source = SourceGraph(
        load_source(build.save(tmp_path / "m.onnx", build.op("Add", "sum", first, second)))
    )
    found = placed(
        source,
        EngineNode(0, "exp", "Exp", makes=of(source, "exp")),
        EngineNode(1, "first", "Mul", (0,), makes=of(source, "first")),
        EngineNode(2, "first_end", "Neg", (1,), makes=of(source, "first_end")),
        EngineNode(3, "sum", "Add", (2,), makes=of(source, "sum")),
    )
    ends = ["first_end", "second_end"]
    assert names(source, found) == [["exp"], ["first", "second"], ends, ["sum"]]
    assert found.checks.missing == ()


def test_a_product_with_zeros_may_be_known_beforehand(tmp_path: Path) -> None:
    """The first step of an unrolled recurrent layer: its state is zeros of a size that is known."""
    build = Build((4, 4))
    zeros = build.op("ConstantOfShape", "zeros", build.op("Shape", "size", "x"))
    state = build.op("MatMul", "state", zeros, build.weight("w", 4, 4))
    y = build.op("Add", "sum", build.op("MatMul", "given", "x", build.weight("v", 4, 4)), state)
    source = SourceGraph(load_source(build.save(tmp_path / "m.onnx", y)))
    found = placed(
        source,
        EngineNode(0, "given", "MatMul", holds=of(source, "given"), is_heavy=True),
        EngineNode(1, "sum", "Eltwise", (0,), makes=of(source, "sum")),
    )
    assert found.checks.heavy_elsewhere == {}


def test_a_recurrent_layer_in_both_directions_is_two_nodes(tmp_path: Path) -> None:
    build = Build((5, 1, 4))
    weights = [build.weight(name, 2, 12, 4) for name in "wr"]
    (y,) = build.ops(
        "GRU", "both", 1, build.op("Exp", "exp", "x"), *weights,
        direction="bidirectional", hidden_size=4,
    )  # fmt: skip
    source = SourceGraph(
        load_source(build.save(tmp_path / "m.onnx", build.op("Neg", "negative", y)))
    )
    first = EngineNode(1, "GRUSequence_7", "RNNSeq", (0,), is_heavy=True)
    nodes = (
        EngineNode(0, "exp", "Eltwise", holds=of(source, "exp")),
        first,
        replace(first, number=2, name="GRUSequence_8"),
        EngineNode(3, "Concat_9", "Concatenation", (1, 2)),
        EngineNode(4, "negative", "Eltwise", (3,), holds=of(source, "negative")),
    )
    found = placed(source, *nodes)
    assert names(source, found)[1:3] == [["both"], ["both"]]
    assert found.checks.heavy_elsewhere == {}
    # One that reads something else is another layer's.
    other = placed(source, *nodes[:2], replace(nodes[2], inputs=()), *nodes[3:])
    assert names(source, other)[2] == []


def test_a_scale_that_was_moved_before_movements(tmp_path: Path) -> None:
    """OpenVINO scales by a constant before it moves elements, where the file moves them first."""
    build = Build((4, 4))
    shape = build.constant("shape", np.array([2, 8]))
    x = build.op("Reshape", "move", build.op("Exp", "exp", "x"), shape)
    x = build.op("Mul", "scale", x, build.constant("half", 0.5))
    y = build.op("MatMul", "product", x, build.weight("w", 8, 4))
    source = SourceGraph(load_source(build.save(tmp_path / "m.onnx", y)))
    nodes = (
        EngineNode(0, "exp", "Eltwise", holds=of(source, "exp")),
        EngineNode(1, "Multiply_7", "Subgraph", (0,), called_after=("Mul", "Div")),
        EngineNode(2, "move", "Reshape", (1,), holds=of(source, "move")),
        EngineNode(3, "product", "MatMul", (2,), holds=of(source, "product"), is_heavy=True),
    )
    found = placed(source, *nodes)
    assert names(source, found) == [["exp"], ["scale"], ["move"], ["product"]]
    assert found.checks.missing == ()
    assert found.checks.edges == 2
    # Another function, and one that a node has the name of, are left open.
    other = placed(source, nodes[0], replace(nodes[1], called_after=()), *nodes[2:])
    assert names(source, other)[1] == []
    named = replace(nodes[3], holds=of(source, "scale", "product"))
    assert names(source, placed(source, *nodes[:3], named))[1] == []


def test_nested_graphs_may_use_the_same_names(tmp_path: Path) -> None:
    """Tensors of the same name in two loops: the name of the node tells which operator it is."""
    build = Build((4, 4))
    build.op("Exp", "first", "x")
    build.op("Exp", "second", "x")
    source = SourceGraph(load_source(build.save(tmp_path / "m.onnx", "second_out")))
    made = {"t": list(of(source, "first", "second"))}
    source._made, source.by_output = made, {"t": made["t"][0]}
    assert source.maker("t", source.by_name["second"]) == source.by_name["second"]
    assert source.maker("t", None) == source.by_name["first"]
    assert source.maker("other", None) is None


def test_a_last_reshape_to_computed_sizes_belongs_to_the_kernel_before_it(tmp_path: Path) -> None:
    """OpenVINO knows the sizes beforehand, and has no node for the reshape of a result."""
    build = Build((4, 16))
    y = build.op("MatMul", "product", "x", build.weight("w", 16, 16))
    rows = build.op("Shape", "rows", y, start=0, end=1)
    size = build.op("Concat", "size", rows, build.constant("rest", np.array([4, 4])), axis=0)
    source = SourceGraph(
        load_source(build.save(tmp_path / "m.onnx", build.op("Reshape", "last", y, size)))
    )
    product = EngineNode(0, "product", "MatMul", holds=of(source, "product"), is_heavy=True)
    assert names(source, placed(source, product)) == [["product", "last"]]


def test_what_has_no_elements_needs_no_edge(tmp_path: Path) -> None:
    """The rest of a tensor behind its end: engines leave it out."""
    build = Build((1, 16, 8, 8))
    x = build.op("Neg", "negative", "x")
    size = build.op("Shape", "size", x, start=1, end=2)
    end = build.constant("end", np.array([99]))
    rest = build.op("Slice", "rest", x, size, end, build.constant("axis", np.array([1])))
    y = build.op("Exp", "other", x)
    y = build.op("Concat", "both", y, build.op("Relu", "relu", rest), axis=1)
    source = SourceGraph(load_source(build.save(tmp_path / "m.onnx", y)))
    assert {source[each].name for each in source.empty} == {"rest", "relu"}
    found = placed(
        source,
        EngineNode(0, "negative", "Eltwise", makes=of(source, "negative")),
        EngineNode(1, "other", "Eltwise", (0,), makes=of(source, "other")),
        EngineNode(2, "both", "Concat", (1,), makes=of(source, "both")),
    )
    assert found.checks.missing == ()
    assert found.checks.edges == 2


def test_what_is_computed_twice_is_in_the_kernel_that_computes_it_once(tmp_path: Path) -> None:
    """ONNX Runtime merges operators that do the same with the same constants, and keeps the names
    of one of them.
    """
    build = Build((1, 16, 8, 8))
    first, second = (build.weight(name, 16, 16, 3, 3) for name in ("first", "second"))
    ends = []
    for branch in ("a", "b"):
        x = build.op("Conv", f"{branch}_conv1", "x", first, pads=[1] * 4)
        x = build.op("Relu", f"{branch}_relu1", x)
        ends.append(build.op("Conv", f"{branch}_conv2", x, second, pads=[1] * 4))
    ends.append(build.conv("c_conv", "a_relu1_out", 16, 16))
    path = build.save(tmp_path / "m.onnx", build.op("Concat", "cat", *ends, axis=1))
    source = SourceGraph(load_source(path))
    found = placed(
        source,
        EngineNode(0, "1", "Conv", holds=of(source, "b_relu1"), is_heavy=True),
        EngineNode(1, "2", "Conv", (0,), holds=of(source, "b_conv2"), is_heavy=True),
        EngineNode(2, "3", "Conv", (0,), holds=of(source, "c_conv"), is_heavy=True),
        EngineNode(3, "cat", "Concat", (1, 2), makes=of(source, "cat")),
    )
    assert names(source, found) == [
        ["a_conv1", "a_relu1", "b_conv1", "b_relu1"],
        ["a_conv2", "b_conv2"],
        ["c_conv"],
        ["cat"],
    ]
    assert found.checks.heavy_elsewhere == {}
    assert found.checks.missing == ()


def test_a_bias_that_openvino_converts_is_charged_to_its_convolution(tmp_path: Path) -> None:
    """With bfloat16, its default where the processor has it: constants go through Reorders, which
    take time.
    """
    build = Build((1, 3, 8, 8))
    source = SourceGraph(
        load_source(build.save(tmp_path / "m.onnx", build.conv("conv", "x", 16, 3)))
    )
    inputs: dict[str, tuple[str, list[str]]] = {
        "x": ("Input", []),
        "bias": ("Const", []),
        "bias_f32_bf16_conv/WithoutBiases": ("Reorder", ["bias"]),
        "conv/WithoutBiases": ("Convolution", ["x", "bias_f32_bf16_conv/WithoutBiases"]),
    }
    rows = [
        {"name": name, "inputs": reads, "info": {"layerType": kind}}
        for name, (kind, reads) in inputs.items()
    ]
    reorder, conv = placed(source, *read_nodes(source, rows)).places[2:]
    assert reorder.is_inserted
    assert not conv.is_inserted
    assert tuple(reorder.weights) == tuple(conv.weights) == of(source, "conv")
