"""The ordered list and its indexes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.making import (
    F32X4,
    X,
    assert_sound,
    chain,
    diamond,
    fresh,
    ops_of,
    snapshot,
    split_graph,
    with_branches,
)
from whence.errors import GraphError
from whence.graph import Check, Graph, Node, NodeFlag, Ref, check_graph
from whence.graph.builder import GraphBuilder
from whence.ops.definition import OpClass
from whence.types import DType


class TestLooking:
    def test_lookup_and_membership(self) -> None:
        graph = chain("Relu", "Neg")
        assert graph[1].op == "Relu"
        assert graph.get(77) is None
        with pytest.raises(GraphError, match="graph 'chain' has no node %77"):
            graph[77]
        assert graph[1] in graph
        assert graph[1] not in chain("Relu")
        assert "Relu" not in graph
        assert len(graph) == 4

    def test_walks_both_ways(self) -> None:
        graph = chain("Relu", "Neg")
        forwards = [node.op for node in graph]
        assert forwards == ["Input", "Relu", "Neg", "Output"]
        assert [node.op for node in reversed(graph)] == forwards[::-1]
        assert graph.first is graph.inputs[0]
        assert graph.last is graph.outputs[0]
        assert graph.successor(graph[1]) is graph[2]
        assert graph.predecessor(graph[2]) is graph[1]

    def test_consumers_are_distinct_and_in_list_order(self) -> None:
        graph = diamond()
        assert graph.consumers(graph[1]) == [graph[2], graph[3]]
        early = graph.insert_before(graph[2], fresh(graph, "Exp", graph[1]))
        assert graph.consumers(graph[1]) == [early, graph[2], graph[3]]

    def test_uses_are_exact(self) -> None:
        build = GraphBuilder()
        value = build.op("Relu", build.input("x", DType.F32, [4]))
        build.output("y", build.op("Mul", value, value))
        build.output("z", value)
        graph = build.finish()
        assert graph.uses(Ref(1)) == [(graph[2], 0), (graph[2], 1), (graph.outputs[1], 0)]
        assert graph.use_count(graph[1]) == 3
        assert len(graph.consumers(graph[1])) == 2

    def test_uses_by_output(self) -> None:
        graph = split_graph(1, 0, 1)
        assert [node.id for node, _ in graph.uses(Ref(1, 1))] == [2, 4]
        assert graph.use_count(graph[1]) == 3

    def test_types_and_values(self) -> None:
        graph = chain("Relu")
        assert graph.type_of(Ref(1)) == F32X4
        assert graph.const_value(Ref(1)) is None
        assert graph.const_value(None) is None
        with pytest.raises(GraphError):
            graph.const_value(Ref(77))

    def test_repr_shows_absent_inputs_and_output_numbers(self) -> None:
        assert (
            repr(Node(7, "Clip", (Ref(3, 1), None, Ref(4)), (), name="c"))
            == "<%7 Clip(%3.1, -, %4) 'c'>"
        )

    def test_op_classes_follow_what_is_present(self) -> None:
        graph = chain("Relu")
        assert OpClass.ACTIVATION in graph.op_classes
        assert not graph.op_classes & OpClass.CONV
        softmax = graph.append(fresh(graph, "Conv", graph[1]))
        assert graph.op_classes & OpClass.CONV
        graph.remove(softmax)
        assert not graph.op_classes & OpClass.CONV
        assert graph.op_counts == {"Input": 1, "Relu": 1, "Output": 1}

    def test_an_unknown_operator_has_no_class(self) -> None:
        graph = Graph()
        graph.append(Node(graph.new_id(), "vendor::Strange", (), (F32X4,)))
        assert graph.op_classes == OpClass.NONE


class TestRetained:
    def test_nodes_without_outputs_are_retained(self) -> None:
        assert Node(1, "Output", (Ref(2),), ()).retained
        assert (
            NodeFlag.RETAIN
            in Node(1, "Print", (Ref(2),), (), flags=NodeFlag.NO_LAYOUT_CHANGE).flags
        )

    def test_others_are_retained_on_request(self) -> None:
        assert not Node(1, "Relu", (), (F32X4,)).retained
        assert Node(1, "Assign", (), (F32X4,), flags=NodeFlag.RETAIN).retained


class TestChanging:
    def test_append_prepend_insert(self) -> None:
        graph = Graph()
        b = graph.append(Node(graph.new_id(), "Input", (), (F32X4,), name="b"))
        d = graph.append(Node(graph.new_id(), "Relu", (b.ref(),), (F32X4,), name="d"))
        graph.prepend(Node(graph.new_id(), "Const", (), (F32X4,), name="a"))
        graph.insert_before(d, Node(graph.new_id(), "Neg", (b.ref(),), (F32X4,), name="c"))
        assert [node.name for node in graph] == ["a", "b", "c", "d"]
        check_graph(graph, Check.HASH)

    def test_what_cannot_be_inserted(self) -> None:
        graph = chain("Relu", "Neg")
        before = snapshot(graph)
        for match, node in (
            ("in a graph already", graph[1]),
            ("cannot be 0", Node(0, "Neg", (Ref(1),), (F32X4,))),
            ("taken by", Node(1, "Neg", (Ref(1),), (F32X4,))),
            ("no node %77", fresh(graph, "Neg", Ref(77))),
            ("reads output 1 of .* which has 1", fresh(graph, "Neg", Ref(1, 1))),
            ("reads output -1 of", fresh(graph, "Neg", Ref(1, -1))),
        ):
            with pytest.raises(GraphError, match=match):
                graph.append(node)
        with pytest.raises(GraphError, match="does not stand before it"):
            graph.insert_before(graph[1], fresh(graph, "Neg", graph[1]))
        with pytest.raises(GraphError, match="does not stand before it"):
            graph.prepend(fresh(graph, "Neg", graph.inputs[0]))
        with pytest.raises(GraphError, match="is not in graph"):
            graph.insert_before(chain("Relu")[1], fresh(graph, "Neg", graph.inputs[0]))
        assert snapshot(graph) == before

    def test_remove_refuses_what_is_used(self) -> None:
        graph = chain("Relu", "Neg")
        with pytest.raises(GraphError, match="still has 1 consumers: %2"):
            graph.remove(graph[1])
        with pytest.raises(GraphError, match="is not in graph 'chain'"):
            graph.remove(chain("Relu")[1])

    def test_the_message_does_not_list_thousands_of_consumers(self) -> None:
        graph = chain("Relu")
        for _ in range(1000):
            graph.append(fresh(graph, "Neg", graph[1]))
        with pytest.raises(GraphError) as caught:
            graph.remove(graph[1])
        assert len(str(caught.value)) < 200

    def test_set_input(self) -> None:
        graph = chain("Relu", "Neg", "Max")
        graph.set_input(graph[3], 0, Ref(1))
        assert graph.consumers(graph[1]) == [graph[2], graph[3]]
        assert graph.consumers(graph[2]) == []
        graph.set_input(graph[3], 2, Ref(2))
        assert graph[3].inputs == (Ref(1), None, Ref(2))
        graph.set_input(graph[3], 0, None)
        assert list(graph[3].inputs) == [None, None, Ref(2)]
        check_graph(graph, Check.HASH)

    def test_set_input_refuses_what_breaks_the_order(self) -> None:
        graph = chain("Relu", "Neg", "Abs")
        before = snapshot(graph)
        for ref in (Ref(2), Ref(3), Ref(77), Ref(1, 1), Ref(1, -1)):
            with pytest.raises(GraphError):
                graph.set_input(graph[2], 0, ref)
        with pytest.raises(GraphError):
            graph.set_inputs(chain("Relu", "Neg")[2], (Ref(1),))
        assert snapshot(graph) == before

    def test_move(self) -> None:
        graph = diamond()
        graph.move_before(graph[3], graph[2])
        assert ops_of(graph) == ["Relu", "Abs", "Neg", "Add"]
        graph.move_before(graph[3], graph[4])
        assert ops_of(graph) == ["Relu", "Neg", "Abs", "Add"]
        graph.move_before(graph[3], graph[4])
        graph.move_before(graph[3], graph[3])
        assert ops_of(graph) == ["Relu", "Neg", "Abs", "Add"]
        check_graph(graph, Check.ALL)

    def test_move_keeps_the_order_of_references(self) -> None:
        graph = diamond()
        before = snapshot(graph)
        for node, anchor in (
            (graph[2], graph[1]),
            (graph[1], graph[3]),
            (graph[2], graph.outputs[0]),
            (graph[4], graph[3]),
        ):
            with pytest.raises(GraphError):
                graph.move_before(node, anchor)
        with pytest.raises(GraphError):
            graph.move_to_front(graph[1])
        assert snapshot(graph) == before

    def test_constants_gathered_at_the_front(self) -> None:
        graph = chain("Relu", "Neg")
        const = graph.insert_before(graph[2], Node(graph.new_id(), "Const", (), (F32X4,), value=X))
        graph.move_to_front(const)
        assert graph.first is const
        graph.move_to_front(const)
        check_graph(graph, Check.NONCONST | Check.HASH)

    def test_signature_keeps_its_order(self) -> None:
        graph = Graph()
        names = ["c", "a", "b"]
        for name in names:
            graph.append(Node(graph.new_id(), "Input", (), (F32X4,), name=name))
        for name, node in zip(names, graph.inputs, strict=True):
            graph.append(Node(graph.new_id(), "Output", (node.ref(),), (), name=name))
        assert [node.name for node in graph.inputs] == names
        assert [node.name for node in graph.outputs] == names


class TestWalkingWhileChanging:
    def test_removing_the_current_node(self) -> None:
        graph = chain("Relu")
        for _ in range(5):
            graph.append(fresh(graph, "Neg", graph[1]))
        seen = []
        for node in graph:
            seen.append(node.op)
            if node.op == "Neg":
                graph.remove(node)
        assert seen == ["Input", "Relu", "Output"] + ["Neg"] * 5
        assert ops_of(graph) == ["Relu"]

    def test_removing_the_current_node_and_those_after_it(self) -> None:
        graph = chain("Relu")
        loose = [graph.append(fresh(graph, "Neg", graph[1])) for _ in range(4)]
        last = graph.append(fresh(graph, "Exp", graph[1]))
        seen = []
        for node in graph:
            seen.append(node)
            if node is loose[0]:
                for gone in loose:
                    graph.remove(gone)
        assert seen[-2:] == [loose[0], last]
        check_graph(graph, Check.HASH)

    def test_inserting_behind_the_current_node_is_seen(self) -> None:
        graph = chain("Relu", "Neg")
        seen = []
        for node in graph:
            seen.append(node.op)
            if node.id == 1:
                graph.insert_before(graph[2], fresh(graph, "Exp", graph[1]))
        assert seen == ["Input", "Relu", "Exp", "Neg", "Output"]

    def test_backwards_removing_consumers_first(self) -> None:
        graph = chain("Relu", "Neg", "Abs")
        graph.remove(graph.outputs[0])
        for node in reversed(graph):
            if node.op != "Input":
                graph.remove(node)
        assert [node.op for node in graph] == ["Input"]


class TestNested:
    def test_outermost_first(self) -> None:
        graph = with_branches()
        assert [nested.name for nested in graph.nested()] == ["main", "then_branch", "else_branch"]

    def test_any_operator_may_hold_a_body(self) -> None:
        # Found by what nodes hold, not by what operators are known to hold bodies.
        graph = with_branches()
        graph[1].op = "vendor::Branch"
        assert len(list(graph.nested())) == 3

    def test_bodies_dropped_on_the_way_are_not_visited(self) -> None:
        graph = with_branches()
        seen = []
        for nested in graph.nested():
            seen.append(nested.name)
            if nested is graph:
                graph.set_input(graph[4], 0, graph.inputs[1].ref())
                graph.remove(graph[1])
        assert seen == ["main"]

    def test_branches_run(self) -> None:
        graph = with_branches(("Relu",), ("Neg", "Exp"))
        assert graph.run([np.array(True), X])[0].tolist() == [0, 0, 1, 3]
        assert np.allclose(graph.run([np.array(False), X])[0], np.exp(-X))
        assert_sound(graph)
