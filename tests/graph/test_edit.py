"""Rewrites as passes write them: match, build, apply in one step or not at all."""

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
from whence.compat.hexagon_consts import ConstCache, get_zero_node
from whence.errors import RewriteError, WhenceError
from whence.graph import Check, Graph, Node, NodeFlag, Ref, Rewriter, check_graph
from whence.graph.builder import GraphBuilder
from whence.graph.maker import Maker
from whence.provenance import EdgeKind, Reason
from whence.types import DType, SequenceType, TensorType


def rewriter(graph: Graph) -> Rewriter:
    return Rewriter(graph, "p")


def edges(graph: Graph) -> set[tuple[int, int, EdgeKind]]:
    return {(edge.child, edge.parent, edge.kind) for edge in graph.ledger.edges}


class TestBypass:
    def test_users_read_the_value_and_a_tombstone_stays(self) -> None:
        graph = chain("Relu", "Identity", "Neg")
        rw = rewriter(graph)
        rw.bypass(graph[2], Ref(1), reason=Reason.IDENTITY, rule="identity(x) = x")
        assert ops_of(graph) == ["Relu", "Neg"]
        assert graph[3].inputs == (Ref(1),)
        (stone,) = graph.ledger.tombstones
        assert stone == (2, frozenset({2}), Reason.IDENTITY, "p", "identity(x) = x", 1)
        assert (rw.changes, rw.added, rw.removed, rw.rules["identity(x) = x"]) == (1, 0, 1, 1)
        assert_sound(graph)

    def test_a_graph_output_is_redirected_too(self) -> None:
        graph = chain("Relu", "Identity")
        rewriter(graph).bypass(graph[2], Ref(1), reason=Reason.IDENTITY, rule="r")
        assert graph.outputs[0].inputs == (Ref(1),)
        assert_sound(graph)

    def test_a_consumer_that_reads_twice(self) -> None:
        build = GraphBuilder()
        value = build.op("Identity", build.input("x", DType.F32, [4]))
        build.output("y", build.op("Add", value, value))
        graph = build.finish()
        rewriter(graph).bypass(graph[1], graph.inputs[0].ref(), reason=Reason.IDENTITY, rule="r")
        assert graph[2].inputs == (graph.inputs[0].ref(),) * 2
        assert graph.use_count(graph.inputs[0]) == 2
        assert_sound(graph)

    def test_a_chain_one_by_one(self) -> None:
        graph = chain("Identity", "Identity", "Identity")
        for number in (1, 2, 3):
            rewriter(graph).bypass(
                graph[number], graph.inputs[0].ref(), reason=Reason.IDENTITY, rule="r"
            )
        assert ops_of(graph) == []
        assert graph.run([X])[0].tolist() == X.tolist()
        assert_sound(graph)

    def test_types_must_not_contradict(self) -> None:
        graph = split_graph(0)
        before = snapshot(graph)
        with pytest.raises(RewriteError, match=r"%1 is f32\[2\], its replacement .* is f32\[4\]"):
            rewriter(graph).bypass(
                graph[1], graph.inputs[0].ref(), reason=Reason.IDENTITY, rule="r"
            )
        assert snapshot(graph) == before

    @pytest.mark.parametrize(
        ("was", "becomes", "fits"),
        [
            (F32X4, TensorType(DType.F32, None), True),
            (F32X4, TensorType(DType.F32, ("n",)), True),
            (F32X4, TensorType(DType.F32, (None,)), True),
            (F32X4, TensorType(DType.UNDEFINED), True),
            (F32X4, TensorType(DType.F16, (4,)), False),
            (F32X4, TensorType(DType.F32, ("n", 4)), False),
            (TensorType(DType.F32, ("n", 4)), TensorType(DType.F32, ("m", 3)), False),
            (F32X4, SequenceType(F32X4), False),
            (SequenceType(F32X4), TensorType(DType.UNDEFINED), True),
            (SequenceType(F32X4), SequenceType(F32X2), True),
        ],
    )
    def test_what_contradicts(self, was: TensorType, becomes: TensorType, fits: bool) -> None:
        graph = chain("Relu", "Identity", "Neg")
        graph.set_types(graph[2], (was,))
        graph.set_types(graph[1], (becomes,))
        if fits:
            rewriter(graph).bypass(graph[2], Ref(1), reason=Reason.IDENTITY, rule="r")
        else:
            with pytest.raises(RewriteError, match="its replacement"):
                rewriter(graph).bypass(graph[2], Ref(1), reason=Reason.IDENTITY, rule="r")

    def test_a_node_whose_other_output_is_used_stays(self) -> None:
        graph = split_graph(0, 1)
        const = get_zero_node(ConstCache(graph))
        graph.set_types(graph[const], (F32X2,))
        rewriter(graph).bypass(graph[1], Ref(const), reason=Reason.IDENTITY, rule="r")
        assert graph[2].inputs == (Ref(const),)
        assert graph[3].inputs == (Ref(1, 1),)
        assert graph.ledger.tombstones == []
        assert_sound(graph)


