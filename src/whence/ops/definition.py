"""What an operator *is*: one frozen `OpDef` per operator, and the small records its functions
receive.

Operators are named by their ONNX name (`Conv`), or `domain::Name` for other domains
(`ai.onnx.ml::LabelEncoder`). Operators of whence's own have plain names that ONNX does not use
(`FusedConv`).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, TypedDict

import numpy as np

from whence.errors import WhenceError
from whence.ops.formula import Formula
from whence.ops.operand import NO_OPERANDS, Operands
from whence.ops.traits import Trait
from whence.types import TensorType, ValueType

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
    """How output elements depend on input elements; fusion decides by it. Numbers as in NNVM."""

    ELEMWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    COMM_REDUCE = 3
    OUT_ELEMWISE_FUSABLE = 4
    OPAQUE = 8


class OpClass(enum.Flag):
    """Classes of operators. A pass is skipped when the graph has none of the classes it names."""

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


# A value, like all that are frozen, and made for each node that is looked at: frozen fields would
# take twice as long to set.
@dataclass(slots=True)
class TypeQuery:
    """What inference may know about one application of an operator."""

    op: str
    attrs: Attrs
    types: tuple[ValueType | None, ...]
    """The input types; `None` where an optional input is absent."""
    values: tuple[Value | None, ...]
    """The input values where they are constants, else `None`. Same length as `types`."""
    n_outputs: int

    def value(self, index: int) -> Value | None:
        """The value of input `index`; `None` when it is not known, or the list is shorter."""
        return self.values[index] if index < len(self.values) else None


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
    """The work of one application: operations, and bytes read plus written without a cache."""

    flops: int
    bytes: int

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.flops + other.flops, self.bytes + other.bytes)


def naming(op: str, error: WhenceError) -> WhenceError:
    """The same error, with the operator's name in front. What applies a rule or a reference says
    whose it is; these need not.
    """
    if str(error).startswith((f"{op}:", f"{op} ")):
        return error
    return type(error)(f"{op}: {error}")


def labelled(operator: str, text: str) -> str:
    """What is wrong with an operator of the file, behind its label there: `operator 'y' (Gather):
    index 7 is outside an axis of 6`. The type that `naming` put in front is told once.
    """
    kind = operator.rpartition(" (")[2].removesuffix(")")
    return f"{operator}: {text.removeprefix(f'{kind}: ')}"


Infer: TypeAlias = Callable[[TypeQuery], ValueType | tuple[ValueType, ...]]
"""The type of the only output, or a tuple of those of several: of those, what a call does not ask
for is left out.
"""
Reference: TypeAlias = Callable[[Call], Value]
"""The value of the only output, or a tuple of those of several; as `Infer`."""
Check: TypeAlias = Callable[[TypeQuery], None]
"""Raises `ModelError` when operands or attributes certainly do not fit each other."""
Flops: TypeAlias = Callable[[TypeQuery, Sequence[ValueType]], int | None]
"""Operations from input and output types, which are tensors of known sizes; `None` when more needs
to be known.
"""


def sizes(kind: ValueType | None) -> tuple[int, ...]:
    """The shape of an operand or result whose operations are counted."""
    assert isinstance(kind, TensorType)
    assert kind.static_shape is not None
    return kind.static_shape


def count(kind: ValueType | None) -> int:
    """The elements of an operand or result whose operations are counted."""
    return math.prod(sizes(kind))


class AttributeKind(enum.Enum):
    """What the value of an attribute is, with ONNX's names."""

    INT = "an integer"
    FLOAT = "a number"
    STRING = "a text"
    INTS = "a list of integers"
    FLOATS = "a list of numbers"
    STRINGS = "a list of texts"
    TENSOR = "a tensor"


class Neutral(NamedTuple):
    """The right operand (of a commutative operator, either) that changes nothing."""

    value: float
    law: str


class IndexedAxes(enum.Enum):
    """Which axes of the data indices lead into."""

    ATTRIBUTE = enum.auto()
    """The one that the attribute `axis` names."""
    TUPLE = enum.auto()
    """Tuples of indices, one for each of the first axes after `batch_dims`."""
    FIRST = enum.auto()


class Indexing(NamedTuple):
    """An operator that looks something up: in which operand, where, and along which axes."""

    data: str
    indices: str
    axes: IndexedAxes


class Facts(TypedDict, total=False):
    """What a definition may add to those of its family."""

    operands: Operands
    check: Check
    traits: Trait
    commutative: bool
    neutral: Neutral
    involution: str
    indexing: Indexing
    plain: str
    symbol: str
    costs_like: str
    formula: Formula


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
    operands: Operands = NO_OPERANDS
    """Their names and kinds, in order."""
    attributes: Mapping[str, AttributeKind] | None = field(default=None, hash=False)
    """Of operators that ONNX does not have; a formula says which it reads. Others, and those of the
    wrong kind, are refused. `None` where nothing lists them.
    """
    check: Check | None = None
    """What operands and attributes must be, beyond what the types of the outputs depend on; those
    of older definitions are in `ops/operands/`.
    """
    traits: Trait = Trait.NONE
    neutral: Neutral | None = None
    """What may stand as the other operand of `op(x, ·)` without changing x."""
    involution: str = ""
    """The law f(f(x)) = x, for operators that undo themselves."""
    indexing: Indexing | None = None
    plain: str = ""
    """The ONNX operator that it computes in another layout or fused; itself if empty."""
    formula: Formula | None = None
    """What it computes for each element, for operators that are no more than that."""
    costs_like: str = ""
    """The operator whose time per element, which is measured, stands for its own. For operators
    without a formula, and those that are measured as a whole; the cost of others follows from the
    functions in their formula (`ops/cost.py`).
    """
    symbol: str = ""
    """What formulas write between its operands."""
    over_space: str = ""
    """The reduction over all spatial axes that a global pool is."""

    def is_(self, traits: Trait) -> bool:
        """Does it have one of these traits?"""
        return bool(self.traits.value & traits.value)

    @property
    def by_element(self) -> bool:
        """Is every element of its result computed from the elements of its operands at the same
        place, all of them data? So it commutes with whatever moves the elements of all of them.
        """
        return (
            self.pattern <= Pattern.BROADCAST
            and bool(self.classes & (OpClass.ELEMENTWISE | OpClass.ACTIVATION))
            and self.operands.all_data
        )
