"""Grouping by post-dominators: small graphs before, the printed groups after."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

from whence.errors import UnsupportedError
from whence.fusion import (
    FusedGraph,
    Limits,
    MissReason,
    check_fused,
    find_dominator_groups,
    find_groups,
    fuse,
    print_fused,
)
from whence.fusion.dominator import may_join
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.graph.graph import Graph as PlainGraph
from whence.graph.node import Node
from whence.ops.definition import Pattern
from whence.types import DType, TensorType

IMAGE = [1, 8, 16, 16]


def weight(build: GraphBuilder, *shape: int) -> Symbol:
    return build.const(np.zeros(shape, np.float32))


def conv(build: GraphBuilder, x: Symbol) -> Symbol:
    return build.op("Conv", x, weight(build, 8, 8, 3, 3), pads=(1, 1, 1, 1))


def fused(graph: Graph, limits: Limits | None = None) -> FusedGraph:
    result = fuse(graph, find_dominator_groups(graph, limits=limits))
    check_fused(result)
    return result


def check_golden(graph: Graph, expected: str, limits: Limits | None = None) -> None:
    assert print_fused(fused(graph, limits)) == textwrap.dedent(expected).lstrip()


def members(graph: Graph, limits: Limits | None = None) -> list[list[str]]:
    return [[node.op for node in entry.members] for entry in fused(graph, limits)]


def reason(graph: Graph, producer: int, consumer: int, limits: Limits | None = None) -> MissReason:
    (found,) = [
        miss.reason
        for miss in fused(graph, limits).groups.missed
        if (miss.producer, miss.consumer) == (producer, consumer)
    ]
    return found


def test_residual_block() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, IMAGE)
    start = build.op("Relu", x)
    y = build.op("Relu", conv(build, start))
    build.output("y", build.op("Relu", build.op("Add", conv(build, y), start)))
    check_golden(
        build.finish(),
        """
        #1 fuse_relu(%9) -> %1: %1 Relu; anchor %1, elemwise, flat from[1]
        #2 fuse_conv_relu(%1, %7) -> %3: %2 Conv, %3 Relu; anchor %2, out_elemwise_fusable from[2,3]
        #3 fuse_conv_add_relu(%3, %8, %1) -> %6: %4 Conv, %5 Add, %6 Relu; anchor %4, out_elemwise_fusable from[4,5,6]
        not fused %1 -> %2: Conv reads its inputs many times, so they are stored first
        not fused %1 -> %5: would create a cycle: a result of the group of Relu reaches that of Add through others too
        not fused %3 -> %4: Conv reads its inputs many times, so they are stored first
        """,
    )


def test_a_sum_that_is_needed_again_is_stored_by_the_group_that_goes_on() -> None:
    # The pre-activation block: the sum goes on to the next skip, and through scale, shift and Relu
    # into the next convolution.
    build = GraphBuilder()
    x, skip = build.input("x", DType.F32, IMAGE), build.input("skip", DType.F32, IMAGE)
    total = build.op("Add", conv(build, x), skip)
    y = build.op(
        "Relu",
        build.op("Add", build.op("Mul", total, weight(build, 8, 1, 1)), weight(build, 8, 1, 1)),
    )
    build.output("y", build.op("Add", conv(build, y), total))
    check_golden(
        build.finish(),
        """
        #1 fuse_conv_add_mul_add_relu(%12, %8, %13, %9, %10) -> %5, %2: %1 Conv, %2 Add, %3 Mul, %4 Add, %5 Relu; \
