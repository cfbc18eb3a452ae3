"""Branches and loops whose course is certain become plain operators, and each keeps its own
origin.
"""

from __future__ import annotations

from pathlib import Path

from tests.passes.control.nested import read_text
from whence.passes.base import Pass
from whence.passes.control.inline_branches import InlineBranches

HEAD = '<ir_version: 10, opset_import: ["" : 21]>\n'


def test_the_pass_is_skipped_without_control_operators(tmp_path: Path) -> None:
    text = HEAD + "main (float[4] x) => (float[4] y) { y = Relu(x) }"
    one: Pass = InlineBranches()
    assert one.why_skip(read_text(text, tmp_path)) == "no If, Loop"
