"""Finding nodes: by id, by operator, by who reads them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.making import chain, diamond, fresh, split_graph
from whence.graph import Graph, Node, Ref
from whence.graph.builder import GraphBuilder
from whence.graph.search import (
    is_single_consumer,
    producer_of,
    unique_consumer,
)
from whence.types import DType


def add_const() -> tuple[Graph, Node]:
    """1: Add(x, const); 2: Relu(1). And the constant."""
    build = GraphBuilder()
    total = build.op("Add", build.input("x", DType.F32, [4]), build.const(np.ones(4, np.float32)))
    build.output("y", build.op("Relu", total))
    graph = build.finish()
    (const,) = [node for node in graph if node.is_const]
    return graph, const


class TestUniqueConsumer:
    def test_any_operator(self) -> None:
        graph = chain("Relu", "Neg")
        assert unique_consumer(graph, graph[1]) is graph[2]

    def test_one_operator(self) -> None:
        graph = chain("Relu", "Neg")
        assert unique_consumer(graph, graph[1], "Neg") is graph[2]
        assert unique_consumer(graph, graph[1], "Abs") is None
        # A name is one operator, not a collection of letters.
        assert unique_consumer(graph, graph[1], "eNeg") is None

    @pytest.mark.parametrize("kinds", [("Abs", "Neg"), frozenset({"Neg"}), ["Neg", "Neg"]])
    def test_several_operators(self, kinds: object) -> None:
        graph = chain("Relu", "Neg")
        assert unique_consumer(graph, graph[1], kinds) is graph[2]  # type: ignore[arg-type]
        assert unique_consumer(graph, graph[2], kinds) is None  # type: ignore[arg-type]  # an Output reads it

    def test_no_operators_match_nothing(self) -> None:
        graph = chain("Relu", "Neg")
        assert unique_consumer(graph, graph[1], ()) is None

    def test_two_readers_are_not_unique(self) -> None:
        graph = diamond()
        assert unique_consumer(graph, graph[1]) is None

    def test_a_graph_output_is_a_reader(self) -> None:
        graph = chain("Relu", "Neg")
        graph.append(Node(graph.new_id(), "Output", (Ref(1),), (), name="early"))
        assert unique_consumer(graph, graph[1]) is None

    def test_no_reader(self) -> None:
        graph = chain("Relu")
        loose = graph.append(fresh(graph, "Neg", graph[1]))
        assert unique_consumer(graph, loose) is None
        assert unique_consumer(graph, None) is None

    def test_one_reader_that_reads_twice_is_unique(self) -> None:
        build = GraphBuilder()
        value = build.op("Relu", build.input("x", DType.F32, [4]))
        build.output("y", build.op("Mul", value, value))
        graph = build.finish()
        assert unique_consumer(graph, graph[1], "Mul") is graph[2]

    def test_inputs_of_the_consumer_are_checked_unless_told_not_to(self) -> None:
        graph = diamond()
        assert unique_consumer(graph, graph[2]) is None  # the Add reads node 3 as well
        assert unique_consumer(graph, graph[2], check_inputs=False) is graph[4]
        assert unique_consumer(graph, graph[2], "Add", check_inputs=False) is graph[4]
        assert unique_consumer(graph, graph[2], "Mul", check_inputs=False) is None

    def test_constants_pass_the_input_check(self) -> None:
        build = GraphBuilder()
        value = build.op("Relu", build.input("x", DType.F32, [4]))
        build.output("y", build.op("Add", value, build.const(np.ones(4, np.float32))))
        graph = build.finish()
        assert unique_consumer(graph, graph[1], "Add") is graph[2]

    def test_graph_inputs_do_not_pass_the_input_check(self) -> None:
        build = GraphBuilder()
        x = build.input("x", DType.F32, [4])
        build.output("y", build.op("Add", build.op("Relu", x), x))
        graph = build.finish()
        assert unique_consumer(graph, graph[1]) is None
        assert unique_consumer(graph, graph[1], check_inputs=False) is graph[2]

    def test_readers_of_every_output_count(self) -> None:
        # Hexagon NN starts its search at readers of output 0 and misses both of these.
        only_second = split_graph(1)
        assert unique_consumer(only_second, only_second[1], "Relu") is only_second[2]
        both = split_graph(1, 0)
        assert unique_consumer(both, both[1]) is None


class TestSingleConsumer:
    def test_yes(self) -> None:
        graph = chain("Relu", "Neg")
        assert is_single_consumer(graph, graph[1], graph[2])

    def test_no(self) -> None:
        graph = diamond()
        assert not is_single_consumer(graph, graph[1], graph[2])
        assert not is_single_consumer(graph, graph[2], graph[3])
        assert not is_single_consumer(graph, graph[4], graph[1])

    def test_any_output_counts(self) -> None:
        one = split_graph(1)
        assert is_single_consumer(one, one[1], one[2])
        two = split_graph(0, 1)
        assert not is_single_consumer(two, two[1], two[2])

    def test_other_inputs_of_the_consumer_do_not_matter(self) -> None:
        graph = diamond()
        assert is_single_consumer(graph, graph[2], graph[4])


class TestProducerOf:
    def test_forms(self) -> None:
        graph, const = add_const()
        assert producer_of(graph, Ref(1)) is graph[1]
        assert producer_of(graph, Ref(1), "Add") is graph[1]
        assert producer_of(graph, Ref(1), "Mul") is None
        assert producer_of(graph, Ref(1), {"Mul", "Add"}) is graph[1]
        assert producer_of(graph, const.ref(), "Const") is const
        assert producer_of(graph, None) is None