class TestFuse:
    def test_two_become_one(self) -> None:
        graph = chain("Relu", "Neg", "Abs")
        rw = rewriter(graph)
        edit = rw.edit(graph[1], graph[2], rule="fuse")
        new = edit.node("Exp", [graph.inputs[0].ref()])
        edit.replace(graph[2], new)
        assert ops_of(graph) == ["Relu", "Neg", "Abs"]  # nothing before apply
        edit.apply()
        assert ops_of(graph) == ["Exp", "Abs"]
        assert new.origin == {1, 2}
        assert new.name == "node2"
        assert edges(graph) == {(new.id, 1, EdgeKind.FUSE), (new.id, 2, EdgeKind.FUSE)}
        assert {edge.step for edge in graph.ledger.edges} == {1}
        assert (rw.added, rw.removed) == (1, 2)
        assert_sound(graph)

    def test_a_matched_node_that_others_read_survives(self) -> None:
        graph = diamond()
        edit = rewriter(graph).edit(graph[1], graph[2], rule="fuse")
        edit.replace(graph[2], edit.node("Exp", [graph.inputs[0].ref()]))
        edit.apply()
        assert ops_of(graph) == ["Relu", "Exp", "Abs", "Add"]
        assert graph.ledger.node_count(1) == 2
        assert_sound(graph)

    def test_folded_parents_leave_effect_without_work(self) -> None:
        graph = chain("Relu", "Neg")
        edit = rewriter(graph).edit(graph[1], graph[2], rule="fold", folded=[graph[2]])
        new = edit.node("Exp", [graph.inputs[0].ref()])
        edit.replace(graph[2], new)
        edit.apply()
        assert edges(graph) == {(new.id, 1, EdgeKind.COPY), (new.id, 2, EdgeKind.FOLD)}
        assert graph.ledger.folded_origins()[new.id] == {2}

    def test_constants_among_the_matched_count_as_folded(self) -> None:
        build = GraphBuilder()
        build.output("y", build.op("Add", build.input("x", DType.F32, [4]), build.const(X)))
        graph = build.finish()
        (const,) = [node for node in graph if node.is_const]
        edit = rewriter(graph).edit(graph[1], const, rule="r")
        new = edit.node("Sub", [graph.inputs[0].ref(), edit.const(-X)])
        edit.replace(graph[1], new)
        edit.apply()
        assert edges(graph) == {(new.id, 1, EdgeKind.COPY), (new.id, const.id, EdgeKind.FOLD)}
        assert const in graph  # dead, and removed with the other dead nodes
        assert_sound(graph)

    def test_the_kind_can_be_given(self) -> None:
        graph = chain("Relu", "Neg")
        edit = rewriter(graph).edit(graph[2], rule="r", kind=EdgeKind.LOWER)
        first = edit.node("Exp", [Ref(1)])
        second = edit.node("Log", [first.ref()], kind=EdgeKind.REMAT)
        edit.replace(graph[2], second)
        edit.apply()
        assert edges(graph) == {(first.id, 2, EdgeKind.LOWER), (second.id, 2, EdgeKind.REMAT)}


