"""An If that is decided at run time becomes the operators of both branches and a choice, and each
keeps its own origin.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.passes.control.nested import read_text
from tests.passes.rewriting import edges_into, is_left_alone, operators, rewrite
from whence.errors import ModelError
from whence.graph import Graph
from whence.passes.control.flatten_branches import FlattenBranches
from whence.passes.control.inline_branches import InlineBranches
from whence.passes.manager import CheckLevel, run_passes
from whence.passes.shapes.fold_shapes import FoldShapes

HEAD = '<ir_version: 10, opset_import: ["" : 21]>\n'
RULE = "an If is both its branches and a choice between what they give"


def _ids(graph: Graph) -> dict[str, int]:
    return {source.outputs[0]: source.id for source in graph.ledger.sources}


def test_both_branches_and_a_choice_for_each_output(tmp_path: Path) -> None:
    text = """main (bool c, float[4] x, float[4] z) => (float[4] y, float[4] w) {
        a = Exp(x)
        y, w = If (c) <
            then_branch = yes () => (float[4] p, float[4] q) { p = Relu(a) q = Identity(z) },
            else_branch = no () => (float[4] r, float[4] t) { r = Neg(z) t = Abs(a) }
        >
    }"""
    graph = read_text(HEAD + text, tmp_path)
    number = _ids(graph)
    assert rewrite(graph, FlattenBranches()) == {RULE: 1}
    assert operators(graph) == ["Exp", "Relu", "Identity", "Neg", "Abs", "Choose", "Choose"]
    for name in ("a", "p", "q", "r", "t"):
        assert sum(number[name] in node.origin for node in graph) == 1
    for node in graph:
        if node.op == "Choose":
            assert node.origin == {number["y"]}
            assert list(edges_into(graph, node).values()) == ["lower"]


def test_an_if_in_an_if(tmp_path: Path) -> None:
    text = """main (bool c, bool d, float[4] x) => (float[4] y) {
        y = If (c) <
            then_branch = yes () => (float[4] p) {
                p = If (d) <then_branch = a () => (float[4] q) { q = Relu(x) }, else_branch = b () => (float[4] r) { r = Neg(x) }>
            },
            else_branch = no () => (float[4] t) { t = Abs(x) }
        >
    }"""
    graph = read_text(HEAD + text, tmp_path)
    assert rewrite(graph, FlattenBranches()) == {RULE: 2}
    assert sorted(operators(graph)) == ["Abs", "Choose", "Choose", "Neg", "Relu"]


def test_a_condition_that_is_a_list_of_one(tmp_path: Path) -> None:
    text = """main (bool[1] c, float x) => (float y) {
        y = If (c) <then_branch = yes () => (float p) { p = Relu(x) }, else_branch = no () => (float q) { q = Neg(x) }>
    }"""
    graph = read_text(HEAD + text, tmp_path)
    assert rewrite(graph, FlattenBranches()) == {RULE: 1}
    assert operators(graph) == ["Reshape", "Relu", "Neg", "Choose"]


@pytest.mark.parametrize(
    "branches",
    [
        pytest.param(
            "then_branch = a () => (float[n] p) {p = Relu(x)}, else_branch = b () => (float[m] q) {"
            " q = Concat<axis=0>(x, x) }",
            id="sizes",
        ),
        pytest.param(
            "then_branch = a () => (seq(float[4]) p) { p = SequenceConstruct(x) },"
            "else_branch = b () => (seq(float[4]) q) { q = SequenceConstruct(x, x) }",
            id="sequences",
        ),
    ],
)
def test_what_has_no_one_fixed_size_is_left_alone(branches: str, tmp_path: Path) -> None:
    kind = "seq(float[4])" if "seq" in branches else "float[k]"
    graph = read_text(
        f"{HEAD}main (bool c, float[4] x) => ({kind} y) {{ y = If (c) <{branches}> }}", tmp_path
    )
    assert is_left_alone(graph, FlattenBranches())


def test_a_branch_that_must_fail_says_nothing_of_the_result(tmp_path: Path) -> None:
    text = """main (bool c, float[4] x, float[2,3] v) => (float[n] y) {
        y = If (c) <
            then_branch = yes () => (float[4] p) { p = Relu(x) },
            else_branch = no () => (float[m] q) { k = Abs(x) q = MatMul(v, k) }
        >
    }"""
    graph = read_text(HEAD + text, tmp_path)
    run_passes(graph, [FlattenBranches()], check=CheckLevel.INVARIANTS)
    assert operators(graph) == ["Relu", "Branch", "Choose"]
    x, v = np.array([-1, 2, -3, 4], np.float32), np.ones((2, 3), np.float32)
    (y,) = graph.run([np.array(True), x, v])
    np.testing.assert_array_equal(y, np.maximum(x, 0))
    with pytest.raises(ModelError, match=r"operator 'y' \(If\): operator 'q' \(MatMul\): "):
        graph.run([np.array(False), x, v])


def test_a_branch_decided_by_what_another_gives_is_inlined_too(tmp_path: Path) -> None:
    text = """main (float[4] x) => (float[n] y) <bool t = {1}, int64 four = {4}> {
        a = If (t) <then_branch = p () => (float[k] b) { b = Relu(x) }, else_branch = q () => (float[l] d) { d = Concat<axis=0>(x, x) }>
        s = Shape(a)
        e = Equal(s, four)
        y = If (e) <then_branch = r () => (float[i] f) { f = Neg(a) }, else_branch = u () => (float[j] g) { g = Concat<axis=0>(a, a) }>
    }"""
    graph = read_text(HEAD + text, tmp_path)
    run_passes(graph, [InlineBranches(folding=FoldShapes())], check=CheckLevel.OUTPUTS)
    assert operators(graph) == ["Relu", "Neg"]
