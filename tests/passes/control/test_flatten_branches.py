"""An If that is decided at run time becomes the operators of both branches and a choice, and each
keeps its own origin.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.passes.control.nested import read_text
from tests.passes.rewriting import operators
from whence.errors import ModelError
from whence.passes.control.flatten_branches import FlattenBranches
from whence.passes.control.inline_branches import InlineBranches
from whence.passes.manager import CheckLevel, run_passes
from whence.passes.shapes.fold_shapes import FoldShapes

HEAD = '<ir_version: 10, opset_import: ["" : 21]>\n'


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
