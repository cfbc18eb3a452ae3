"""Replacing parts of the graph in the three forms of the seed."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.making import (
    F32X2,
    F32X4,
    X,
    assert_sound,
    chain,
    diamond,
    fresh,
    ops_of,
    snapshot,
    split_graph,
)
from whence.compat.hexagon import insert_nodes, replace_node_with, replace_nodes
from whence.compat.hexagon_consts import prepend_const
from whence.errors import RewriteError
from whence.graph import Graph, Node, Ref
from whence.provenance import EdgeKind, Reason


class TestReplaceNodes:
    def test_two_become_one_that_inherits_an_id(self) -> None:
        graph = chain("Relu", "Neg", "Abs")
        new = fresh(graph, "Identity", graph.inputs[0], node_id=2)
        replace_nodes(graph, None, new, graph[1], graph[2], pass_name="p", rule="r")
        assert graph[2] is new
        assert graph.get(1) is None
        assert graph[3].inputs == (Ref(2),)
        assert new.origin == {1, 2}
        assert ops_of(graph) == ["Identity", "Abs"]
        assert_sound(graph)
        (edge,) = graph.ledger.edges
        assert edge[:5] == (2, 1, EdgeKind.FUSE, "p", "r")

    def test_the_new_node_stands_where_the_first_was(self) -> None:
        graph = diamond()
        # Nodes 2 and 4 go, 3 stands between them and stays.
        with pytest.raises(RewriteError, match="would stand before its input"):
            replace_nodes(
                graph,
                None,
                fresh(graph, "Add", graph[1], graph[3], node_id=4),
                graph[2],
                graph[4],
                pass_name="p",
            )
        new = fresh(graph, "Mul", graph[1], graph[1], node_id=4)
        replace_nodes(graph, None, new, graph[2], graph[4], pass_name="p")
        assert ops_of(graph) == ["Relu", "Mul", "Abs"]
        assert_sound(graph)

    def test_none_among_the_others_is_skipped(self) -> None:
        graph = chain("Relu", "Neg", "Abs")
        replace_nodes(
            graph,
            None,
            fresh(graph, "Exp", graph.inputs[0], node_id=3),
            graph[1],
            None,
            graph[2],
            None,
            graph[3],
            pass_name="p",
        )
        assert ops_of(graph) == ["Exp"]
        assert_sound(graph)

    def test_deleting_needs_a_reason(self) -> None:
        graph = chain("Relu")
        loose = graph.append(fresh(graph, "Neg", graph[1]))
        replace_nodes(graph, None, None, loose, pass_name="p")  # it has no origin to lose
        graph = chain("Relu", "Neg")
        graph.set_input(graph.outputs[0], 0, Ref(1))
        before = snapshot(graph)
        with pytest.raises(
            RewriteError,
            match=(
                r"pass 'p', rule '': removing <%2 Neg\(%1\) 'node2'> would lose source operators"
                r" \[2\]"
            ),
        ):
            replace_nodes(graph, None, None, graph[2], pass_name="p")
        assert snapshot(graph) == before
        replace_nodes(graph, None, None, graph[2], pass_name="p", rule="unused", reason=Reason.DEAD)
        stone = graph.ledger.tombstones[-1]
        assert (
            stone.node,
            stone.origin,
            stone.reason,
            stone.pass_name,
            stone.rule,
            stone.into,
        ) == (
            2,
            frozenset({2}),
            Reason.DEAD,
            "p",
            "unused",
            None,
        )
        assert_sound(graph)

    def test_a_node_in_use_cannot_be_deleted(self) -> None:
        graph = chain("Relu", "Neg")
        before = snapshot(graph)
        with pytest.raises(
            RewriteError, match=r"<%1 Relu.* is to be removed, but <%2 Neg.* reads it"
        ):
            replace_nodes(graph, None, None, graph[1], pass_name="p", reason=Reason.DEAD)
        assert snapshot(graph) == before

    def test_order_is_required(self) -> None:
        graph = chain("Relu", "Neg", "Abs")
        before = snapshot(graph)
        new = fresh(graph, "Exp", graph.inputs[0], node_id=3)
        for wrong in (
            (graph[2], graph[1], graph[3]),
            (graph[1], graph[3], graph[2]),
            (graph[1], graph[1]),
        ):
            with pytest.raises(RewriteError, match="do not stand in that order"):
                replace_nodes(graph, None, new, *wrong, pass_name="p")
            assert snapshot(graph) == before
        # The original would have removed some of them by now.
        assert new.graph is None
        assert new.creation is None
        replace_nodes(graph, None, new, graph[1], graph[2], graph[3], pass_name="p")
        assert new.origin == {1, 2, 3}

    def test_the_search_starts_at_the_anchor(self) -> None:
        graph = chain("Relu", "Neg", "Abs")
        before = snapshot(graph)
        with pytest.raises(RewriteError, match="stands before the anchor"):
            replace_nodes(
                graph,
                graph[2],
                fresh(graph, "Exp", graph.inputs[0], node_id=1),
                graph[1],
                pass_name="p",
            )
        assert snapshot(graph) == before
        replace_nodes(
            graph,
            graph[1],
            fresh(graph, "Exp", graph.inputs[0], node_id=1),
            graph[1],
            pass_name="p",
        )
        replace_nodes(
            graph, graph[1], fresh(graph, "Sign", graph[2], node_id=3), graph[3], pass_name="p"
        )
        assert ops_of(graph) == ["Exp", "Neg", "Sign"]

    def test_anchor_and_nodes_must_be_in_the_graph(self) -> None:
        graph, other = chain("Relu"), chain("Relu")
        for anchor, node in (
            (None, other[1]),
            (other[1], graph[1]),
            (fresh(graph, "Neg", graph[1]), graph[1]),
        ):
            with pytest.raises(RewriteError, match="is not in the graph"):
                replace_nodes(graph, anchor, None, node, pass_name="p", reason=Reason.DEAD)

    @pytest.mark.parametrize("outputs", [0, 1])
    def test_an_heir_must_provide_what_is_read(self, outputs: int) -> None:
        graph = split_graph(1)
        before = snapshot(graph)
        with pytest.raises(RewriteError, match="cannot provide"):
            replace_nodes(
                graph,
                None,
                fresh(graph, "Neg", graph.inputs[0], node_id=1, outputs=outputs),
                graph[1],
                pass_name="p",
            )
        assert snapshot(graph) == before

    def test_an_heir_must_have_the_type(self) -> None:
        graph = chain("Relu", "Neg")
        before = snapshot(graph)
        with pytest.raises(RewriteError, match=r"%1 is f32\[4\], its replacement %1 is f32\[2\]"):
            replace_nodes(
                graph,
                None,
                Node(1, "Relu", (graph.inputs[0].ref(),), (F32X2,)),
                graph[1],
                pass_name="p",
            )
        assert snapshot(graph) == before

    def test_a_new_node_may_not_read_what_is_removed(self) -> None:
        graph = chain("Relu", "Neg")
        before = snapshot(graph)
        for new in (
            fresh(graph, "Exp", graph[1], node_id=2),
            fresh(graph, "Exp", graph[1], node_id=1),
            fresh(graph, "Exp", Ref(99)),
        ):
            with pytest.raises(RewriteError, match="which will not exist"):
                replace_nodes(graph, None, new, graph[1], graph[2], pass_name="p")
        assert snapshot(graph) == before

    def test_a_new_node_must_be_new(self) -> None:
        graph = chain("Relu", "Neg", "Abs")
        before = snapshot(graph)
        with pytest.raises(RewriteError, match="in a graph already"):
            replace_nodes(graph, None, graph[3], graph[1], pass_name="p")
        with pytest.raises(RewriteError, match="is not free"):
            replace_nodes(
                graph,
                None,
                fresh(graph, "Exp", graph.inputs[0], node_id=3),
                graph[1],
                graph[2],
                pass_name="p",
            )
        with pytest.raises(RewriteError, match="is not free"):
            replace_nodes(
                graph,
                None,
                fresh(graph, "Exp", graph.inputs[0], node_id=0),
                graph[1],
                graph[2],
                pass_name="p",
            )
        assert snapshot(graph) == before

    def test_a_constant_may_take_the_place_of_an_operator(self) -> None:
        graph = chain("Relu", "Neg")
        const = Node(1, "Const", (), (F32X4,), value=np.ones(4, np.float32))
        replace_nodes(graph, None, const, graph[1], pass_name="p")
        assert graph.run([X])[0].tolist() == [-1, -1, -1, -1]
        assert const.origin == {1}
        assert_sound(graph)

    def test_a_constant_may_take_the_place_of_a_constant(self) -> None:
        graph = chain("Relu")
        const = prepend_const(graph, graph.new_id(), np.ones(4, np.float32))
        total = graph.insert_before(
            graph.outputs[0], Node(graph.new_id(), "Add", (Ref(1), const.ref()), (F32X4,))
        )
        graph.set_input(graph.outputs[0], 0, total.ref())
        replace_nodes(
            graph, None, Node(const.id, "Const", (), (F32X4,), value=X), const, pass_name="p"
        )
        assert graph.run([X])[0].tolist() == (np.maximum(X, 0) + X).tolist()
        assert_sound(graph)


class TestReplaceNodeWith:
    def test_one_becomes_several_in_order_and_contiguous(self) -> None:
        graph = chain("Relu", "Neg", "Abs")
        first = fresh(graph, "Exp", graph[1])
        second = fresh(graph, "Log", first, node_id=2)
        assert (
            replace_node_with(
                graph, None, graph[2], first, None, second, None, pass_name="p", rule="r"
            )
            == 2
        )
        assert ops_of(graph) == ["Relu", "Exp", "Log", "Abs"]
        assert graph.successor(first) is second
        assert first.origin == second.origin == {2}
        assert graph[3].inputs == (second.ref(),)
        assert {edge.kind for edge in graph.ledger.edges} == {EdgeKind.SPLIT}
        assert_sound(graph)

    def test_one_becomes_one(self) -> None:
        graph = chain("Relu", "Neg")
        new = fresh(graph, "Exp", graph[1], node_id=2)
        assert replace_node_with(graph, graph[1], graph[2], new, pass_name="p") == 1
        assert graph.ledger.edges == []  # it kept its id: there is nothing to tell
        assert new.origin == {2}
        assert_sound(graph)

    def test_nothing_removed_is_insertion(self) -> None:
        graph = chain("Relu", "Neg")
        new = fresh(graph, "Exp", graph[1], cause=graph[2])
        assert replace_node_with(graph, graph[2], None, new, None, pass_name="p") == 1
        assert ops_of(graph) == ["Relu", "Exp", "Neg"]
        assert new.origin == {2}
        assert_sound(graph)

    def test_nothing_added_is_deletion(self) -> None:
        graph = chain("Relu", "Neg")
        graph.set_input(graph.outputs[0], 0, Ref(1))
        with pytest.raises(RewriteError, match="name a reason"):
            replace_node_with(graph, None, graph[2], None, pass_name="p")
        assert (
            replace_node_with(graph, None, graph[2], None, pass_name="p", reason=Reason.DEAD) == 0
        )
        assert ops_of(graph) == ["Relu"]
        assert_sound(graph)

    def test_a_node_before_the_anchor_is_not_found(self) -> None:
        graph = chain("Relu", "Neg")
        before = snapshot(graph)
        with pytest.raises(RewriteError, match="stands before the anchor"):
            replace_node_with(
                graph,
                graph[2],
                graph[1],
                fresh(graph, "Exp", graph.inputs[0], node_id=1),
                pass_name="p",
            )
        assert snapshot(graph) == before

    def test_new_nodes_must_stand_in_the_order_they_read_each_other(self) -> None:
        graph = chain("Relu", "Neg")
        first = fresh(graph, "Exp", graph[1])
        second = fresh(graph, "Log", first, node_id=2)
        before = snapshot(graph)
        with pytest.raises(RewriteError, match="will not exist"):
            replace_node_with(graph, None, graph[2], second, first, pass_name="p")
        with pytest.raises(RewriteError, match="is not free"):
            replace_node_with(graph, None, graph[2], first, first, second, pass_name="p")
        assert snapshot(graph) == before
        assert replace_node_with(graph, None, graph[2], first, second, pass_name="p") == 2


class TestInsertNodes:
    def test_in_front_of_the_anchor(self) -> None:
        graph = chain("Relu", "Neg")
        first = fresh(graph, "Exp", graph[1], cause=graph[1])
        second = fresh(graph, "Log", first, cause=graph[1])
        assert insert_nodes(graph, graph[2], None, first, second, None, pass_name="p") == 2
        assert ops_of(graph) == ["Relu", "Exp", "Log", "Neg"]
        assert first.origin == second.origin == {1}
        assert_sound(graph)

    def test_without_an_anchor_at_the_head(self) -> None:
        graph = chain("Relu")
        assert (
            insert_nodes(
                graph,
                None,
                Node(
                    graph.new_id(),
                    "Const",
                    (),
                    (F32X4,),
                    value=X,
                    creation=fresh(graph, "", cause=graph[1]).creation,
                ),
                pass_name="p",
            )
            == 1
        )
        assert graph.first is not None
        assert graph.first.is_const

    def test_into_an_empty_graph(self) -> None:
        graph = Graph("empty")
        node = Node(graph.new_id(), "Const", (), (F32X4,), value=X)
        with pytest.raises(RewriteError, match="without naming the node that caused it"):
            insert_nodes(graph, None, node, pass_name="p")
        assert len(graph) == 0
        graph.append(node)
        assert graph.first is graph.last is node

    def test_nothing_to_insert(self) -> None:
        graph = chain("Relu")
        before = snapshot(graph)
        assert insert_nodes(graph, None, None, pass_name="p") == 0
        assert insert_nodes(graph, graph[1], pass_name="p") == 0
        assert snapshot(graph) == before

    def test_an_inserted_node_names_its_cause(self) -> None:
        graph = chain("Relu", "Neg")
        before = snapshot(graph)
        with pytest.raises(RewriteError, match="without naming the node that caused it"):
            insert_nodes(graph, graph[2], fresh(graph, "Exp", graph[1]), pass_name="p")
        assert snapshot(graph) == before

    def test_inputs_must_stand_before_the_anchor(self) -> None:
        graph = chain("Relu", "Neg")
        before = snapshot(graph)
        for anchor in (graph[1], graph[2], None):
            with pytest.raises(RewriteError, match="would stand before its input"):
                insert_nodes(
                    graph, anchor, fresh(graph, "Exp", graph[2], cause=graph[2]), pass_name="p"
                )
        assert snapshot(graph) == before

    def test_the_anchor_must_be_in_the_graph(self) -> None:
        graph = chain("Relu")
        with pytest.raises(RewriteError, match="where new nodes are to go, is not in the graph"):
            insert_nodes(
                graph,
                chain("Relu")[1],
                fresh(graph, "Exp", graph.inputs[0], cause=graph[1]),
                pass_name="p",
            )
