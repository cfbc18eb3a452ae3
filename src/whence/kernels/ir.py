"""The kernel program: loop nests over scalar expressions, and micro-kernels that carry an
expression as their epilogue.

Nothing here is of one language: a renderer turns a kernel into C; another could turn it into OpenCL
C.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from whence.kernels.index import Index, Looked, Quotient, Remainder, Var
from whence.types import DType


class Fn(enum.StrEnum):
    """The scalar functions a renderer knows."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    """Division; truncating for integers."""
    REM = "rem"
    """Remainder with the sign of the dividend."""
    MOD = "mod"
    """Remainder with the sign of the divisor."""
    POW = "pow"
    MAX = "max"
    MIN = "min"
    NEG = "neg"
    ABS = "abs"
    SIGN = "sign"
    EXP = "exp"
    EXP_DOWN = "exp_down"
    """The same of a number that is not positive; what is too small for a normal number is 0."""
    EXPM1 = "expm1"
    """exp(x) - 1 without the loss of digits near 0."""
    LOG = "log"
    SQRT = "sqrt"
    RSQRT = "rsqrt"
    SIN = "sin"
    COS = "cos"
    TAN = "tan"
    ASIN = "asin"
    ACOS = "acos"
    ATAN = "atan"
    SINH = "sinh"
    COSH = "cosh"
    TANH = "tanh"
    ASINH = "asinh"
    ACOSH = "acosh"
    ATANH = "atanh"
    ERF = "erf"
    SIGMOID = "sigmoid"
    SOFTPLUS = "softplus"
    FLOOR = "floor"
    CEIL = "ceil"
    ROUND = "round"
    """To nearest, ties to even."""
    ISNAN = "isnan"
    ISINF = "isinf"
    LT = "lt"
    LE = "le"
    EQ = "eq"
    AND = "and"
    OR = "or"
    XOR = "xor"
    NOT = "not"
    BIT_AND = "bit_and"
    BIT_OR = "bit_or"
    BIT_XOR = "bit_xor"
    BIT_NOT = "bit_not"
    SHIFT_LEFT = "shift_left"
    SHIFT_RIGHT = "shift_right"
    SELECT = "select"
    """`select(condition, then, else)`; only the chosen side is evaluated, so a guard makes a load
    safe.
    """
    CHOOSE = "choose"
    """The same where either side may be evaluated at any time, so that what both need is computed
    once.
    """
    ORDER = "order"
    """A 32-bit integer for a float32, in the order of the numbers; a maximum of those is found much
    faster. NaNs lie at the ends.
    """
    UNORDER = "unorder"
    """The float32 that `order` made an integer of."""
    HIGH_MUL = "high_mul"
    """(a · b + 2^30) / 2^31 of 32-bit integers, rounded down."""
    ROUND_SHIFT = "round_shift"
    """`round_shift(x, by)`: x / 2^by of 32-bit integers, to nearest, halves away from zero; `by` is
    at least 1, and |x| below the largest number.
    """
    SCALE_ONCE = "scale_once"
    """`scale_once(x, factor, by)`: x · factor / 2^by of 32-bit integers, to nearest, halves up."""
    CHECKED = "checked"
    """`checked(at, extent)`: an index into an axis, counted from its end where it is negative. One
    that is outside is noted as the fault of this run, and some index that is inside stands for it.
    """
    CAST = "cast"
    """Conversion as ONNX's Cast does it: float to integer truncates, anything to bool compares with
    zero.
    """


class _Expression:
    __slots__ = ()

    @property
    def size(self) -> int:
        """The number of parts, written out as a tree, up to a billion; of an index that data
        decides, too.
        """
        index = getattr(self, "index", None)
        return 1 if index is None else 1 + sum(part.size for part in looked(index))

    def variables(self) -> set[Var]:
        """The loop variables it depends on."""
        found: set[Var] = set()
        for part in walk(self):  # type: ignore[arg-type]
            if isinstance(part, Load | Position | Table):
                found |= part.index.variables()
        return found


@dataclass(frozen=True, slots=True)
class Literal(_Expression):
    value: Any
    dtype: DType


@dataclass(frozen=True, slots=True)
class Load(_Expression):
    """Element `index` of a buffer."""

    buffer: str
    index: Index
    dtype: DType


@dataclass(frozen=True, slots=True)
class Position(_Expression):
    """An index as a value."""

    index: Index
    dtype: DType = DType.I64


@dataclass(frozen=True, slots=True)
class Name(_Expression):
    """A value bound by `Let` or an accumulator."""

    name: str
    dtype: DType


@dataclass(frozen=True, slots=True)
class Table(_Expression):
    """Element `index` of a short list of numbers that is part of the code."""

    data: bytes = field(repr=False)
    """The numbers as `dtype` lays them out in memory."""
    index: Index
    dtype: DType


_HUGE = 1 << 30


@dataclass(frozen=True, slots=True, eq=False)
class Op(_Expression):
    """A function of expressions. They may share parts, so an expression is a graph: whatever goes
    through one must enter each part once, and no function may call itself for each level.
    """

    fn: Fn
    args: tuple[Expr, ...]
    dtype: DType
    _size: int = field(init=False, repr=False)
    _hash: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        size = 1 + sum(arg.size for arg in self.args)
        object.__setattr__(self, "_size", min(size, _HUGE))
        object.__setattr__(self, "_hash", hash((self.fn, self.args, self.dtype)))

    @property
    def size(self) -> int:
        return self._size

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Op):
            return NotImplemented
        return _same(self, other)


Expr: TypeAlias = Literal | Load | Position | Name | Table | Op


def _same(first: Op, second: Op) -> bool:
    """Structural equality that compares each pair of parts once."""
    seen: set[tuple[int, int]] = set()
    stack: list[tuple[object, object]] = [(first, second)]
    while stack:
        one, other = stack.pop()
        if one is other or (id(one), id(other)) in seen:
            continue
        seen.add((id(one), id(other)))
        match one, other:
            case Op(), Op():
                if (one._hash, one.fn, one.dtype) != (other._hash, other.fn, other.dtype):
                    return False
                stack.append((one.args, other.args))
            case (Load(buffer, index), Load(other_buffer, other_index)) if (
                buffer == other_buffer and one.dtype is other.dtype
            ):
                stack.append((index.terms, other_index.terms))
                if index.const != other_index.const:
                    return False
            case Looked(value, extent), Looked(other_value, other_extent):
                if extent != other_extent:
                    return False
                stack.append((value, other_value))
            case tuple(), tuple():
                if len(one) != len(other):
                    return False
                stack.extend(zip(one, other, strict=True))
            case _:
                if one != other:
                    return False
    return True


def walk(*exprs: Expr) -> Iterator[Expr]:
    """The expressions and all parts of them, each distinct part once, looked-up indices
    included.
    """
    seen: set[Expr] = set()
    stack: list[Expr] = list(exprs)
    while stack:
        part = stack.pop()
        if part in seen:
            continue
        seen.add(part)
        yield part
        if isinstance(part, Op):
            stack.extend(part.args)
        elif isinstance(part, Load | Position | Table):
            stack.extend(looked(part.index))


def looked(index: Index) -> Iterator[Expr]:
    """The expressions whose values are part of the index."""
    for atom, _ in index.terms:
        if isinstance(atom, Looked):
            yield atom.value
        elif isinstance(atom, Quotient | Remainder):
            yield from looked(atom.of)


class LoopKind(enum.Enum):
    SERIAL = "serial"
    VECTOR = "vector"
    """Iterations are independent and touch memory in order: the renderer asks the compiler to
    vectorise.
    """
    REDUCE = "reduce"
    """Iterations only feed accumulators, whose order of summation may change."""
    UNROLL = "unroll"


@dataclass(frozen=True, slots=True)
class Loop:
    """`for var in 0 .. extent-1`. The extent of a loop over a slice of the tasks is given by the
    renderer.
    """

    var: Var
    body: tuple[Stmt, ...]
    kind: LoopKind = LoopKind.SERIAL
    first: int = 0
    """For a loop over tasks: the work item that is this loop's number 0. A kernel may have several
    such loops, one after the other.
    """


@dataclass(frozen=True, slots=True)
class Let:
    """Bind a name to a value, once."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Accumulator:
    """A running value, started here. With `lanes`, an array of them, one for each value of that
    variable.
    """

    name: str
    start: Literal
    lanes: Var | None = None


