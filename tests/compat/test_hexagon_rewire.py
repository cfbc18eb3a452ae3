"""Reconnecting inputs: the nybble pattern, tables, and no half-done work."""

from __future__ import annotations

import pytest

from tests.graph.making import X, assert_sound, chain, fresh, ops_of, snapshot, split_graph
from whence.compat.hexagon import (
    change_multi_output_refs,
    change_multi_output_refs_table,
    change_output_refs,
    change_single_output_ref,
)
from whence.errors import GraphError, RewriteError
from whence.graph import Graph, Node, Ref
from whence.graph.builder import GraphBuilder
from whence.types import DType


def two_splits(readers: tuple[int, ...], outputs: int = 4) -> Graph:
    """1 and 2: the same Split of x, twice; then one Relu on each of `readers`, outputs of node
    1.
    """
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2 * outputs])
    first, _ = (
        build.op("Split", x, n_outputs=outputs, axis=0, num_outputs=outputs) for _ in range(2)
    )
    for position, output in enumerate(readers):
        build.output(f"y{position}", build.op("Relu", first[output]))
    return build.finish()


def read_by(graph: Graph) -> list[Ref | None]:
    return [node.inputs[0] for node in graph if node.op == "Relu"]


class TestPattern:
    def test_the_example_of_the_seed(self) -> None:
        # 0xF321: outputs 0, 1, 2 go to the same output of the new node, output 3 stays.
        graph = two_splits((0, 1, 2, 3))
        assert change_output_refs(graph, None, 1, 2, 0xF321) == 3
        assert read_by(graph) == [Ref(2, 0), Ref(2, 1), Ref(2, 2), Ref(1, 3)]
        assert_sound(graph)

    def test_output_4_is_an_error_in_the_example_and_nothing_changes(self) -> None:
        # The original remembers the error, but goes on changing the others.
        graph = two_splits((0, 1, 4), outputs=5)
        before = snapshot(graph)
        with pytest.raises(
            RewriteError, match=r"0xf321 does not say what becomes of output 4 of %1"
        ):
            change_output_refs(graph, None, 1, 2, 0xF321)
        assert snapshot(graph) == before

    @pytest.mark.parametrize("readers", [(0, 1), (1, 0)])
    def test_nybble_0_is_an_error_wherever_it_is_met(self, readers: tuple[int, int]) -> None:
        graph = two_splits(readers)
        before = snapshot(graph)
        with pytest.raises(RewriteError, match="output 1 of %1"):
            change_output_refs(graph, None, 1, 2, 0x1)
        assert snapshot(graph) == before

    def test_nybble_0_for_an_output_nobody_reads_is_fine(self) -> None:
        graph = two_splits((0, 0))
        assert change_output_refs(graph, None, 1, 2, 0x1) == 2

    def test_outputs_are_permuted(self) -> None:
        graph = two_splits((0, 1, 2, 3))
        assert change_output_refs(graph, None, 1, 2, 0x1234) == 4
        assert read_by(graph) == [Ref(2, 3), Ref(2, 2), Ref(2, 1), Ref(2, 0)]
        assert_sound(graph)

    def test_output_15_is_the_last_a_pattern_speaks_of(self) -> None:
        graph = two_splits((15,), outputs=17)
        assert change_output_refs(graph, None, 1, 2, 0xE << 60) == 1
        assert read_by(graph) == [Ref(2, 13)]

    def test_output_16_is_always_an_error(self) -> None:
        graph = two_splits((16,), outputs=17)
        before = snapshot(graph)
        for pattern in (0xFFFFFFFFFFFFFFFF, (1 << 68) - 1, -1):
            with pytest.raises(RewriteError, match="output 16"):
                change_output_refs(graph, None, 1, 2, pattern)
        assert snapshot(graph) == before

    def test_an_output_the_new_node_lacks_is_an_error(self) -> None:
        graph = two_splits((0, 1))
        before = snapshot(graph)
        with pytest.raises(RewriteError, match=r"would read %2.5, which does not exist"):
            change_output_refs(graph, None, 1, 2, 0x61)
        assert snapshot(graph) == before

    def test_a_new_node_that_does_not_exist_is_an_error(self) -> None:
        graph = two_splits((0,))
        with pytest.raises(RewriteError, match=r"would read %77, which does not exist"):
            change_output_refs(graph, None, 1, 77, 0x1)

    def test_an_old_node_that_does_not_exist_is_an_error(self) -> None:
        with pytest.raises(GraphError, match="no node %77"):
            change_output_refs(two_splits((0,)), None, 77, 1, 0x1)

    def test_a_new_node_that_stands_later_is_an_error(self) -> None:
        graph = chain("Relu", "Neg", "Abs")
        before = snapshot(graph)
        with pytest.raises(RewriteError, match="does not stand before it"):
            change_output_refs(graph, None, 1, 3, 0x1)
        assert snapshot(graph) == before

    def test_all_f_changes_nothing(self) -> None:
        graph = two_splits((0, 1, 2, 3))
        before = snapshot(graph)
        assert change_output_refs(graph, None, 1, 2, 0xFFFF) == 0
        assert snapshot(graph) == before

    def test_a_consumer_that_reads_twice_counts_twice(self) -> None:
        build = GraphBuilder()
        x = build.input("x", DType.F32, [4])
        first, _ = build.op("Relu", x), build.op("Abs", x)
        build.output("y", build.op("Mul", first, first))
        graph = build.finish()
        assert change_output_refs(graph, None, 1, 2, 0x1) == 2
        assert graph[3].inputs == (Ref(2), Ref(2))
        assert_sound(graph)

    def test_graph_outputs_are_reconnected_like_any_consumer(self) -> None:
        graph = chain("Relu", "Identity")
        assert change_output_refs(graph, None, 2, 1, 0x1) == 1
        assert graph.outputs[0].inputs == (Ref(1),)
        assert graph.run([X])[0].tolist() == [0, 0, 1, 3]


