"""Operands are asked for by name, and by names that definitions have."""

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


def positions_asked_for(text: str) -> list[int]:
    """Lines of `node.inputs[2]` and `node.input(2)`: of every operand but the first."""

    def is_later(index: ast.expr) -> bool:
        return isinstance(index, ast.Constant) and isinstance(index.value, int) and index.value > 0

    return [
        node.lineno
        for node in ast.walk(ast.parse(text))
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Attribute)
            and node.value.attr == "inputs"
            and is_later(node.slice)
        )
        or (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "input"
            and bool(node.args)
            and is_later(node.args[0])
        )
    ]


def test_operands_of_nodes_are_asked_for_by_name() -> None:
    """`ops` defines which operand stands where; readers and writers speak of a file's operators,
    which have operands by position.
    """
    for path in SOURCE.rglob("*.py"):
        if path.relative_to(SOURCE).parts[0] not in ("ops", *OTHER_FILES):
            lines = positions_asked_for(path.read_text(encoding="utf-8"))
            assert not lines, f"{path.relative_to(SOURCE)}, lines {lines}: node.operand(name)"


def test_positions_are_found() -> None:
    text = "node.inputs[1]\nnode.input(2)\nnode.inputs[0]\nnode.input(0)\nnode.inputs[1:]"
    assert positions_asked_for(text) == [1, 2]
