"""NNVM's grouping: the counts its own tests publish, and what each rule of it does."""

from __future__ import annotations

import numpy as np
import pytest

from whence.fusion import FusibleGroups, MissReason, check_fused, find_fusible_groups, fuse
from whence.fusion.groups import NO_NODE
from whence.fusion.patterns import is_inlined
from whence.graph import Graph, Node
from whence.graph.builder import GraphBuilder, Symbol
from whence.ops.definition import Pattern
from whence.types import DType

# NNVM's table of patterns, under the ONNX names of the operators that the published graphs are made
# of.
NNVM_PATTERNS = {
    "Relu": Pattern.ELEMWISE,
    "Exp": Pattern.ELEMWISE,
    "Add": Pattern.BROADCAST,
    "Sub": Pattern.BROADCAST,
    "Mul": Pattern.BROADCAST,
    "Flatten": Pattern.INJECTIVE,
    "Reshape": Pattern.INJECTIVE,
    "Transpose": Pattern.INJECTIVE,
    "Concat": Pattern.INJECTIVE,
    "ReduceSum": Pattern.COMM_REDUCE,
    "Conv": Pattern.OUT_ELEMWISE_FUSABLE,
    "GlobalAveragePool": Pattern.OUT_ELEMWISE_FUSABLE,
    "Softmax": Pattern.OPAQUE,
}


def nnvm_pattern(node: Node) -> Pattern:
    return NNVM_PATTERNS[node.op]


def scalar(build: GraphBuilder, value: float) -> Symbol:
    return build.const(np.float32(value))


def weight(build: GraphBuilder, name: str, *shape: int) -> Symbol:
    return build.const(np.zeros(shape, np.float32), name)


def ewise_injective() -> Graph:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [10, 2, 3])
    y = build.op("Mul", x, scalar(build, 2))
    build.output("out", build.op("Add", build.op("Flatten", y), scalar(build, 1)))
    return build.finish()


def conv_ewise_injective() -> Graph:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [1, 32, 18, 18])
    y = build.op(
        "Conv",
        x,
        weight(build, "w", 32, 1, 3, 3),
        weight(build, "b", 32),
        group=32,
        pads=(1, 1, 1, 1),
    )
    y = build.op("Flatten", build.op("Add", y, scalar(build, 1)))
    build.output("out", build.op("Add", y, scalar(build, 1)))
    return build.finish()


def injective_reduce_injective() -> Graph:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [32, 1, 18, 18])
    y = build.op("Add", build.op("Flatten", x), scalar(build, 1))
    build.output("out", build.op("ReduceSum", y, build.const(np.array([1])), keepdims=0))
    return build.finish()


def injective_conv2d() -> Graph:
    build = GraphBuilder()
    data = build.input("data", DType.F32, [1, 16, 56, 56])
    pool = build.op("GlobalAveragePool", data)
    scale = build.op("Reshape", pool, build.const(np.array([1, 16, 1, 1])))
    residual = build.op("Conv", data, weight(build, "w", 16, 16, 3, 3), pads=(1, 1, 1, 1))
    build.output("out", build.op("Add", build.op("Mul", scale, data), residual))
    return build.finish()


def concatenate_conv2d() -> Graph:
    build = GraphBuilder()
    data = build.input("data", DType.F32, [1, 3, 8, 8])
    concat = build.op("Concat", data, data, axis=1)
    conv = build.op("Conv", concat, weight(build, "w", 6, 6, 1, 1))
    build.output("out", build.op("Add", concat, conv))
    return build.finish()


def residual_block_layout_transform() -> Graph:
    build = GraphBuilder()
    data = build.input("data", DType.F32, [1, 16, 32, 32])
    conv1 = build.op("Conv", data, weight(build, "w1", 16, 16, 3, 3), pads=(1, 1, 1, 1))
    blocked = build.op("Transpose", conv1, perm=(0, 2, 3, 1))
    back = build.op("Transpose", blocked, perm=(0, 3, 1, 2))
    conv2 = build.op("Conv", conv1, weight(build, "w2", 16, 16, 3, 3), pads=(1, 1, 1, 1))
    build.output("out", build.op("Relu", build.op("Add", back, conv2)))
    return build.finish()


