"""What an operator *is*: one frozen `OpDef` per operator, and the small records its functions
receive.

Operators are named by their ONNX name (`Conv`), or `domain::Name` for other domains
(`ai.onnx.ml::LabelEncoder`). Operators of whence's own have plain names that ONNX does not use
(`FusedConv`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from whence.types import ValueType

Attr: TypeAlias = (
    int
    | float
    | str
    | bytes
    | tuple[int, ...]
    | tuple[float, ...]
    | tuple[str, ...]
    | tuple[bytes, ...]
    | np.ndarray
)
Attrs: TypeAlias = Mapping[str, Attr]
Value: TypeAlias = Any
"""A run-time value: an `ndarray`, a list (sequence), a dict (map), or `None` (absent optional)."""


class Pattern(enum.IntEnum):
    """How an operator's output elements depend on its input elements; fusion decides by it. Numbers
    as in NNVM.
    """

    ELEMWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    COMM_REDUCE = 3
    OUT_ELEMWISE_FUSABLE = 4
    OPAQUE = 8


class OpClass(enum.Flag):
    """Classes of operators. A pass names the classes it works on and is skipped when the graph
    holds none of them.
    """

    NONE = 0
    CONV = enum.auto()
    MATMUL = enum.auto()
    POOL = enum.auto()
    NORM = enum.auto()
    REDUCE = enum.auto()
    ACTIVATION = enum.auto()
    ELEMENTWISE = enum.auto()
    MOVEMENT = enum.auto()
    """Moves elements without computing: transpose, reshape, slice, concat, gather, pad, ..."""
    SHAPE = enum.auto()
    """Reads or builds shapes: Shape, Size, ConstantOfShape, Range."""
    QUANTISE = enum.auto()
    RECURRENT = enum.auto()
    CONTROL = enum.auto()
    """Holds nested graphs: If, Loop, Scan, SequenceMap."""
    RANDOM = enum.auto()
    """Two evaluations differ, so it is never folded and never merged with its twin."""
    STATE = enum.auto()
    """Reads or writes a value that outlives a run: Variable, Assign."""


@dataclass(frozen=True, slots=True)
class TypeQuery:
    """What inference may know about one application of an operator."""

    op: str
    attrs: Attrs
    types: tuple[ValueType | None, ...]
    """The input types; `None` where an optional input is absent."""
    values: tuple[Value | None, ...]
    """The input values where they are constants, else `None`. Same length as `types`."""
    n_outputs: int


@dataclass(frozen=True, slots=True)
class Call:
    """One evaluation of one operator on actual values."""

    op: str
    attrs: Attrs
    inputs: tuple[Value | None, ...]
    n_outputs: int

    def input(self, index: int) -> Value | None:
        """Input `index`, or `None` when it is absent or the list is shorter."""
        return self.inputs[index] if index < len(self.inputs) else None


@dataclass(frozen=True, slots=True)
class Cost:
    """The work of one application: arithmetic operations, and bytes read plus written when nothing
    is cached.
    """

    flops: int
    bytes: int

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.flops + other.flops, self.bytes + other.bytes)


Infer: TypeAlias = Callable[[TypeQuery], Sequence[ValueType]]
Reference: TypeAlias = Callable[[Call], Sequence[Value]]
Flops: TypeAlias = Callable[[TypeQuery, Sequence[ValueType]], int | None]
"""Arithmetic operations from the input types and the output types; `None` when dimensions are
unknown.
"""


@dataclass(frozen=True, slots=True)
class OpDef:
    """One operator. Only what differs from the defaults is given."""

    name: str
    pattern: Pattern = Pattern.OPAQUE
    classes: OpClass = OpClass.NONE
    infer: Infer | None = None
    """Output types; `None` leaves it to the `onnx` package's inference."""
    reference: Reference | None = None
    """NumPy evaluation; `None` leaves it to the `onnx` package's reference implementation."""
    flops: Flops | int = 1
    """Operations per application, or a plain number: operations per element of output 0."""
    commutative: bool = False
    """The first two inputs may be swapped."""
