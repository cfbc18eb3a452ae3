"""What becomes of readers, ids and nested graphs in a rewrite."""

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
    ops_of,
    snapshot,
    split_graph,
    with_branches,
)
from whence.errors import RewriteError
from whence.graph import Check, Graph, Node, Ref, Rewriter, check_graph
from whence.provenance import EdgeKind, Reason


def rewriter(graph: Graph) -> Rewriter:
    return Rewriter(graph, "p")


def edges(graph: Graph) -> set[tuple[int, int, EdgeKind]]:
    return {(edge.child, edge.parent, edge.kind) for edge in graph.ledger.edges}


class TestRedirects:
    def test_all_at_once(self) -> None:
        # a -> b and b -> a: the readers exchange what they read.
        graph = diamond()
        edit = rewriter(graph).edit(rule="swap")
        edit.replace(Ref(2), Ref(3))
        edit.replace(Ref(3), Ref(2))
        edit.apply()
        assert graph[4].inputs == (Ref(3), Ref(2))
        assert_sound(graph)

    def test_a_chain_of_redirects_is_not_followed(self) -> None:
        graph = chain("Relu", "Identity", "Identity", "Neg")
        edit = rewriter(graph).edit(rule="r")
        edit.replace(Ref(3), Ref(2))
        edit.replace(Ref(2), Ref(1))
        edit.apply()
        assert graph[4].inputs == (Ref(2),)
        assert graph[3].inputs == (Ref(1),)
        assert_sound(graph)

    def test_outputs_of_one_node_exchanged(self) -> None:
        graph = split_graph(0, 1)
        edit = rewriter(graph).edit(graph[1], rule="swap")
        edit.replace(Ref(1, 0), Ref(1, 1))
        edit.replace(Ref(1, 1), Ref(1, 0))
        edit.apply()
        assert (graph[2].inputs, graph[3].inputs) == ((Ref(1, 1),), (Ref(1, 0),))
        assert_sound(graph)

    def test_node_for_node_goes_output_by_output(self) -> None:
        graph = split_graph(1, 0)
        edit = rewriter(graph).edit(graph[1], rule="r")
        new = edit.node("Split", [graph.inputs[0].ref()], graph[1].attrs, n_outputs=2)
        edit.replace(graph[1], new)
        edit.apply()
        assert (graph[2].inputs, graph[3].inputs) == ((new.ref(1),), (new.ref(0),))
        assert graph.get(1) is None
        assert_sound(graph)

    def test_one_output_of_several(self) -> None:
        graph = split_graph(0, 1)
        edit = rewriter(graph).edit(graph[1], rule="r")
        new = edit.node("Neg", [graph.inputs[0].ref()], types=F32X2)
        edit.replace(graph[1].ref(1), new)
        edit.apply()
        assert (graph[2].inputs, graph[3].inputs) == ((Ref(1, 0),), (new.ref(),))
        assert_sound(graph)

    def test_to_a_later_node_is_refused(self) -> None:
        graph = chain("Relu", "Neg", "Abs")
        before = snapshot(graph)
        edit = rewriter(graph).edit(rule="r")
        edit.replace(graph[1], graph[3])
        with pytest.raises(RewriteError, match="would stand before its new input %3"):
            edit.apply()
        assert snapshot(graph) == before

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            (Ref(77), Ref(1)),
            (Ref(1, 1), Ref(1)),
            (Ref(2), Ref(77)),
            (Ref(2), Ref(1, 1)),
            (Ref(2), Ref(1, -1)),
        ],
    )
    def test_from_or_to_nowhere_is_refused(self, old: Ref, new: Ref) -> None:
        graph = chain("Relu", "Neg", "Abs")
        before = snapshot(graph)
        edit = rewriter(graph).edit(rule="r")
        edit.replace(old, new)
        with pytest.raises(RewriteError, match="exist"):
            edit.apply()
        assert snapshot(graph) == before

    def test_from_nowhere_to_a_new_node_is_refused(self) -> None:
        graph = chain("Relu", "Neg")
        before = snapshot(graph)
        edit = rewriter(graph).edit(graph[2], rule="r")
        edit.replace(Ref(77), edit.node("Exp", [Ref(1)]))
        with pytest.raises(
            RewriteError, match=r"pass 'p', rule 'r': %77 is to be replaced, but does not exist"
        ):
            edit.apply()
        assert snapshot(graph) == before

    def test_to_a_matched_node_keeps_that_node(self) -> None:
        graph = chain("Relu", "Relu", "Neg")
        edit = rewriter(graph).edit(graph[1], graph[2], rule="relu(relu(x)) = relu(x)")
        edit.replace(graph[2], graph[1])
        edit.tombstone(graph[2], Reason.ABSORBED, into=1)
        edit.apply()
        assert ops_of(graph) == ["Relu", "Neg"]
        assert_sound(graph)

    def test_new_nodes_whose_reader_stands_before_their_input(self) -> None:
        # Node 2 would read a new node that reads node 3.
        graph = diamond()
        before = snapshot(graph)
        edit = rewriter(graph).edit(graph[1], rule="r")
        edit.replace(graph[1], edit.node("Exp", [Ref(3)]))
        with pytest.raises(RewriteError, match="would stand before its new input"):
            edit.apply()
        assert snapshot(graph) == before

    def test_a_wide_node_is_rewired_in_one_go(self) -> None:
        graph = split_graph(*range(64), outputs=64)
        total = graph.insert_before(
            graph.outputs[0],
            Node(graph.new_id(), "Sum", [Ref(1, index) for index in range(64)], (F32X4,)),
        )
        edit = rewriter(graph).edit(graph[1], rule="r")
        new = edit.node("Split", [graph.inputs[0].ref()], graph[1].attrs, n_outputs=64)
        edit.replace(graph[1], new)
        edit.apply()
        assert total.inputs == tuple(Ref(new.id, index) for index in range(64))
        check_graph(graph, Check.HASH)


