"""Finding nodes by the names of Hexagon NN's notes."""

from __future__ import annotations

import numpy as np

from tests.graph.making import chain, fresh, split_graph
from whence.compat.hexagon import (
    CONSUMER_NOINCHECK,
    check_all_outputs,
    check_single_consumer_all,
    find_first_consumer,
    find_last_consumer,
    find_node,
    find_node_must_be,
    find_node_must_be_const,
    find_node_must_be_const_from_ref,
    find_unique_consumer,
    find_unique_consumer_anytype,
    find_unique_consumer_mustbe,
)
from whence.graph import Graph, Node, Ref
from whence.graph.builder import GraphBuilder
from whence.types import DType


def add_const() -> tuple[Graph, Node]:
    """1: Add(x, const); 2: Relu(1). And the constant."""
    build = GraphBuilder()
    total = build.op("Add", build.input("x", DType.F32, [4]), build.const(np.ones(4, np.float32)))
    build.output("y", build.op("Relu", total))
    graph = build.finish()
    (const,) = [node for node in graph if node.is_const]
    return graph, const


class TestById:
    def test_find_node(self) -> None:
        graph = chain("Relu", "Neg")
        assert find_node(graph, 2) is graph[2]
        assert find_node(graph, 99) is None
        assert find_node(graph, 0) is None

    def test_find_node_of_asks_for_the_operator(self) -> None:
        graph = chain("Relu", "Neg")
        assert find_node_must_be(graph, 1, "Relu") is graph[1]
        assert find_node_must_be(graph, 1, "Neg") is None
        assert find_node_must_be(graph, 99, "Neg") is None

    def test_find_const(self) -> None:
        graph, const = add_const()
        assert find_node_must_be_const(graph, const.id) is const
        assert find_node_must_be_const(graph, 1) is None
        assert find_node_must_be_const(graph, 99) is None

    def test_find_const_from_ref_takes_output_0_only(self) -> None:
        graph, const = add_const()
        assert find_node_must_be_const_from_ref(graph, const.ref()) is const
        assert find_node_must_be_const_from_ref(graph, Ref(const.id, 1)) is None
        assert find_node_must_be_const_from_ref(graph, Ref(1)) is None
        assert find_node_must_be_const_from_ref(graph, None) is None

    def test_a_removed_node_is_not_found(self) -> None:
        graph = chain("Relu")
        extra = graph.append(fresh(graph, "Neg", graph[1]))
        graph.remove(extra)
        assert find_node(graph, extra.id) is None


class TestFirstAndLast:
    def test_by_exact_output_in_list_order(self) -> None:
        graph = split_graph(1, 0, 1)
        assert find_first_consumer(graph, Ref(1, 1)) is graph[2]
        assert find_last_consumer(graph, Ref(1, 1)) is graph[4]
        assert (
            find_first_consumer(graph, Ref(1, 0))
            is find_last_consumer(graph, Ref(1, 0))
            is graph[3]
        )

    def test_none(self) -> None:
        graph = split_graph(0)
        assert find_first_consumer(graph, Ref(1, 1)) is None
        assert find_last_consumer(graph, Ref(1, 1)) is None

    def test_list_order_not_order_of_insertion(self) -> None:
        graph = chain("Relu", "Neg")
        earlier = graph.insert_before(graph[2], fresh(graph, "Abs", graph[1]))
        assert find_first_consumer(graph, Ref(1)) is earlier
        assert find_last_consumer(graph, Ref(1)) is graph[2]


class TestConsumers:
    def test_unique_consumer_in_its_three_forms(self) -> None:
        graph = chain("Relu", "Neg")
        relu, neg = graph[1], graph[2]
        assert find_unique_consumer_anytype(graph, relu) is neg
        assert find_unique_consumer_mustbe(graph, relu, "Neg") is neg
        assert find_unique_consumer_mustbe(graph, relu, "Abs") is None
        assert find_unique_consumer(graph, relu, ["Abs", "Neg"]) is neg
        assert find_unique_consumer(graph, relu, []) is None
        assert find_unique_consumer_anytype(graph, None) is None

    def test_other_inputs_are_allowed_on_request(self) -> None:
        build = GraphBuilder()
        x, y = build.input("x", DType.F32, [4]), build.input("y", DType.F32, [4])
        build.output("z", build.op("Add", build.op("Relu", x), y))
        graph = build.finish()
        assert find_unique_consumer_anytype(graph, graph[1]) is None
        assert find_unique_consumer_anytype(graph, graph[1], CONSUMER_NOINCHECK) is graph[2]

    def test_status_codes(self) -> None:
        graph = chain("Relu", "Neg", "Abs")
        assert check_single_consumer_all(graph, graph[1], graph[2]) == 0
        assert check_single_consumer_all(graph, graph[1], graph[3]) == -1
        assert check_all_outputs is check_single_consumer_all