class TestSplit:
    def test_one_becomes_two(self) -> None:
        graph = chain("Relu", "Neg", "Abs")
        edit = rewriter(graph).edit(graph[2], rule="split")
        first = edit.node("Exp", [Ref(1)])
        second = edit.node("Log", [first.ref()])
        edit.replace(graph[2], second)
        edit.apply()
        assert ops_of(graph) == ["Relu", "Exp", "Log", "Abs"]
        assert edges(graph) == {(first.id, 2, EdgeKind.SPLIT), (second.id, 2, EdgeKind.SPLIT)}
        assert_sound(graph)

    def test_origins_can_be_narrowed(self) -> None:
        graph = chain("Relu", "Neg", "Abs")
        edit = rewriter(graph).edit(graph[2], graph[3], rule="r")
        first = edit.node("Exp", [Ref(1)], of=[graph[2]])
        second = edit.node("Log", [first.ref()], of=[graph[3]])
        edit.replace(graph[3], second)
        edit.apply()
        assert first.origin == {2}
        assert second.origin == {3}
        assert edges(graph) == {(first.id, 2, EdgeKind.COPY), (second.id, 3, EdgeKind.COPY)}
        assert_sound(graph)

    def test_narrowing_must_not_lose_anything(self) -> None:
        graph = chain("Relu", "Neg", "Abs")
        before = snapshot(graph)
        edit = rewriter(graph).edit(graph[2], graph[3], rule="r")
        edit.replace(graph[3], edit.node("Exp", [Ref(1)], of=[graph[3]]))
        with pytest.raises(RewriteError, match=r"would lose source operators \[2\]"):
            edit.apply()
        assert snapshot(graph) == before
        edit.tombstone(graph[2], Reason.ABSORBED, into=1)
        edit.apply()
        assert graph.ledger.tombstones[0].into == 1
        assert_sound(graph)

    def test_a_new_node_may_be_named_as_parent_and_stands_for_its_own(self) -> None:
        graph = chain("Relu", "Neg", "Abs")
        edit = rewriter(graph).edit(graph[2], graph[3], rule="r")
        first = edit.node("Exp", [Ref(1)], of=[graph[2]])
        second = edit.node("Log", [first.ref()], of=[first, graph[3]])
        edit.replace(graph[3], second)
        edit.apply()
        assert second.origin == {2, 3}
        assert (second.id, 2, EdgeKind.FUSE) in edges(graph)
        assert_sound(graph)

    def test_a_node_that_nothing_reads_is_refused(self) -> None:
        graph = chain("Relu")
        before = snapshot(graph)
        edit = rewriter(graph).edit(graph[1], rule="r")
        edit.node("Exp", [graph.inputs[0].ref()])
        with pytest.raises(RewriteError, match=r"rule 'r': nothing reads the new Exp: `replace` "):
            edit.apply()
        assert snapshot(graph) == before

    @pytest.mark.parametrize(("op", "found"), [("Exq", "'Exq' is not known"), ("Add", "takes 2")])
    def test_an_operator_that_does_not_fit_is_the_rules_fault(self, op: str, found: str) -> None:
        graph = chain("Relu")
        edit = rewriter(graph).edit(graph[1], rule="r")
        with pytest.raises(WhenceError, match=rf"^pass '\w+', rule 'r': .*{found}"):
            edit.node(op, [graph.inputs[0].ref()])

    def test_a_node_from_nothing_is_refused(self) -> None:
        graph = chain("Relu")
        edit = rewriter(graph).edit(rule="r")
        with pytest.raises(RewriteError, match="Exp has no origin"):
            edit.node("Exp", [Ref(1)])


