"""The dimensions of one compilation, and the guards on their sizes."""

from __future__ import annotations

import ast
import operator
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, cast

from whence.extent.expression import (
    Extent,
    chosen,
    evaluate,
    is_symbolic,
    polynomial,
)
from whence.extent.facts import LEAST, MOST, KnownRelations, Relation
from whence.extent.polynomial import key_of, names_in, without_remainders


@dataclass(frozen=True, slots=True)
class SizeGuard:
    """`left` stands in this relation to `right`, whatever sizes the program is used for."""

    left: int
    relation: Relation
    right: int
    asked_by: str = field(default="", compare=False)
    """The file and the line that asked, for whoever wants the program to serve more."""

    def holds(self, sizes: Mapping[str, int]) -> bool:
        return self.relation.holds(evaluate(self.left, sizes), evaluate(self.right, sizes))

    def __str__(self) -> str:
        return f"{self.left!s} {self.relation} {self.right!s}"


class Dimensions:
    """The named dimensions of one compilation: their sizes in the call that it is made for, and
    what was asked about them.
    """

    def __init__(self, sizes: Mapping[str, int], most: Mapping[str, int] | None = None) -> None:
        self.sizes = dict(sizes)
        self.facts = KnownRelations(most or {})
        self.labels = {name: name for name in sizes}
        """What the model calls each dimension, for messages."""
        self._guards: dict[tuple[object, Relation, object], SizeGuard] = {}
        for name, size in sizes.items():
            assert re.fullmatch(r"[A-Za-z_]\w*", name), name
            assert size >= LEAST, (name, size)

    def __getitem__(self, name: str) -> int:
        """The dimension of this name, as a size."""
        assert name in self.sizes, name
        return cast(int, Extent({(name,): 1}, self))

    @property
    def most(self) -> dict[str, int]:
        """The largest size of a dimension, where there is one."""
        return self.facts.most

    @property
    def guards(self) -> list[SizeGuard]:
        return list(self._guards.values())

    def hold(self, sizes: Mapping[str, int]) -> bool:
        """Is what was compiled right for these sizes?"""
        return all(
            LEAST <= sizes[name] <= self.most.get(name, MOST) for name in self.sizes
        ) and all(guard.holds(sizes) for guard in self._guards.values())

    @property
    def pinned(self) -> set[str]:
        """The dimensions that somebody needed the number of, so that what is compiled serves one
        size only. A remainder that has to be one number leaves many.
        """
        return {
            name
            for guard in self._guards.values()
            if guard.relation is Relation.EQ
            for one, other in ((guard.left, guard.right), (guard.right, guard.left))
            if not is_symbolic(other)
            for name in names_in(without_remainders(polynomial(one)))
        }

    def add_guard(self, left: int, relation: Relation, right: int, asked_by: str = "") -> None:
        key = (key_of(polynomial(left)), relation, key_of(polynomial(right)))
        if key not in self._guards:
            self._guards[key] = SizeGuard(left, relation, right, asked_by or _asking_line())
            self.facts.add(polynomial(left - right), relation)

    def parse(self, text: str) -> int:
        """The extent whose text this is."""
        return evaluated(ast.parse(text, mode="eval").body, self.__getitem__)


OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
}
"""What sizes are combined by. Sizes are divided rounding down, however a division is written."""


def evaluated(tree: ast.expr, size_of: Callable[[str], int]) -> int:
    """The value of arithmetic on names and numbers. Raises `ValueError` for what is none."""
    match tree:
        case ast.Name(id=name):
            return size_of(name)
        case ast.Constant(value=int(number)):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -evaluated(operand, size_of)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in OPERATORS:
            return OPERATORS[type(sign)](evaluated(left, size_of), evaluated(right, size_of))
        case ast.Call(func=ast.Name(id=("max" | "min") as function), args=[left, right]):
            return chosen(function, evaluated(left, size_of), evaluated(right, size_of))
    raise ValueError(f"no expression over dimensions: {ast.unparse(tree)}")


_THIS_FOLDER = str(PurePath(__file__).parent)


def _asking_line() -> str:
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_THIS_FOLDER) and frame.f_back is not None:
        frame = frame.f_back
    return f"{frame.f_code.co_filename.rpartition('whence/')[2]}:{frame.f_lineno}"
