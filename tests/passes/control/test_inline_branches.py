"""Branches and loops whose course is certain become plain operators, and each keeps its own
origin.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.passes.control.nested import read_text
from tests.passes.rewriting import buried, is_left_alone, operators, rewrite
from whence.graph import Graph
from whence.passes.base import Pass
from whence.passes.control.inline_branches import InlineBranches
from whence.passes.fold.fold_constants import FoldConstants
from whence.passes.simplify.remove_dead_nodes import RemoveDeadNodes
from whence.provenance import EdgeKind, Reason

HEAD = '<ir_version: 10, opset_import: ["" : 21]>\n'

BRANCH = (
    HEAD
    + """
main (float[4] x, float[4] z) => (float[4] y)
<bool c = {%d}>
{
    a = Exp(x)
    b = If (c) <
        then_branch = yes () => (float[4] p) { k = Constant <value = float[1] {2.0}> () q = Mul(a, k) p = Relu(q) },
        else_branch = no () => (float[4] r) { s = Neg(z) r = Abs(s) }
    >
    y = Sqrt(b)
}
"""
)


def ids(graph: Graph) -> dict[str, int]:
    return {source.outputs[0]: source.id for source in graph.ledger.sources}


@pytest.mark.parametrize(
    ("condition", "left"), [(1, ["Exp", "Mul", "Relu", "Sqrt"]), (0, ["Neg", "Abs", "Sqrt"])]
)
def test_an_if_with_a_constant_condition_is_the_branch_it_takes(
    tmp_path: Path, condition: int, left: list[str]
) -> None:
    graph = read_text(BRANCH % condition, tmp_path)
    number = ids(graph)
    which = "true is its then" if condition else "false is its else"
    assert rewrite(graph, InlineBranches()) == {f"an If that is always {which} branch": 1}
    assert operators(graph) == left

    taken, other = (["k", "q", "p"], ["s", "r"]) if condition else (["s", "r"], ["k", "q", "p"])
    for name in taken:
        (node,) = (node for node in graph if number[name] in node.origin)
        assert node.origin == {number[name]}
        assert [
            (edge.parent, edge.kind) for edge in graph.ledger.edges if edge.child == node.id
        ] == [(number[name], EdgeKind.COPY)]
    reasons = {stone.node: stone for stone in graph.ledger.tombstones}
    assert reasons[number["b"]].reason is Reason.INLINED
    assert all(reasons[number[name]].reason is Reason.DEAD for name in other)
    assert all("never runs" in reasons[number[name]].rule for name in other)


def test_an_unknown_condition_is_left_alone(tmp_path: Path) -> None:
    text = (
        HEAD
        + """
    main (bool c, float[4] x) => (float[4] y) {
        y = If (c) <then_branch = yes () => (float[4] p) { p = Relu(x) }, else_branch = no () => (float[4] q) { q = Neg(x) }>
    }
    """
    )
    assert is_left_alone(read_text(text, tmp_path), InlineBranches())


NESTED = (
    HEAD
    + """
