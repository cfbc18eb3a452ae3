"""The ledger: ids, edges, tombstones, and the promise that nothing is lost."""

from __future__ import annotations

import pytest

from whence.errors import ProvenanceError
from whence.provenance import (
    NO_ORIGIN,
    EdgeKind,
    Entry,
    Ledger,
    Origin,
    Reason,
    SourceOp,
    Tombstone,
    union_of,
)


def ledger_of(count: int) -> Ledger:
    """A ledger with `count` source operators, each carried by one node."""
    ledger = Ledger()
    for number in range(1, count + 1):
        ledger.add_source(SourceOp(number, f"op{number}", "Relu"))
        ledger.node_added(frozenset((number,)))
    return ledger


def stone(*origin: int, reason: Reason = Reason.DEAD) -> Tombstone:
    return Tombstone(origin[0], frozenset(origin), reason, "p", "r", None)


class TestIds:
    def test_sources_come_first_and_in_order(self) -> None:
        ledger = ledger_of(3)
        assert ledger.n_sources == 3
        assert ledger.source(2).name == "op2"
        assert [ledger.new_id(), ledger.new_id()] == [4, 5]

    @pytest.mark.parametrize("number", [0, 1, 3, -1])
    def test_a_gap_or_repetition_is_refused(self, number: int) -> None:
        with pytest.raises(
            ProvenanceError,
            match=f"source operator 'x' has number {number}; the next free number is 2",
        ):
            ledger_of(1).add_source(SourceOp(number, "x", "Relu"))

    def test_no_source_after_the_first_node(self) -> None:
        ledger = ledger_of(1)
        ledger.new_id()
        with pytest.raises(ProvenanceError):
            ledger.add_source(SourceOp(2, "late", "Relu"))


class TestConservation:
    def test_a_source_nobody_ever_carried_is_lost(self) -> None:
        ledger = Ledger()
        ledger.add_source(SourceOp(1, "a", "Relu"))
        assert [source.id for source in ledger.lost()] == [1]
        ledger.node_added(frozenset((1,)))
        assert ledger.lost() == []

    def test_the_error_names_the_pass_and_the_operators(self) -> None:
        ledger = ledger_of(8)
        ledger.check_conserved("fine")
        ledger.node_removed(frozenset((2, 5)))
        with pytest.raises(
            ProvenanceError,
            match=(
                r"pass 'bad' lost 'op2' \(Relu, number 2\), 'op5' \(Relu, number 5\): make new"
                r" nodes through"
            ),
        ):
            ledger.check_conserved("bad")
        ledger.node_removed(frozenset((1, 3, 4, 6, 7)))
        with pytest.raises(ProvenanceError, match=r"number 5.* and 2 more:"):
            ledger.check_conserved("worse")

    def test_the_error_is_one_line_whatever_the_operator_is_called(self) -> None:
        ledger = Ledger()
        ledger.add_source(SourceOp(1, "two\nlines", "Relu"))
        with pytest.raises(ProvenanceError) as caught:
            ledger.check_conserved("p")
        assert "\n" not in str(caught.value)

    def test_the_last_carrier_matters(self) -> None:
        ledger = ledger_of(1)
        ledger.node_added(frozenset((1,)))
        ledger.node_removed(frozenset((1,)))
        assert (ledger.lost(), ledger.node_count(1)) == ([], 1)
        ledger.node_removed(frozenset((1,)))
        assert len(ledger.lost()) == 1

    def test_a_tombstone_explains(self) -> None:
        ledger = ledger_of(2)
        ledger.node_removed(frozenset((1, 2)))
        ledger.add_tombstone(stone(1, 2))
        ledger.check_conserved("p")

    def test_a_tombstone_explains_only_what_was_gone_when_it_was_written(self) -> None:
        # One of two twins has a tombstone; the other was then dropped by someone who did not say
        # why.
        ledger = ledger_of(1)
        ledger.node_added(frozenset((1,)))
        ledger.node_removed(frozenset((1,)))
        ledger.add_tombstone(stone(1, reason=Reason.CSE))
        ledger.check_conserved("cse")
        ledger.node_removed(frozenset((1,)))
        with pytest.raises(ProvenanceError, match="pass 'careless' lost 'op1'"):
            ledger.check_conserved("careless")

    def test_back_in_a_graph_is_not_lost(self) -> None:
        ledger = ledger_of(1)
        ledger.node_removed(frozenset((1,)))
        assert len(ledger.lost()) == 1
        ledger.node_added(frozenset((1,)))
        assert ledger.lost() == []
        ledger.node_removed(frozenset((1,)))
        assert len(ledger.lost()) == 1

    def test_tombstones_of_one_source(self) -> None:
        ledger = ledger_of(3)
        ledger.add_tombstone(stone(1, 2))
        ledger.add_tombstone(stone(2, reason=Reason.CSE))
        assert [each.reason for each in ledger.tombstones_of(2)] == [Reason.DEAD, Reason.CSE]
        assert ledger.tombstones_of(3) == []