def conv2d_bn_elu() -> Graph:
    # As it reaches fusion: batch normalisation is a scale and a shift, both computed beforehand.
    build = GraphBuilder()
    data = build.input("data", DType.F32, [1, 8, 64, 64])
    y = build.op(
        "Conv", data, weight(build, "w", 16, 8, 3, 3), weight(build, "b", 16), pads=(1, 1, 1, 1)
    )
    y = build.op("Mul", y, weight(build, "scale", 16, 1, 1))
    y = build.op("Add", y, weight(build, "shift", 16, 1, 1))
    negative = build.op("Relu", build.op("Sub", scalar(build, 1), build.op("Exp", y)))
    build.output(
        "out", build.op("Add", build.op("Mul", scalar(build, -0.5), negative), build.op("Relu", y))
    )
    return build.finish()


def count_nodes(graph: Graph, groups: FusibleGroups) -> int:
    """Variables and fused operators, as NNVM counts the nodes of the compiled graph."""
    data = {
        ref.node
        for node in graph
        for index, ref in enumerate(node.inputs)
        if ref is not None
        and graph[ref.node].op in ("Input", "Const")
        and not is_inlined(graph, node, index)
    }
    return len(data) + len(
        {groups.root(node.id) for node in graph if node.op not in ("Input", "Const", "Output")}
    )


@pytest.mark.parametrize(
    "pattern_of", [None, nnvm_pattern], ids=["our patterns", "NNVM's patterns"]
)
@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (ewise_injective, 2),
        (conv_ewise_injective, 5),
        (injective_reduce_injective, 2),
        (injective_conv2d, 5),
        (concatenate_conv2d, 4),
        (residual_block_layout_transform, 6),
        (conv2d_bn_elu, 6),
    ],
)
def test_published_counts(make, expected, pattern_of) -> None:
    graph = make()
    groups = (
        find_fusible_groups(graph) if pattern_of is None else find_fusible_groups(graph, pattern_of)
    )
    assert count_nodes(graph, groups) == expected
    check_fused(fuse(graph, groups))


def ids(graph: Graph, op: str) -> list[int]:
    return [node.id for node in graph if node.op == op]


def test_vectors_are_dense_and_name_ids() -> None:
    graph = conv_ewise_injective()
    groups = find_fusible_groups(graph)
    assert groups.nodes == tuple(node.id for node in graph)
    assert len(groups.group_root) == len(groups.group_anchor) == len(groups.pattern) == len(graph)
    (output,) = graph.outputs
    assert groups.root(output.id) == NO_NODE
    (data,) = graph.inputs
    assert (groups.root(data.id), groups.anchor(data.id), groups.pattern_of(data.id)) == (
        data.id,
        NO_NODE,
        Pattern.OPAQUE,
    )
    conv, add, flatten, last = 1, 2, 3, 4
    assert [groups.root(node) for node in (conv, add, flatten, last)] == [add, add, last, last]
    # The output of a group that begins with a convolution keeps the convolution as its anchor.
    assert groups.anchor(add) == conv
    assert groups.pattern_of(add) is Pattern.OUT_ELEMWISE_FUSABLE
    assert groups.pattern_of(last) is Pattern.INJECTIVE


def test_a_moved_and_a_convolved_operand_do_not_share_a_group() -> None:
    graph = residual_block_layout_transform()
    groups = find_fusible_groups(graph)
    (relu,), (add,), convs, moves = (
        ids(graph, "Relu"),
        ids(graph, "Add"),
        ids(graph, "Conv"),
        ids(graph, "Transpose"),
    )
    assert {groups.root(node) for node in (relu, add, *moves)} == {relu}
    assert [groups.root(conv) for conv in convs] == convs
    # The convolution is outside, so the meeting point is anchor, for its consumers in the group as
    # well.
    assert groups.anchor(add) == groups.anchor(relu) == add


def test_equal_shapes_make_a_broadcast_operator_elementwise() -> None:
    build = GraphBuilder()
    x, y = build.input("x", DType.F32, [2, 3]), build.input("y", DType.F32, [3])
    same, wide = build.op("Add", x, x), build.op("Add", x, y)
    build.output("same", same)
    build.output("wide", wide)
    groups = find_fusible_groups(build.finish())
    assert groups.pattern_of(1) is Pattern.ELEMWISE
    assert groups.pattern_of(2) is Pattern.BROADCAST


