"""Running passes: order, skipping, reports, checks, and who is blamed."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.graph.making import X, assert_sound, chain, fresh, ops_of, with_branches
from whence.errors import GraphError, ProvenanceError, RewriteError, WhenceError
from whence.graph import Check, Graph, Node, Ref, Rewriter
from whence.graph.builder import GraphBuilder
from whence.ops.definition import OpClass
from whence.passes.base import Pass, RulePass
from whence.passes.manager import CheckLevel, run_passes
from whence.provenance import Reason
from whence.types import DType


@dataclass(frozen=True, slots=True)
class DropIdentities(RulePass):
    name = "drop_identities"
    summary = "identity(x) = x"
    anchors = frozenset({"Identity"})

    def visit(self, node: Node, rewriter: Rewriter) -> None:
        if node.inputs[0] is not None:
            rewriter.bypass(node, node.inputs[0], reason=Reason.IDENTITY, rule="identity(x) = x")


@dataclass(frozen=True, slots=True)
class CancelNegations(RulePass):
    name = "cancel_negations"
    summary = "-(-x) = x"
    anchors = frozenset({"Neg"})

    def visit(self, node: Node, rewriter: Rewriter) -> None:
        ref = node.inputs[0]
        inner = rewriter.graph[ref.node] if ref is not None else node
        if inner.op != "Neg" or inner is node or inner.inputs[0] is None:
            return
        edit = rewriter.edit(inner, node, rule="-(-x) = x")
        edit.replace(node, inner.inputs[0])
        edit.tombstone(node, Reason.CANCELLED, into=inner.inputs[0].node)
        edit.tombstone(inner, Reason.CANCELLED, into=inner.inputs[0].node)
        edit.apply()


@dataclass(frozen=True, slots=True)
class OnConvolutions(Pass):
    name = "on_convolutions"
    summary = ""
    classes = OpClass.CONV

    def run(self, rewriter: Rewriter) -> None:
        raise AssertionError("there are no convolutions")


class TestReports:
    def test_what_each_pass_did(self) -> None:
        graph = chain("Identity", "Neg", "Neg", "Identity", "Relu")
        first, second, third = run_passes(
            graph, [DropIdentities(), CancelNegations(), OnConvolutions()], check=CheckLevel.OUTPUTS
        )
        assert ops_of(graph) == ["Relu"]
        assert (
            first.name,
            first.summary,
            first.changes,
            first.removed,
            first.added,
            first.skipped,
        ) == (
            "drop_identities",
            "identity(x) = x",
            2,
            2,
            0,
            "",
        )
        assert second.rules == {"-(-x) = x": 1}
        assert second.removed == 2
        assert first.nanoseconds > 0
        assert third.skipped == "no operator of class CONV"
        assert third.changes == 0
        assert_sound(graph)

    def test_the_ledger_keeps_them(self) -> None:
        graph = chain("Identity", "Relu")
        reports = run_passes(graph, [DropIdentities(), CancelNegations()])
        reports += run_passes(graph, [OnConvolutions()])
        assert graph.ledger.passes == reports
        twin = graph.copy()
        run_passes(twin, [OnConvolutions()])
        assert graph.ledger.passes == reports
        assert len(twin.ledger.passes) == 4

    def test_rule_passes_are_skipped_by_their_anchors(self) -> None:
        graph = chain("Relu")
        (report,) = run_passes(graph, [DropIdentities()])
        assert report.skipped == "no Identity"

    def test_progress(self) -> None:
        told: list[tuple[str, int, int]] = []
        run_passes(
            chain("Relu"),
            [DropIdentities(), CancelNegations()],
            progress=lambda *what: told.append(what),
        )
        assert told == [("drop_identities", 0, 2), ("cancel_negations", 1, 2)]

    def test_the_ledger_is_signed_with_the_name_of_the_pass(self) -> None:
        graph = chain("Identity", "Relu")
        run_passes(graph, [DropIdentities()])
        assert {stone.pass_name for stone in graph.ledger.tombstones} == {"drop_identities"}


class TestNested:
    def test_bodies_are_transformed_too(self) -> None:
        graph = with_branches(("Identity", "Relu"), ("Neg", "Neg", "Exp"))
        first, second = run_passes(
            graph, [DropIdentities(), CancelNegations()], check=CheckLevel.INVARIANTS
        )
        assert ops_of(graph[1].bodies["then_branch"]) == ["Relu"]
        assert ops_of(graph[1].bodies["else_branch"]) == ["Exp"]
        assert (first.removed, second.removed) == (1, 2)
        assert first.skipped == second.skipped == ""
        assert_sound(graph)

    def test_bodies_that_the_pass_dropped_are_not_run(self) -> None:
        seen: list[str] = []

        @dataclass(frozen=True, slots=True)
        class DropBranches(Pass):
            name = "drop_branches"
            summary = ""

            def run(self, rewriter: Rewriter) -> None:
                graph = rewriter.graph
                seen.append(graph.name)
                for node in graph:
                    if node.op == "If" and node.inputs[1] is not None:
                        rewriter.bypass(node, node.inputs[1], reason=Reason.DEAD, rule="r")

        graph = with_branches()
        run_passes(graph, [DropBranches()], check=CheckLevel.INVARIANTS)
        assert seen == ["main"]


@dataclass(frozen=True, slots=True)
class Careless(Pass):
    """Goes around the rewriter."""

    name = "careless"
    summary = ""

    def run(self, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        graph.set_input(graph.outputs[0], 0, Ref(1))
        graph.remove(graph[2])


@dataclass(frozen=True, slots=True)
class Corrupting(Pass):
    name = "corrupting"
    summary = ""

    def run(self, rewriter: Rewriter) -> None:
        rewriter.graph[2].inputs = (rewriter.graph.inputs[0].ref(),)


@dataclass(frozen=True, slots=True)
class Miscompiling(RulePass):
    name = "miscompiling"
    summary = ""
    anchors = frozenset({"Relu"})

    def visit(self, node: Node, rewriter: Rewriter) -> None:
        edit = rewriter.edit(node, rule="relu(x) = |x|")
        edit.replace(node, edit.node("Abs", node.inputs))
        edit.apply()


@dataclass(frozen=True, slots=True)
class Littering(Pass):
    name = "littering"
    summary = ""
    ensures = Check.DEADNODES | Check.NONCONST

    def run(self, rewriter: Rewriter) -> None:
        rewriter.graph.append(
            Node(rewriter.graph.new_id(), "Const", (), rewriter.graph[1].outputs, value=X)
        )


class TestBlame:
    @pytest.mark.parametrize("level", list(CheckLevel))
    def test_a_lost_operator_is_noticed_at_every_level(self, level: CheckLevel) -> None:
        with pytest.raises(
            ProvenanceError, match=r"pass 'careless' lost 'node2' \(Neg, number 2\)"
        ):
            run_passes(chain("Relu", "Neg"), [DropIdentities(), Careless()], check=level)

    @pytest.mark.parametrize("level", list(CheckLevel))
    def test_what_was_lost_before_is_no_fault_of_a_pass(self, level: CheckLevel) -> None:
        graph = chain("Relu", "Neg")
        Careless().run(Rewriter(graph, ""))
        with pytest.raises(
            ProvenanceError, match=r"neither .* for 'node2' \(Neg, number 2\), and no pass has run"
        ):
            run_passes(graph, [DropIdentities()], check=level)

    def test_what_was_broken_before_is_no_fault_of_a_pass(self) -> None:
        graph = chain("Relu", "Neg")
        Corrupting().run(Rewriter(graph, ""))
        with pytest.raises(GraphError) as found:
            run_passes(graph, [DropIdentities()], check=CheckLevel.INVARIANTS)
        assert "pass" not in str(found.value)

    def test_broken_invariants(self) -> None:
        run_passes(chain("Relu", "Neg"), [Corrupting()], check=CheckLevel.OFF)
        with pytest.raises(GraphError, match="after pass 'corrupting'"):
            run_passes(chain("Relu", "Neg"), [Corrupting()], check=CheckLevel.INVARIANTS)

    def test_changed_outputs(self) -> None:
        run_passes(chain("Relu"), [Miscompiling()], check=CheckLevel.INVARIANTS)
        with pytest.raises(GraphError, match="pass 'miscompiling' changed output 'y' by"):
            run_passes(chain("Relu"), [Miscompiling()], check=CheckLevel.OUTPUTS)

    def test_promises_are_checked(self) -> None:
        with pytest.raises(GraphError, match=r"after pass 'littering': .* is dead"):
            run_passes(chain("Relu"), [Littering()], check=CheckLevel.INVARIANTS)

    def test_a_failed_rewrite_names_pass_and_rule(self) -> None:
        graph = chain("Relu")
        with pytest.raises(RewriteError, match="pass 'p', rule 'r'"):
            Rewriter(graph, "p").bypass(graph[1], Ref(99), reason=Reason.DEAD, rule="r")


class TestLevelFromEnvironment:
    @pytest.mark.parametrize(
        ("text", "level"),
        [("0", CheckLevel.OFF), ("1", CheckLevel.INVARIANTS), ("2", CheckLevel.OUTPUTS)],
    )
    def test_levels(self, text: str, level: CheckLevel, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WHENCE_CHECK", text)
        assert CheckLevel.from_environment() is level

    def test_default_and_nonsense(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("WHENCE_CHECK", raising=False)
        assert CheckLevel.from_environment() is CheckLevel.OFF
        monkeypatch.setenv("WHENCE_CHECK", "yes")
        with pytest.raises(WhenceError, match="WHENCE_CHECK is 'yes'; it takes 0"):
            run_passes(chain("Relu"), [])

    def test_it_is_used(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WHENCE_CHECK", "1")
        with pytest.raises(GraphError):
            run_passes(chain("Relu", "Neg"), [Corrupting()])


class TestRulePass:
    @pytest.mark.parametrize("left_out", ["name", "summary", "anchors"])
    def test_what_a_pass_does_not_say_is_asked_for(self, left_out: str) -> None:
        said = {"name": "quiet", "summary": "", "anchors": frozenset({"Relu"})}
        said = {key: value for key, value in said.items() if key != left_out}
        quiet = type("Quiet", (RulePass,), {**said, "visit": lambda self, node, rewriter: None})
        with pytest.raises(TypeError, match=f"pass Quiet has no '{left_out}': write"):
            quiet()

    def test_rules_run_until_none_applies(self) -> None:
        graph = chain(*["Neg"] * 10, "Identity", *["Neg"] * 10)
        run_passes(graph, [DropIdentities(), CancelNegations()], check=CheckLevel.OUTPUTS)
        assert ops_of(graph) == []
        assert graph.ledger.lost() == []

    def test_a_node_under_an_inherited_id_is_visited(self) -> None:
        visited: list[str] = []

        @dataclass(frozen=True, slots=True)
        class ReplaceTheNext(RulePass):
            name = "replace_the_next"
            summary = ""
            anchors = frozenset({"Relu", "Abs"})

            def visit(self, node: Node, rewriter: Rewriter) -> None:
                visited.append(f"{node.op}%{node.id}")
                following = rewriter.graph.get(2)
                if node.id != 1 or following is None or following.op != "Relu":
                    return
                edit = rewriter.edit(following, rule="replace the one that waits")
                edit.node("Abs", following.inputs, inherit=following)
                edit.apply()

        run_passes(chain("Relu", "Relu"), [ReplaceTheNext()], check=CheckLevel.INVARIANTS)
        assert "Abs%2" in visited
        assert "Relu%2" not in visited

    def test_rules_that_undo_each_other_are_stopped(self) -> None:
        @dataclass(frozen=True, slots=True)
        class Restless(RulePass):
            name = "restless"
            summary = ""
            anchors = frozenset({"Relu", "Abs"})

            def visit(self, node: Node, rewriter: Rewriter) -> None:
                edit = rewriter.edit(node, rule="r")
                edit.node("Abs" if node.op == "Relu" else "Relu", node.inputs, inherit=node)
                edit.apply()

        with pytest.raises(
            GraphError,
            match=r"pass 'restless' does not come to an end at .* two of its rules undo each other",
        ):
            run_passes(chain("Relu"), [Restless()])

    def test_redirected_readers_are_visited_again_however_many_read_the_same_value(self) -> None:
        # The second Neg of the pair comes to read the first only after the identity between them is
        # gone.
        @dataclass(frozen=True, slots=True)
        class Both(RulePass):
            name = "both"
            summary = ""
            anchors = frozenset({"Neg", "Identity"})

            def visit(self, node: Node, rewriter: Rewriter) -> None:
                (DropIdentities() if node.op == "Identity" else CancelNegations()).visit(
                    node, rewriter
                )

        build = GraphBuilder()
        negated = build.op("Neg", build.input("x", DType.F32, [4]))
        for index in range(100):
            build.output(f"n{index}", build.op("Relu", negated))
        late = build.op("Neg", build.op("Identity", negated))
        build.output("y", late)
        graph = build.finish()
        run_passes(graph, [Both()], check=CheckLevel.OUTPUTS)
        assert graph.op_counts["Neg"] == 1
        assert graph.outputs[-1].inputs == (graph.inputs[0].ref(),)

    def test_many_anchors_are_named_briefly(self) -> None:
        @dataclass(frozen=True, slots=True)
        class Wide(DropIdentities):
            anchors = frozenset({"A", "B", "C", "D"})

        assert Wide().why_skip(chain("Relu")) == "no A, B, C, ..."


def test_a_graph_without_nodes() -> None:
    assert [
        report.skipped
        for report in run_passes(
            Graph(), [DropIdentities(), CancelNegations()], check=CheckLevel.OUTPUTS
        )
    ] == [
        "no Identity",
        "no Neg",
    ]


def test_fresh_nodes_by_hand_need_no_origin() -> None:
    graph = chain("Relu")
    graph.append(fresh(graph, "Neg", graph[1]))
    run_passes(graph, [DropIdentities()], check=CheckLevel.INVARIANTS)