main (bool u, float[4] x) => (float[4] y)
<bool t = {1}, bool f = {0}>
{
    y = If (t) <
        then_branch = a () => (float[4] p) {
            o = If (f) <
                then_branch = b () => (float[4] q) { q = Exp(x) },
                else_branch = c () => (float[4] r) { r = Relu(x) }
            >
            p = If (u) <
                then_branch = d () => (float[4] v) { v = Neg(o) },
                else_branch = e () => (float[4] w) { w = Abs(o) }
            >
        },
        else_branch = g () => (float[4] s) {
            s = If (u) <
                then_branch = h () => (float[4] m) { m = Sin(x) },
                else_branch = i () => (float[4] n) { n = Cos(x) }
            >
        }
    >
}
"""
)


def test_branches_within_branches(tmp_path: Path) -> None:
    graph = read_text(NESTED, tmp_path)
    number = ids(graph)
    assert sum(rewrite(graph, InlineBranches()).values()) == 2
    assert operators(graph) == ["Relu", "If"]
    (inner,) = (node for node in graph if node.op == "If")
    assert [operators(body) for body in inner.bodies.values()] == [["Neg"], ["Abs"]]
    dead = {stone.node for stone in graph.ledger.tombstones if stone.reason is Reason.DEAD}
    assert dead == {number[name] for name in ("q", "s", "m", "n")}


def test_a_branch_may_hand_through_what_it_captured(tmp_path: Path) -> None:
    text = (
        HEAD
        + """
    main (float[4] x) => (float[4] y) <bool t = {1}> {
        a = Exp(x)
        b = If (t) <then_branch = yes () => (float[4] p) { p = Identity(a) }, else_branch = no () => (float[4] q) { q = Neg(a) }>
        y = Sqrt(b)
    }
    """
    )
    graph = read_text(text, tmp_path)
    rewrite(graph, InlineBranches())
    assert operators(graph) == ["Exp", "Identity", "Sqrt"]


def test_a_condition_that_was_folded_leaves_as_folded(tmp_path: Path) -> None:
    text = (
        HEAD
        + """
    main (float[4] x) => (float[4] y) <bool f = {0}> {
        c = Not(f)
        y = If (c) <then_branch = yes () => (float[4] p) { p = Relu(x) }, else_branch = no () => (float[4] q) { q = Neg(x) }>
    }
    """
    )
    graph = read_text(text, tmp_path)
    number = ids(graph)
    rewrite(graph, FoldConstants(), InlineBranches())
    assert operators(graph) == ["Relu"]
    (stone,) = (stone for stone in graph.ledger.tombstones if number["c"] in stone.origin)
    assert stone.reason is Reason.FOLDED


LOOP = (
    HEAD
    + """
main (float[4] x, float[4] z, int64 n) => (float[4] y, float[k, 4] rows)
<int64 one = {%d}>
{
    a = Exp(x)
    b, rows = Loop (%s, , a) <
        body = turn (int64 i, bool go, float[4] v) => (bool on, float[4] w, float[4] row) {
            on = Identity(go)
            w = Add(v, z)
            row = Neg(w)
        }
    >
    y = Sqrt(b)
}
"""
)


def test_a_loop_of_one_turn_is_its_body(tmp_path: Path) -> None:
    graph = read_text(LOOP % (1, "one"), tmp_path)
    number = ids(graph)
    assert (
        rewrite(graph, InlineBranches(), RemoveDeadNodes())["a Loop of one iteration is its body"]
        == 1
    )
    assert operators(graph) == ["Exp", "Add", "Neg", "Unsqueeze", "Sqrt"]
    (unsqueeze,) = (node for node in graph if node.op == "Unsqueeze")
    assert unsqueeze.origin == {number["b"]}


@pytest.mark.parametrize("text", [LOOP % (2, "one"), LOOP % (1, "n")])
def test_other_loops_are_left_alone(tmp_path: Path, text: str) -> None:
    assert is_left_alone(read_text(text, tmp_path), InlineBranches())


NO_TURNS = (
    HEAD
    + """
main (float[4] x, int64 n) => (float[4] y)
<int64 zero = {0}, bool never = {0}>
{
    a = Exp(x)
    b = Loop (TURNS, CONDITION, a) <body = turn (int64 i, bool go, float[4] v) => (bool on, float[4] w) { on = Identity(go) w = Neg(v) }>
    y = Sqrt(b)
}
"""
)


@pytest.mark.parametrize(("turns", "condition"), [("zero", ""), ("n", "never")])
def test_a_loop_of_no_turns_yields_what_it_was_given(
    tmp_path: Path, turns: str, condition: str
) -> None:
    text = NO_TURNS.replace("TURNS", turns).replace("CONDITION", condition)
    graph = read_text(text, tmp_path)
    assert rewrite(graph, InlineBranches()) == {
        "a Loop of no iterations yields what it was given": 1
    }
    assert operators(graph) == ["Exp", "Sqrt"]
    names = buried(graph)
    assert set(names.values()) == {Reason.INLINED, Reason.DEAD}


def test_the_pass_is_skipped_without_control_operators(tmp_path: Path) -> None:
    text = HEAD + "main (float[4] x) => (float[4] y) { y = Relu(x) }"
    one: Pass = InlineBranches()
    assert one.why_skip(read_text(text, tmp_path)) == "no If, no Loop"
