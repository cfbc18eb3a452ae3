"""Operands are asked for by names that definitions have."""

from __future__ import annotations

import ast
from pathlib import Path

from whence.ops.registry import REGISTRY

SOURCE = Path(__file__).resolve().parent.parent.parent / "src" / "whence"
OTHER_FILES = ("frontends",)
"""Readers ask for the operands of a file's operators, which have definitions of their own."""


def names_asked_for(text: str) -> set[str]:
    return {
        argument.value
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "operand"
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    }


def test_every_operand_that_is_asked_for_is_one_of_some_operator() -> None:
    """`Node.operand` is `None` for an operand that an operator does not have: a name that none has
    would be none everywhere, without a word.
    """
    known = {name for each in REGISTRY.values() for name in each.operands.positions}
    for path in SOURCE.rglob("*.py"):
        if path.relative_to(SOURCE).parts[0] not in OTHER_FILES:
            unknown = names_asked_for(path.read_text(encoding="utf-8")) - known
            assert not unknown, f"{path.relative_to(SOURCE)} asks for {sorted(unknown)}"


def test_names_are_found() -> None:
    assert names_asked_for('node.operand("B", "bias")\nx.operand(name)') == {"B", "bias"}
