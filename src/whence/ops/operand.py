"""The operands of an operator: their names, in order, and what each is for.

Names are ONNX's own where ONNX has the operator. `node.operand("W")` reads by name, so that no room
counts positions.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace


class OperandKind(enum.Enum):
    """What an operand is for."""

    DATA = enum.auto()
    """Numbers that are computed with, or moved."""
    PARAMETER = enum.auto()
    """Says what to do, not what to do it to: axes, shapes, pads. Part of the code when constant."""
    INDEX = enum.auto()
    """Where to read or write."""
    CONDITION = enum.auto()
    """Which of the other operands to take."""
    TYPE = enum.auto()
    """Only its element type is read."""
    CODING = enum.auto()
    """How codes are to be read: scales, zero points, tables."""


DATA, PARAMETER, INDEX = OperandKind.DATA, OperandKind.PARAMETER, OperandKind.INDEX
CONDITION, TYPE, CODING = OperandKind.CONDITION, OperandKind.TYPE, OperandKind.CODING


@dataclass(frozen=True, slots=True)
class Operands:
    """The operands of one operator, in order."""

    names: tuple[str, ...] = ()
    kinds: tuple[OperandKind, ...] = ()
    variadic: bool = False
    """The last may be given any number of times."""
    optional: int = 0
    """How many of the last may be left out. Of an operator that ONNX has, or that is a form of one,
    ONNX's schema says it.
    """
    positions: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        positions = {name: index for index, name in enumerate(self.names)}
        object.__setattr__(self, "positions", positions)

    def kind(self, index: int) -> OperandKind:
        """The kind of input `index`. What is beyond the declared ones repeats the last, or is a
        value that a nested graph captures.
        """
        if index < len(self.kinds):
            return self.kinds[index]
        return self.kinds[-1] if self.variadic else DATA

    @property
    def required(self) -> int:
        """How many of the first must be given."""
        return len(self.names) - max(self.optional, int(self.variadic))

    @property
    def all_data(self) -> bool:
        return all(kind is DATA for kind in self.kinds)


def named(*data: str, **others: OperandKind) -> Operands:
    """Operands by name: first those that are data, then others with their kinds."""
    return Operands((*data, *others), (*(DATA for _ in data), *others.values()))


def with_optional(count: int, operands: Operands) -> Operands:
    """The same, of which the last `count` may be left out."""
    return replace(operands, optional=count)


def variadic(*data: str) -> Operands:
    """Data operands, of which the last may be given any number of times."""
    return Operands(data, (DATA,) * len(data), variadic=True)


NO_OPERANDS = Operands()
UNARY = named("X")
"""One operand, which is data."""
