"""Operators that passes look for and make are there: a misspelt one would never match, and nobody
would say so.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import whence.passes
from whence.ops.registry import REGISTRY

_FILES = sorted(Path(whence.passes.__path__[0]).rglob("*.py"))
_OPERATOR_AT = {"producer_of": 2, "unique_consumer": 2, "one_of": None, "is_a": None, "node": 0}
"""Functions and methods that take names of operators: which argument, or all."""


def _names(tree: ast.AST) -> Iterator[ast.Constant]:
    for each in ast.walk(tree):
        if isinstance(each, ast.Call):
            called = each.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in _OPERATOR_AT:
                place = _OPERATOR_AT[name]
                yield from _texts(each.args if place is None else each.args[place : place + 1])
        elif isinstance(each, ast.Compare) and _is_op_of_node(each.left):
            yield from _texts(each.comparators)


def _is_op_of_node(expr: ast.expr) -> bool:
    """`node.op`, but not `ledger.source(number).op`, which is as the file has it."""
    return (
        isinstance(expr, ast.Attribute) and expr.attr == "op" and isinstance(expr.value, ast.Name)
    )


def _texts(found: list[ast.expr]) -> Iterator[ast.Constant]:
    for each in found:
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each
        elif isinstance(each, ast.Set | ast.Tuple | ast.List):
            yield from _texts(each.elts)
        elif isinstance(each, ast.Call):
            yield from _texts(each.args)


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_operators_of_passes_are_known(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    wrong = [
        f"{each.lineno}: {each.value!r}" for each in _names(tree) if each.value not in REGISTRY
    ]
    assert not wrong


def test_many_are_found() -> None:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in _FILES]
    assert sum(1 for tree in trees for _ in _names(tree)) > 200
    misspelt = ast.parse("if producer_of(graph, ref, 'Sqrtt') or node.op in {'Mull'}: pass")
    assert [each.value for each in _names(misspelt)] == ["Sqrtt", "Mull"]