class TestInsert:
    def test_after_a_node(self) -> None:
        graph = diamond()
        edit = rewriter(graph).edit(graph[1], rule="r", kind=EdgeKind.INSERT)
        new = edit.node("Exp", [Ref(1)])
        edit.replace(graph[1], new)
        edit.apply()
        assert ops_of(graph) == ["Relu", "Exp", "Neg", "Abs", "Add"]
        assert graph[2].inputs == graph[3].inputs == (new.ref(),)
        assert new.inputs == (Ref(1),)
        assert edges(graph) == {(new.id, 1, EdgeKind.INSERT)}
        assert_sound(graph)

    def test_after_an_input(self) -> None:
        graph = chain("Relu")
        x = graph.inputs[0]
        edit = rewriter(graph).edit(graph[1], rule="r", kind=EdgeKind.INSERT)
        new = edit.node("Neg", [x.ref()])
        edit.replace(x, new)
        edit.apply()
        assert ops_of(graph) == ["Neg", "Relu"]
        assert_sound(graph)

    def test_users_of_an_input_move_to_one_of_them(self) -> None:
        # The target itself goes on reading what it read: no cycle.
        graph = chain("Neg", "Abs")
        graph.set_input(graph[2], 0, graph.inputs[0].ref())
        edit = rewriter(graph).edit(rule="r")
        edit.replace(graph.inputs[0], graph[1])
        edit.apply()
        assert graph[1].inputs == (graph.inputs[0].ref(),)
        assert graph[2].inputs == (Ref(1),)
        assert_sound(graph)

    def test_absorbed_into_an_existing_node_that_reads_it(self) -> None:
        # Matched node 1 stays, because node 2, which takes over its users, reads it.
        graph = diamond()
        edit = rewriter(graph).edit(graph[1], rule="r")
        edit.replace(graph[1], graph[2])
        edit.apply()
        assert graph[3].inputs == (Ref(2),)
        assert graph[2].inputs == (Ref(1),)
        assert_sound(graph)


class TestFolding:
    def test_only_a_constant_is_left_and_carries_the_origin(self) -> None:
        graph = chain("Relu", "Neg")
        edit = rewriter(graph).edit(graph[1], rule="fold")
        edit.replace(graph[1], edit.const(X))
        edit.apply()
        (const,) = [node for node in graph if node.is_const]
        assert const.origin == {1}
        assert edges(graph) == {(const.id, 1, EdgeKind.FOLD)}
        assert graph.run([X])[0].tolist() == (-X).tolist()
        check_graph(graph, Check.ALL & ~Check.DEADNODES)

    def test_into_an_existing_constant_needs_a_reason(self) -> None:
        graph = chain("Relu", "Neg")
        const = graph.prepend(Node(graph.new_id(), "Const", (), (F32X4,), value=X))
        edit = rewriter(graph).edit(graph[1], rule="fold")
        edit.replace(graph[1], const)
        before = snapshot(graph)
        with pytest.raises(RewriteError, match="would lose"):
            edit.apply()
        assert snapshot(graph) == before
        edit.tombstone(graph[1], Reason.FOLDED, into=const.id)
        edit.apply()
        assert_sound(graph)

    def test_unused_new_constants_stay_out(self) -> None:
        graph = chain("Relu", "Neg")
        edit = rewriter(graph).edit(graph[2], rule="r")
        edit.const(X)
        used = edit.const(2 * X)
        edit.replace(graph[2], edit.node("Add", [Ref(1), used]))
        edit.apply()
        assert [node.id for node in graph if node.is_const] == [used.node]
        assert graph.first is graph[used.node]

    def test_new_nodes_see_the_values_and_types_of_new_constants(self) -> None:
        graph = chain("Relu")
        edit = rewriter(graph).edit(graph[1], rule="r")
        shape = edit.const([2, 2], dtype=DType.I64)
        assert edit.type_of(shape) == TensorType(DType.I64, (2,))
        value = edit.value_of(shape)
        assert value is not None
        assert value.tolist() == [2, 2]
        assert edit.node("Reshape", [Ref(1), shape]).type == TensorType(DType.F32, (2, 2))