class TestBegin:
    def test_begin_itself_is_scanned(self) -> None:
        graph = two_splits((0, 0, 0))
        assert change_output_refs(graph, graph[4], 1, 2, 0x1) == 2
        assert read_by(graph) == [Ref(1), Ref(2), Ref(2)]

    def test_what_stands_before_begin_is_not_looked_at(self) -> None:
        # Output 1 has no nybble, but its reader stands before `begin`.
        graph = two_splits((1, 0))
        assert change_output_refs(graph, graph[4], 1, 2, 0x1) == 1
        assert read_by(graph) == [Ref(1, 1), Ref(2)]

    def test_begin_must_be_in_the_graph(self) -> None:
        graph = two_splits((0,))
        with pytest.raises(RewriteError, match="is not in the graph"):
            change_output_refs(graph, fresh(graph, "Neg", graph[1]), 1, 2, 0x1)

    def test_begin_serves_to_insert_after_a_node(self) -> None:
        graph = chain("Relu", "Neg")
        new = graph.insert_before(graph[2], fresh(graph, "Abs", graph[1]))
        # Without `begin` the new node would read itself.
        before = snapshot(graph)
        with pytest.raises(RewriteError, match="does not stand before it"):
            change_multi_output_refs(graph, None, 1, [new])
        assert snapshot(graph) == before
        assert change_multi_output_refs(graph, graph[2], 1, [new]) == 1
        assert graph[2].inputs == (new.ref(),)
        assert new.inputs == (Ref(1),)


class TestTable:
    def test_each_output_goes_to_its_own_place(self) -> None:
        graph = two_splits((0, 1, 2, 3))
        assert change_multi_output_refs_table(graph, None, 1, [Ref(2, 3), None, Ref(2, 0)]) == 2
        assert read_by(graph) == [Ref(2, 3), Ref(1, 1), Ref(2, 0), Ref(1, 3)]
        assert_sound(graph)

    def test_an_empty_table_changes_nothing(self) -> None:
        graph = two_splits((0, 1))
        assert change_multi_output_refs_table(graph, None, 1, []) == 0

    def test_outputs_of_one_node_can_be_swapped(self) -> None:
        graph = two_splits((0, 1))
        assert change_multi_output_refs_table(graph, None, 1, [Ref(1, 1), Ref(1, 0)]) == 2
        assert read_by(graph) == [Ref(1, 1), Ref(1, 0)]
        assert_sound(graph)

    @pytest.mark.parametrize("wrong", [Ref(2, 4), Ref(2, -1), Ref(99), Ref(0)])
    def test_an_entry_that_does_not_exist_is_an_error(self, wrong: Ref) -> None:
        graph = two_splits((0, 1))
        before = snapshot(graph)
        with pytest.raises(RewriteError, match="does not exist"):
            change_multi_output_refs_table(graph, None, 1, [Ref(2, 0), wrong])
        assert snapshot(graph) == before

    def test_nodes_form_takes_their_first_outputs(self) -> None:
        graph = split_graph(0, 1)
        after = [
            graph.insert_before(graph[2], fresh(graph, "Neg", Ref(1, index))) for index in (0, 1)
        ]
        assert change_multi_output_refs(graph, graph[2], 1, [after[0], None]) == 1
        assert read_by(graph) == [after[0].ref(), Ref(1, 1)]
        assert change_multi_output_refs(graph, graph[2], 1, [None, after[1]]) == 1
        assert read_by(graph) == [after[0].ref(), after[1].ref()]
        assert_structure(graph)

    def test_a_node_outside_the_graph_is_an_error(self) -> None:
        # The original lets references dangle until the node is inserted.
        graph = split_graph(0, 1)
        before = snapshot(graph)
        with pytest.raises(RewriteError, match="does not exist"):
            change_multi_output_refs(graph, None, 1, [fresh(graph, "Neg", Ref(1))])
        assert snapshot(graph) == before


class TestSingle:
    def test_only_the_exact_output(self) -> None:
        graph = two_splits((0, 1, 0))
        assert change_single_output_ref(graph, None, Ref(1, 0), Ref(2, 2)) == 2
        assert read_by(graph) == [Ref(2, 2), Ref(1, 1), Ref(2, 2)]
        assert change_single_output_ref(graph, None, Ref(1, 3), Ref(2, 2)) == 0


def assert_structure(graph: Graph) -> None:
    """Sound but for the ledger: nodes put in by hand have no history."""
    from whence.graph import Check, check_graph

    check_graph(graph, Check.HASH)
    assert ops_of(graph)


def test_absent_inputs_stay_absent() -> None:
    graph = chain("Relu", "Neg")
    clip = graph.append(Node(graph.new_id(), "Clip", (Ref(1), None, Ref(1)), graph[1].outputs))
    assert change_output_refs(graph, clip, 1, 2, 0x1) == 2
    assert clip.inputs == (Ref(2), None, Ref(2))