class TestInherit:
    def test_users_follow_without_being_told(self) -> None:
        graph = chain("Relu", "Neg", "Abs")
        edit = rewriter(graph).edit(graph[2], rule="r")
        new = edit.node("Exp", [Ref(1)], inherit=graph[2])
        edit.apply()
        assert graph[2] is new
        assert graph[3].inputs == (Ref(2),)
        assert graph.ledger.edges == []
        assert_sound(graph)

    def test_the_heir_stands_before_the_first_user_of_what_it_replaces(self) -> None:
        # Node 2 reads node 1 and stands before node 3, the other matched node.
        graph = diamond()
        edit = rewriter(graph).edit(graph[1], graph[3], rule="r")
        heir = edit.node("Exp", [graph.inputs[0].ref()], inherit=graph[1])
        edit.replace(graph[3], heir)
        edit.apply()
        assert ops_of(graph) == ["Exp", "Neg", "Add"]
        assert heir.origin == {1, 3}
        assert_sound(graph)

    def test_an_heir_keeps_the_origin_of_its_id_even_when_narrowed(self) -> None:
        graph = chain("Relu", "Neg", "Abs")
        edit = rewriter(graph).edit(graph[2], graph[3], rule="r")
        heir = edit.node("Exp", [Ref(1)], of=[graph[3]], inherit=graph[2])
        edit.replace(graph[3], heir)
        edit.apply()
        assert heir.origin == {2, 3}
        assert_sound(graph)

    def test_a_sibling_made_of_the_old_node_does_not_inherit_what_the_heir_gained(self) -> None:
        graph = chain("Relu", "Neg", "Abs")
        edit = rewriter(graph).edit(graph[2], graph[3], rule="r")
        helper = edit.node("Exp", [Ref(1)], of=[graph[2]])
        heir = edit.node("Log", [helper.ref()], inherit=graph[2])
        edit.replace(graph[3], heir)
        edit.apply()
        assert helper.origin == {2}
        assert heir.origin == {2, 3}
        assert_sound(graph)  # the ledger derives the same from its edges

    def test_two_heirs_that_exchange_their_places(self) -> None:
        graph = chain("Relu", "Transpose", "Neg")
        edit = rewriter(graph).edit(graph[1], graph[2], rule="transpose after relu")
        moved = edit.node("Transpose", [graph.inputs[0].ref()], of=[graph[2]], inherit=graph[2])
        last = edit.node("Relu", [moved.ref()], of=[graph[1]], inherit=graph[1])
        edit.replace(graph[2], last)
        edit.apply()
        assert ops_of(graph) == ["Transpose", "Relu", "Neg"]
        assert graph[3].inputs == (Ref(1),)
        assert graph[1].origin == {1}
        assert graph[2].origin == {2}
        assert_sound(graph)

    def test_heirs_that_take_over_each_others_origin(self) -> None:
        graph = chain("Relu", "Neg", "Abs", "Exp")
        edit = rewriter(graph).edit(graph[1], graph[2], graph[3], graph[4], rule="r")
        first = edit.node("Sin", [graph.inputs[0].ref()], of=[graph[2], graph[3]], inherit=graph[1])
        second = edit.node("Cos", [first.ref()], of=[graph[1], graph[4]], inherit=graph[2])
        edit.replace(graph[4], second)
        edit.apply()
        assert first.origin == {1, 2, 3}
        assert second.origin == {1, 2, 4}
        assert_sound(graph)

    def test_the_id_of_a_survivor_is_not_free(self) -> None:
        graph = diamond()
        before = snapshot(graph)
        edit = rewriter(graph).edit(graph[2], rule="r")
        edit.node("Exp", [Ref(1)], inherit=graph[1])
        with pytest.raises(RewriteError, match="is not free"):
            edit.apply()
        assert snapshot(graph) == before

    def test_an_heir_may_read_neither_its_predecessor_nor_itself(self) -> None:
        graph = chain("Relu", "Neg")
        before = snapshot(graph)
        edit = rewriter(graph).edit(graph[2], rule="r")
        edit.node("Exp", [Ref(2)], inherit=graph[2])
        with pytest.raises(RewriteError, match="reads %2, which will not exist"):
            edit.apply()
        assert snapshot(graph) == before

    def test_an_heir_with_fewer_outputs_than_are_used(self) -> None:
        graph = split_graph(0, 1)
        before = snapshot(graph)
        edit = rewriter(graph).edit(graph[1], rule="r")
        edit.node("Neg", [graph.inputs[0].ref()], types=F32X2, inherit=graph[1])
        with pytest.raises(RewriteError, match="cannot provide"):
            edit.apply()
        assert snapshot(graph) == before

    def test_an_heir_of_several_outputs_with_some_users_sent_elsewhere(self) -> None:
        graph = split_graph(0, 1, 0)
        edit = rewriter(graph).edit(graph[1], rule="r")
        heir = edit.node(
            "Split", [graph.inputs[0].ref()], graph[1].attrs, inherit=graph[1], n_outputs=2
        )
        other = edit.node("Neg", [heir.ref(1)])
        edit.replace(graph[1].ref(1), other)
        edit.apply()
        assert [node.inputs[0] for node in graph if node.op == "Relu"] == [
            Ref(1),
            other.ref(),
            Ref(1),
        ]
        assert_sound(graph)