def test_outputs_are_realised_even_with_one_consumer() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [4])
    middle = build.op("Relu", x)
    build.output("middle", middle)
    build.output("out", build.op("Exp", middle))
    groups = find_fusible_groups(build.finish())
    assert groups.root(1) == 1
    assert groups.root(2) == 2
    assert [(miss.producer, miss.consumer, miss.reason) for miss in groups.missed] == [
        (1, 2, MissReason.GRAPH_OUTPUT)
    ]


def test_opt_level_0_leaves_every_operator_alone() -> None:
    graph = conv2d_bn_elu()
    groups = find_fusible_groups(graph, opt_level=0)
    operators = [node.id for node in graph if node.origin]
    assert [groups.root(node) for node in operators] == operators
    assert {miss.reason for miss in groups.missed} == {MissReason.DISABLED}
    check_fused(fuse(graph, groups))


def test_parents_of_parents_follow_into_the_shared_group() -> None:
    # Two diamonds on top of each other: the second parent finds the group of the first under its
    # new name.
    build = GraphBuilder()
    x = build.input("x", DType.F32, [8])
    for _ in range(3):
        x = build.op("Sigmoid", x)
        x = build.op("Add", build.op("Relu", x), build.op("Tanh", x))
    build.output("out", x)
    graph = build.finish()
    groups = find_fusible_groups(graph)
    assert {groups.root(node.id) for node in graph if node.origin} == {12}
    check_fused(fuse(graph, groups))


def test_a_parent_with_a_reader_outside_stays_where_it_is() -> None:
    # NNVM would fuse the Sigmoid into the group of Relu, Tanh and Add, which waits for the
    # convolution, which reads the Sigmoid.
    build = GraphBuilder()
    parent = build.op("Sigmoid", build.input("x", DType.F32, [1, 4, 8, 8]))
    both = build.op("Add", build.op("Relu", parent), build.op("Tanh", parent))
    conv = build.op("GlobalAveragePool", build.op("MaxPool", parent, kernel_shape=(1, 1)))
    build.output("out", build.op("Add", both, conv))
    graph = build.finish()
    groups = find_fusible_groups(graph)
    assert groups.root(1) == 1
    assert groups.root(2) == groups.root(4) != NO_NODE
    check_fused(fuse(graph, groups))


@pytest.mark.parametrize(
    ("reason", "edge", "text"),
    [
        (MissReason.OPAQUE_CONSUMER, ("Relu", "Softmax"), "consumer is opaque (Softmax)"),
        (MissReason.SEVERAL_CONSUMERS, ("Abs", "Mul"), "output has 2 consumers"),
        (MissReason.OPAQUE_PRODUCER, ("Softmax", "Exp"), "producer is opaque (Softmax)"),
        (MissReason.REDUCTION, ("ReduceSum", "Neg"), "reduction cannot fuse forward (ReduceSum)"),
        (
            MissReason.STORED_INPUTS,
            ("Exp", "MatMul"),
            "MatMul reads its inputs many times, so they are stored first",
        ),
        (MissReason.SECOND_ANCHOR, ("MatMul", "Add"), "group already has an anchor (MatMul)"),
        (
            MissReason.NOT_ELEMENTWISE,
            ("MatMul", "Transpose"),
            "Transpose does not take the result of the group's anchor (MatMul) element by element",
        ),
    ],
)
def test_reasons(reason: MissReason, edge: tuple[str, str], text: str) -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [4, 4])
    w = weight(build, "w", 4, 4)
    relu = build.op("Relu", x)
    left = build.op("MatMul", build.op("Exp", build.op("Softmax", relu)), w)
    right = build.op("MatMul", relu, w)
    total = build.op("ReduceSum", build.op("Add", left, right), build.const(np.array([1])))
    build.output("total", build.op("Neg", total))
    square = build.op("Abs", x)
    build.output("square", build.op("Mul", square, square))
    build.output("moved", build.op("Transpose", build.op("MatMul", x, w), perm=(1, 0)))
    graph = build.finish()
    groups = find_fusible_groups(graph)
    found = [
        miss for miss in groups.missed if (graph[miss.producer].op, graph[miss.consumer].op) == edge
    ]
    assert (found[0].reason, found[0].text) == (reason, text)