class TestShapeOfTheEdit:
    def test_trailing_absent_inputs_are_trimmed(self) -> None:
        graph = chain("Relu")
        edit = rewriter(graph).edit(graph[1], rule="r")
        assert edit.node("Clip", [Ref(1), None, None]).inputs == (Ref(1),)

    def test_retained_nodes_inputs_and_constants_are_never_removed(self) -> None:
        graph = chain("Relu", "Neg")
        kept = graph.append(fresh(graph, "Abs", graph[1]))
        kept.flags |= NodeFlag.RETAIN
        edit = rewriter(graph).edit(kept, graph.inputs[0], graph.outputs[0], graph[2], rule="r")
        edit.replace(graph[2], edit.node("Exp", [Ref(1)]))
        edit.apply()
        assert kept in graph
        assert len(graph.inputs) == len(graph.outputs) == 1
        assert graph.get(2) is None

    def test_a_stale_match_is_refused(self) -> None:
        graph = chain("Relu", "Identity", "Neg")
        gone = graph[2]
        rewriter(graph).bypass(gone, Ref(1), reason=Reason.IDENTITY, rule="r")
        before = snapshot(graph)
        edit = rewriter(graph).edit(gone, rule="again")
        edit.replace(graph[3], edit.node("Exp", [Ref(1)]))
        with pytest.raises(
            RewriteError,
            match=r"pass 'p', rule 'again': <%2 .* was matched, but is not in the graph any more",
        ):
            edit.apply()
        assert snapshot(graph) == before

    def test_an_edit_is_applied_once(self) -> None:
        graph = chain("Relu", "Neg")
        edit = rewriter(graph).edit(graph[2], rule="r")
        edit.replace(graph[2], edit.node("Exp", [Ref(1)]))
        edit.apply()
        before = snapshot(graph)
        with pytest.raises(RewriteError):
            edit.apply()
        assert snapshot(graph) == before

    def test_the_rewriter_names_the_neighbours(self) -> None:
        graph = diamond()
        rw = rewriter(graph)
        edit = rw.edit(graph[2], rule="r")
        new = edit.node("Exp", [Ref(1)])
        edit.replace(graph[2], new)
        edit.apply()
        assert set(rw.fresh) == {new, graph[4], graph[1]}

    def test_readers_of_an_heir_are_neighbours(self) -> None:
        graph = diamond()
        rw = rewriter(graph)
        edit = rw.edit(graph[1], rule="r")
        heir = edit.node("Exp", graph[1].inputs, inherit=graph[1])
        edit.apply()
        assert {heir, graph[2], graph[3]} <= set(rw.fresh)

    def test_the_one_reader_left_is_a_neighbour(self) -> None:
        # Node 3 may match now: it has become the only reader of node 1.
        graph = diamond()
        rw = rewriter(graph)
        rw.bypass(graph[2], graph[1].ref(), reason=Reason.IDENTITY, rule="r")
        rw.fresh.clear()
        graph.set_input(graph[4], 0, Ref(3))
        edit = rw.edit(graph[4], rule="r")
        edit.replace(graph[4], graph[3])
        edit.tombstone(graph[4], Reason.CANCELLED)
        edit.apply()
        assert graph[3] in rw.fresh


class TestMaker:
    def test_its_operators_come_from_the_nodes_it_is_made_of(self) -> None:
        graph = chain("Relu", "Neg")
        relu, neg = graph[1], graph[2]
        edit = rewriter(graph).edit(relu, neg, rule="r")
        doubled = Maker(edit)("Mul", relu.inputs[0], np.float32(2))
        edit.finish(neg.ref(), Maker(edit, [neg])("Clip", doubled, None, np.float32(6)))
        made = graph.producer(graph.outputs[0].first_input)
        assert (made.op, made.origin, made.inputs[1]) == ("Clip", frozenset({2}), None)
        scaled = graph.producer(made.first_input)
        assert scaled.origin == frozenset({1, 2})
        assert graph.const_value(scaled.input(1)) == np.float32(2)

    def test_a_cast_is_by_the_element_type(self) -> None:
        graph = chain("Relu")
        edit = rewriter(graph).edit(graph[1], rule="r")
        make = Maker(edit, kind=EdgeKind.LOWER)
        edit.finish(
            graph[1].ref(), make.cast(make.cast(graph[1].first_input, DType.F64), DType.F32)
        )
        assert ops_of(graph) == ["Cast", "Cast"]
        assert graph.producer(graph.outputs[0].first_input).type == F32X4
        assert {edge.kind for edge in graph.ledger.edges} == {EdgeKind.LOWER}


def test_a_rule_returns_that_it_changed_something() -> None:
    graph = chain("Relu", "Identity")
    edit = rewriter(graph).edit(graph[2], rule="r")
    edit.tombstone(graph[2], Reason.IDENTITY, into=1)
    assert edit.finish(graph[2].ref(), graph[1].ref())