class TestBodies:
    def replace_if(self, graph: Graph, *, move: bool) -> None:
        branch = graph[1]
        edit = rewriter(graph).edit(branch, rule="r")
        edit.replace(
            branch,
            edit.node(
                "If",
                branch.inputs,
                branch.attrs,
                branch.outputs,
                bodies=branch.bodies if move else None,
            ),
        )
        edit.apply()

    def test_moved_to_the_successor(self) -> None:
        graph = with_branches()
        self.replace_if(graph, move=True)
        assert len(list(graph.nested())) == 3
        assert graph.run([np.array(True), X])[0].tolist() == [0, 0, 1, 3]
        assert graph.ledger.tombstones == []
        assert_sound(graph)

    def test_forgotten(self) -> None:
        graph = with_branches()
        before = snapshot(graph)
        with pytest.raises(RewriteError, match="would lose the operators nested in it"):
            self.replace_if(graph, move=False)
        assert snapshot(graph) == before

    def test_dropped_with_a_reason(self) -> None:
        graph = with_branches(("Relu", "Exp"), ("Neg",))
        rewriter(graph).bypass(graph[1], graph.inputs[1].ref(), reason=Reason.DEAD, rule="r")
        assert len(list(graph.nested())) == 1
        assert sorted(stone.node for stone in graph.ledger.tombstones) == [1, 2, 3, 4]
        assert {stone.into for stone in graph.ledger.tombstones} == {graph.inputs[1].id}
        assert_sound(graph)

    def test_one_moved_one_dropped(self) -> None:
        graph = with_branches()
        branch = graph[1]
        edit = rewriter(graph).edit(branch, rule="r")
        body = branch.bodies["then_branch"]
        new = edit.node(
            "If", branch.inputs, branch.attrs, branch.outputs, bodies={"then_branch": body}
        )
        edit.replace(branch, new)
        edit.tombstone(branch, Reason.INLINED)
        edit.apply()
        assert [nested.name for nested in graph.nested()] == ["main", "then_branch"]
        assert {stone.node for stone in graph.ledger.tombstones} == {1, 3}
        assert_sound(graph)

    def test_inlined(self) -> None:
        graph = with_branches(("Relu", "Exp"), ("Neg",))
        branch = graph[1]
        body = branch.bodies["then_branch"]
        edit = rewriter(graph).edit(branch, rule="the condition is constant")
        value = graph.inputs[1].ref()
        for inner in [node for node in body if node.op not in {"Input", "Output"}]:
            value = edit.node(inner.op, [value], of=[inner]).ref()
        edit.replace(branch, value)
        edit.tombstone(branch, Reason.INLINED, into=value.node)
        edit.apply()
        assert ops_of(graph) == ["Relu", "Exp", "Abs"]
        assert [sorted(node.origin) for node in graph if node.origin] == [[2], [3], [5]]
        assert np.allclose(graph.run([np.array(True), X])[0], np.exp(np.maximum(X, 0)))
        assert_sound(graph)

    def test_bodies_inside_bodies_are_dropped_too(self) -> None:
        graph = with_branches()
        inner = with_branches()
        body = graph[1].bodies["then_branch"]
        # A node of the body that holds a body itself, without operators of the file in it.
        nested = Graph("innermost", graph.ledger, graph.inference)
        nested.append(
            Node(
                nested.new_id(),
                "Output",
                (nested.append(Node(nested.new_id(), "Input", (), (F32X4,))).ref(),),
                (),
            )
        )
        body.insert_before(
            body.outputs[0], Node(body.new_id(), "Loop", (), (F32X4,), bodies={"body": nested})
        )
        assert len(list(graph.nested())) == 4
        rewriter(graph).bypass(graph[1], graph.inputs[1].ref(), reason=Reason.DEAD, rule="r")
        assert len(nested) == 0
        assert_sound(graph)
        assert_sound(inner)
