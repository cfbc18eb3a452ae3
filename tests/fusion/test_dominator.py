"""Grouping by post-dominators: small graphs before, the printed groups after."""

from __future__ import annotations

import numpy as np
import pytest

from whence.errors import UnsupportedError
from whence.fusion import (
    FusedGraph,
    GroupLimits,
    check_fused,
    find_dominator_groups,
    find_groups,
    fuse,
)
from whence.fusion.dominator import may_join
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.graph.graph import Graph as PlainGraph
from whence.graph.node import Node
from whence.ops.definition import Pattern
from whence.types import DType, TensorType


def fused(graph: Graph, limits: GroupLimits | None = None) -> FusedGraph:
    result = fuse(graph, find_dominator_groups(graph, limits=limits))
    check_fused(result)
    return result


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


def test_named_dimensions_are_equal_when_their_names_are() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, ["batch", 4])
    build.output("y", build.op("Add", build.op("Relu", x), x))
    (entry,) = fused(build.finish())
    assert entry.flatten
    assert not entry.is_static


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