anchor %1, out_elemwise_fusable from[1,2,3,4,5]
        #2 fuse_conv_add(%5, %11, %2) -> %7: %6 Conv, %7 Add; anchor %6, out_elemwise_fusable from[6,7]
        not fused %2 -> %7: group already has an anchor (Conv)
        not fused %5 -> %6: Conv reads its inputs many times, so they are stored first
        """,
    )


def test_paths_that_meet_again_are_fused_whole() -> None:
    build = GraphBuilder()
    y = conv(build, build.input("x", DType.F32, IMAGE))
    y = build.op("Mul", y, build.op("Sigmoid", y))
    build.output("y", build.op("Mul", y, build.op("Tanh", build.op("Softplus", y))))
    assert members(build.finish()) == [["Conv", "Sigmoid", "Mul", "Softplus", "Tanh", "Mul"]]


def test_the_first_anchor_takes_the_sum_and_the_second_is_told_why() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, IMAGE)
    build.output("y", build.op("Add", conv(build, x), conv(build, x)))
    graph = build.finish()
    assert members(graph) == [["Conv"], ["Conv", "Add"]]
    assert reason(graph, 2, 3) is MissReason.SECOND_ANCHOR


def test_moved_values_stay_out_of_an_anchors_tail() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, IMAGE)
    moved = build.op("Transpose", build.op("Relu", x), perm=(0, 1, 3, 2))
    build.output("y", build.op("Add", conv(build, x), moved))
    build.output("z", build.op("Transpose", conv(build, x), perm=(0, 2, 3, 1)))
    graph = build.finish()
    assert members(graph) == [["Relu", "Transpose"], ["Conv", "Add"], ["Conv"], ["Transpose"]]
    assert reason(graph, 2, 4) is MissReason.NOT_ELEMENTWISE
    assert reason(graph, 5, 6) is MissReason.NOT_ELEMENTWISE


def test_a_reduction_takes_what_leads_to_it_and_gives_nothing_on() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [4, 6, 8])
    y = build.op("Exp", build.op("Transpose", build.op("Relu", x), perm=(0, 2, 1)))
    total = build.op("ReduceSum", y, build.const(np.array([1])))
    build.output("y", build.op("Softmax", build.op("Log", total)))
    check_golden(
        build.finish(),
        """
        #1 fuse_relu_transpose_exp_reducesum(%8) -> %4: %1 Relu, %2 Transpose, %3 Exp, %4 ReduceSum; anchor %4, comm_reduce from[1,2,3,4]
        #2 fuse_log(%4) -> %5: %5 Log; anchor %5, elemwise, flat from[5]
        #3 fuse_softmax(%5) -> %6: %6 Softmax; anchor %6, opaque from[6]
        not fused %4 -> %5: reduction cannot fuse forward (ReduceSum)
        not fused %5 -> %6: consumer is opaque (Softmax)
        """,
    )


def test_several_outputs_end_no_group_but_may_begin_one() -> None:
    build = GraphBuilder()
    x = build.op("Relu", build.input("x", DType.F32, [4, 8]))
    halves = build.op("Split", x, n_outputs=2, axis=1, num_outputs=2)
    build.output("y", build.op("Mul", halves, build.op("Sigmoid", halves[1])))
    graph = build.finish()
    assert members(graph) == [["Relu", "Split", "Sigmoid", "Mul"]]

    build = GraphBuilder()
    x = build.op("Relu", build.input("x", DType.F32, [4, 8]))
    halves = build.op("Split", x, n_outputs=2, axis=1, num_outputs=2)
    build.output("a", halves)
    build.output("b", halves[1])
    graph = build.finish()
    assert members(graph) == [["Relu"], ["Split"]]
    assert reason(graph, 1, 2) is MissReason.SEVERAL_OUTPUTS


def test_a_shared_value_is_stored_by_one_group_with_two_outputs() -> None:
    build = GraphBuilder()
    x = build.op("Relu", build.input("x", DType.F32, [4, 8]))
    build.output("a", build.op("Exp", x))
    build.output("b", build.op("Tanh", x))
    build.output("c", x)
    check_golden(
        build.finish(),
        """
        #1 fuse_relu_exp_tanh(%4) -> %3, %1, %2: %1 Relu, %2 Exp, %3 Tanh; anchor %3, elemwise, flat from[1,2,3]
        """,
    )


def test_values_of_other_shapes_do_not_leave_a_group() -> None:
    # The Relu is wanted as it is and transposed: its index in the loop over the transposed result
    # is not the loop's own.
    build = GraphBuilder()
    x = build.op("Relu", build.input("x", DType.F32, [4, 8]))
    build.output("a", x)
    build.output("b", build.op("Exp", build.op("Transpose", x, perm=(1, 0))))
    graph = build.finish()
    assert members(graph) == [["Relu"], ["Transpose", "Exp"]]
    assert reason(graph, 1, 2) is MissReason.GRAPH_OUTPUT


def test_limits() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [4])
    for _ in range(6):
        x = build.op("Relu", x)
    build.output("y", x)
    graph = build.finish()
    limits = Limits(max_depth=4)
    assert max(len(ops) for ops in members(graph, limits)) == 4
    assert {miss.reason for miss in fused(graph, limits).groups.missed} == {MissReason.DEPTH_LIMIT}
    assert (
        fused(graph, limits).groups.missed[0].text
        == "depth limit: the group would have more than 4 operators"
    )

    build = GraphBuilder()
    x = build.op("Relu", build.input("x", DType.F32, [4]))
    for name in "abc":
        build.output(name, build.op("Exp", x))
    graph = build.finish()
    assert members(graph, Limits(max_outputs=2)) == [["Relu", "Exp"], ["Exp"], ["Exp"]]
    assert reason(graph, 1, 3, Limits(max_outputs=2)) is MissReason.OUTPUT_LIMIT


def test_a_cycle_that_is_too_far_to_rule_out_is_not_risked() -> None:
    # The sum waits for a chain that starts at another input, so joining it to the Relu is sound,
    # but takes a walk to prove.
    build = GraphBuilder()
    x, other = build.input("x", DType.F32, [4, 4]), build.input("other", DType.F32, [4, 4])
    start = build.op("Relu", x)
    build.output("side", build.op("Softmax", build.op("Softmax", start)))
    for _ in range(5):
        other = build.op("Softmax", other)
    build.output("sum", build.op("Add", start, other))
    graph = build.finish()
    assert ["Relu", "Add"] in members(graph)
    assert reason(graph, 1, 9, Limits(search=1)) is MissReason.TOO_FAR


def test_scalars_and_parameters_are_part_of_every_group_that_reads_them() -> None:
    build = GraphBuilder()
    half = build.const(np.float32(0.5), "half")
    x = build.input("x", DType.F32, [4, 4])
    build.output("a", build.op("Softmax", build.op("Mul", x, half)))
    build.output(
        "b",
        build.op(
            "Softmax", build.op("Reshape", build.op("Add", x, half), build.const(np.array([2, 8])))
        ),
    )
    result = fused(build.finish())
    by_name = {entry.name: entry for entry in result}
    assert [const.name for const in by_name["fuse_mul"].consts] == ["half"]
    assert len(by_name["fuse_add_reshape"].consts) == 2
    assert len(by_name["fuse_add_reshape"].inputs) == 1
    assert by_name["fuse_mul"].flatten


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [
        ([2, None], DType.F32, MissReason.NOT_STATIC),
        (None, DType.F32, MissReason.NOT_STATIC),
        ([2, 4], DType.STRING, MissReason.NOT_NUMBERS),
    ],
)
def test_what_is_not_known_before_the_run_stands_alone(shape, dtype, expected: MissReason) -> None:
    build = GraphBuilder()
    x = build.input("x", dtype, shape)
    build.output("y", build.op("Identity", build.op("Identity", x)))
    graph = build.finish()
    assert members(graph) == [["Identity"], ["Identity"]]
    assert reason(graph, 1, 2) is expected


def test_named_dimensions_are_equal_when_their_names_are() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, ["batch", 4])
    build.output("y", build.op("Add", build.op("Relu", x), x))
    (entry,) = fused(build.finish())
    assert entry.flatten
    assert not entry.is_static


def test_a_parameter_that_is_computed_makes_its_operator_opaque() -> None:
    build = GraphBuilder()
    x, shape = build.input("x", DType.F32, [4, 4]), build.input("shape", DType.I64, [2])
    y = build.op("Reshape", build.op("Relu", x), shape)
    build.output("y", y)
    graph = build.finish()
    graph.set_types(graph[2], [TensorType(DType.F32, (2, 8))])
    assert reason(graph, 1, 2) is MissReason.NOT_STATIC


def test_where_and_batch_normalisation_broadcast() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, IMAGE)
    y = build.op("BatchNormalization", conv(build, x), *(weight(build, 8) for _ in range(4)))
    build.output("y", build.op("Where", build.op("Greater", y, build.const(np.float32(0))), y, x))
    assert members(build.finish()) == [["Conv", "BatchNormalization", "Greater", "Where"]]


def test_an_unknown_algorithm_is_named() -> None:
    with pytest.raises(
        UnsupportedError, match="fusion 'magic' is not known; there are dominator and nnvm"
    ):
        find_groups(GraphBuilder().finish(), "magic")


@pytest.mark.parametrize(
    ("source", "route", "between", "sink", "phase", "expected"),
    [
        (
            Pattern.OUT_ELEMWISE_FUSABLE,
            Pattern.ELEMWISE,
            Pattern.BROADCAST,
            Pattern.BROADCAST,
            0,
            True,
        ),
        (
            Pattern.OUT_ELEMWISE_FUSABLE,
            Pattern.ELEMWISE,
            Pattern.ELEMWISE,
            Pattern.ELEMWISE,
            1,
            False,
        ),
        (
            Pattern.OUT_ELEMWISE_FUSABLE,
            Pattern.BROADCAST,
            Pattern.ELEMWISE,
            Pattern.ELEMWISE,
            0,
            False,
        ),
        (
            Pattern.OUT_ELEMWISE_FUSABLE,
            Pattern.ELEMWISE,
            Pattern.ELEMWISE,
            Pattern.OUT_ELEMWISE_FUSABLE,
            0,
            False,
        ),
        (
            Pattern.ELEMWISE,
            Pattern.ELEMWISE,
            Pattern.ELEMWISE,
            Pattern.OUT_ELEMWISE_FUSABLE,
            0,
            True,
        ),
        (
            Pattern.ELEMWISE,
            Pattern.INJECTIVE,
            Pattern.ELEMWISE,
            Pattern.OUT_ELEMWISE_FUSABLE,
            0,
            False,
        ),
        (
            Pattern.ELEMWISE,
            Pattern.OUT_ELEMWISE_FUSABLE,
            Pattern.ELEMWISE,
            Pattern.OUT_ELEMWISE_FUSABLE,
            0,
            False,
        ),
        (Pattern.BROADCAST, Pattern.COMM_REDUCE, Pattern.INJECTIVE, Pattern.COMM_REDUCE, 0, True),
        (Pattern.BROADCAST, Pattern.COMM_REDUCE, Pattern.COMM_REDUCE, Pattern.ELEMWISE, 0, False),
        (Pattern.INJECTIVE, Pattern.ELEMWISE, Pattern.ELEMWISE, Pattern.ELEMWISE, 0, False),
        (Pattern.INJECTIVE, Pattern.ELEMWISE, Pattern.ELEMWISE, Pattern.COMM_REDUCE, 1, True),
        (
            Pattern.INJECTIVE,
            Pattern.ELEMWISE,
            Pattern.ELEMWISE,
            Pattern.OUT_ELEMWISE_FUSABLE,
            1,
            False,
        ),
        (Pattern.COMM_REDUCE, Pattern.ELEMWISE, Pattern.ELEMWISE, Pattern.ELEMWISE, 1, False),
        (Pattern.ELEMWISE, Pattern.OPAQUE, Pattern.ELEMWISE, Pattern.OPAQUE, 1, False),
    ],
)
def test_may_join(
    source: Pattern, route: Pattern, between: Pattern, sink: Pattern, phase: int, expected: bool
) -> None:
    assert may_join(source, route, between, sink, phase) is expected


def test_cost_grows_with_the_graph_not_with_the_length_of_its_skips() -> None:
    # A chain in which each operator of the first half is read again in the second, in reverse:
    # every skip spans all that the next one spans.
    half, graph = 2000, PlainGraph()
    kind = TensorType(DType.F32, (8,))
    values = [graph.append(Node(graph.new_id(), "Input", (), (kind,), name="x"))]
    for _ in range(half):
        values.append(graph.append(Node(graph.new_id(), "Relu", (values[-1].ref(),), (kind,))))
    for number in range(half):
        values.append(
            graph.append(
                Node(
                    graph.new_id(), "Add", (values[-1].ref(), values[half - number].ref()), (kind,)
                )
            )
        )
    graph.append(Node(graph.new_id(), "Output", (values[-1].ref(),), (), name="y"))
    result = fused(graph)
    assert sum(len(entry.members) for entry in result) == 2 * half
    assert max(len(entry.members) for entry in result) <= 256


def _joined(*, stored: bool, outputs: bool = False) -> Graph:
    """A concatenation of something stored, or not, and of something that a loop computes."""
    build = GraphBuilder()
    x = build.input("x", DType.F32, IMAGE)
    first = conv(build, x) if stored else build.op("Exp", x)
    joined = build.op("Concat", first, build.op("Neg", build.op("Exp", x)), axis=1)
    build.output("y", conv16(build, joined))
    if outputs:
        build.output("first", first)
    return build.finish()


def conv16(build: GraphBuilder, x: Symbol) -> Symbol:
    return build.op("Conv", x, weight(build, 8, 16, 3, 3), pads=(1, 1, 1, 1))


def test_a_concatenation_of_what_is_stored_is_set_apart() -> None:
    graph = _joined(stored=True)
    assert members(graph) == [["Conv"], ["Exp", "Neg"], ["Concat"], ["Conv"]]
    assert reason(graph, 3, 4) is MissReason.IN_PLACE
    (text,) = [
        miss.text
        for miss in fused(graph).groups.missed
        if miss.consumer == 4 and miss.producer == 3
    ]
    assert (
        text == "Neg writes where the output of Concat lies, so that nothing else is copied there"
    )
    assert members(graph, Limits(in_place=False)) == [["Conv"], ["Exp", "Neg", "Concat"], ["Conv"]]


def test_a_concatenation_that_copies_nothing_stored_is_not_set_apart() -> None:
    assert members(_joined(stored=False)) == [["Exp", "Exp", "Neg", "Concat"], ["Conv"]]
    # What the caller gets is stored elsewhere, and copied in any case.
    assert ["Exp", "Neg", "Concat"] in members(_joined(stored=True, outputs=True))


def test_what_feeds_two_parts_of_a_concatenation_keeps_them_together() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, IMAGE)
    both = build.op("Exp", x)
    joined = build.op(
        "Concat",
        conv(build, x),
        build.op("Transpose", both, perm=(0, 1, 3, 2)),
        build.op("Neg", both),
        axis=1,
    )
    build.output("y", build.op("Conv", joined, weight(build, 8, 24, 1, 1)))
    assert ["Exp", "Transpose", "Neg", "Concat"] in members(build.finish())