@dataclass(frozen=True, slots=True)
class Accumulate:
    """`name = fn(name, value)`; for an accumulator with lanes, at the lane of its variable."""

    name: str
    fn: Fn
    value: Expr
    lane: Var | None = None


@dataclass(frozen=True, slots=True)
class Store:
    buffer: str
    index: Index
    value: Expr


@dataclass(frozen=True, slots=True)
class Micro:
    """A hand-shaped inner kernel that a renderer writes out itself. Families derive from it."""


Stmt: TypeAlias = Loop | Let | Accumulator | Accumulate | Store | Micro


class Role(enum.StrEnum):
    INPUT = "input"
    OUTPUT = "output"
    CONST = "const"


@dataclass(frozen=True, slots=True)
class Buffer:
    """A kernel's parameter: `elements` of one type, dense, row-major unless a packing says
    otherwise.
    """

    name: str
    dtype: DType
    elements: int
    role: Role


@dataclass(frozen=True, slots=True)
class Member:
    """What one operator of the graph adds to the kernel: its node, its arithmetic, its share of
    memory traffic.
    """

    node: int
    op: str
    flops: int
    bytes: int


TASK = "task"
"""The name of the variable that counts a kernel's independent work items."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One compiled function: work items `0 .. tasks-1`, any range of which may run on any
    thread.
    """

    name: str
    params: tuple[Buffer, ...]
    tasks: int
    body: tuple[Stmt, ...]
    members: tuple[Member, ...] = ()
    scratch_bytes: int = 0
    """Private memory each worker needs."""
    packings: Mapping[int, Callable[[np.ndarray], np.ndarray]] = field(
        default_factory=dict, compare=False, hash=False
    )
    """By parameter index: how a constant is rearranged at compile time."""
    flops_per_ns: int = 40
    """What one thread does in a nanosecond, roughly; it decides how much work is worth waking
    another for.
    """
    reduced_precision: bool = False
    """Are its products less exact than those of float32?"""
    together: bool = False
    """Work items depend on each other: every worker gets one stretch of them, and all run at the
    same time and meet where the kernel says so.
    """