class TestReplay:
    def test_along_the_edges(self) -> None:
        ledger = ledger_of(3)
        ledger.record(4, [(1, EdgeKind.FUSE), (2, EdgeKind.FUSE)], "a", "r")
        ledger.record(5, [(4, EdgeKind.COPY)], "b", "r")
        ledger.record(6, [(5, EdgeKind.FUSE), (3, EdgeKind.FUSE)], "c", "r")
        assert ledger.replay_origins() == {
            1: {1},
            2: {2},
            3: {3},
            4: {1, 2},
            5: {1, 2},
            6: {1, 2, 3},
        }

    def test_a_node_that_inherits_an_id_grows_it_for_later_children_only(self) -> None:
        ledger = ledger_of(2)
        ledger.record(3, [(1, EdgeKind.COPY)], "a", "r")
        ledger.record(1, [(2, EdgeKind.FUSE)], "b", "r")
        ledger.record(4, [(1, EdgeKind.COPY)], "c", "r")
        assert ledger.replay_origins() == {1: {1, 2}, 2: {2}, 3: {1}, 4: {1, 2}}

    def test_edges_of_one_step_happen_at_once(self) -> None:
        # Node 1 takes in 2, and node 2 takes in 1: each as the other was before.
        ledger = ledger_of(3)
        ledger.record_step(
            [
                Entry(1, ((1, EdgeKind.FUSE), (2, EdgeKind.FUSE)), "p", "r"),
                Entry(4, ((1, EdgeKind.COPY),), "p", "r"),
                Entry(2, ((2, EdgeKind.FUSE), (1, EdgeKind.FUSE), (3, EdgeKind.FUSE)), "p", "r"),
            ]
        )
        assert ledger.replay_origins() == {1: {1, 2}, 2: {1, 2, 3}, 3: {3}, 4: {1}}
        assert all(edge.child != edge.parent for edge in ledger.edges)
        assert len({edge.step for edge in ledger.edges}) == 1

    def test_parents_without_origin(self) -> None:
        ledger = ledger_of(1)
        ledger.record(9, [(8, EdgeKind.COPY)], "p", "r")
        assert ledger.replay_origins()[9] == NO_ORIGIN

    def test_folded_is_what_came_through_fold_edges_only(self) -> None:
        ledger = ledger_of(3)
        ledger.record(4, [(1, EdgeKind.FUSE), (2, EdgeKind.FOLD)], "a", "r")
        ledger.record(5, [(4, EdgeKind.COPY)], "b", "r")
        ledger.record(6, [(5, EdgeKind.FUSE), (2, EdgeKind.FUSE)], "c", "r")
        ledger.record(7, [(5, EdgeKind.FOLD), (3, EdgeKind.COPY)], "d", "r")
        folded = ledger.folded_origins()
        assert folded[4] == folded[5] == {2}
        assert folded[6] == NO_ORIGIN
        assert folded[7] == {1, 2}
        assert folded[1] == NO_ORIGIN

    def test_many_parents_cost_linear_time(self) -> None:
        ledger = ledger_of(20_000)
        ledger.record(30_000, [(number, EdgeKind.FUSE) for number in range(1, 20_001)], "p", "r")
        assert len(ledger.replay_origins()[30_000]) == 20_000

    def test_children(self) -> None:
        ledger = ledger_of(2)
        ledger.record(3, [(1, EdgeKind.FUSE), (2, EdgeKind.FUSE)], "a", "r")
        ledger.record(4, [(1, EdgeKind.REMAT)], "b", "r")
        index = ledger.children()
        assert [(edge.child, edge.kind) for edge in index[1]] == [
            (3, EdgeKind.FUSE),
            (4, EdgeKind.REMAT),
        ]
        assert [edge.pass_name for edge in index[2]] == ["a"]
        assert 3 not in index


def test_a_copy_goes_its_own_way() -> None:
    ledger = ledger_of(2)
    ledger.record(3, [(1, EdgeKind.COPY)], "a", "r")
    twin = ledger.copy()
    twin.record(4, [(2, EdgeKind.COPY)], "b", "r")
    twin.node_removed(frozenset((1,)))
    twin.add_tombstone(stone(1))
    twin.node_removed(frozenset((2,)))
    assert len(ledger.edges) == 1
    assert ledger.tombstones == []
    assert ledger.node_count(1) == 1
    assert ledger.lost() == []
    assert [source.id for source in twin.lost()] == [2]
    # Ids are handed out independently from here on, and steps do not run into each other.
    assert ledger.new_id() == twin.new_id()
    assert twin.edges[0].step != twin.edges[1].step


def test_union_shares_what_it_can() -> None:
    first: Origin = frozenset((1, 2))
    assert union_of([first]) is first
    assert union_of([NO_ORIGIN, first, NO_ORIGIN]) is first
    assert union_of([first, frozenset((3,))]) == {1, 2, 3}
    assert union_of([]) == NO_ORIGIN
