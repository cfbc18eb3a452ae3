"""The values that kernel programs compute: expressions over scalars and vectors.

An expression is a graph, of frozen parts with structural equality. Scalars have one lane; a vector
has several, and a function of vectors is one of each lane by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from whence.kernels.index import Atom, Index, LoadedIndex, Quotient, Remainder, Var, of
from whence.kernels.ir.counts import Count
from whence.kernels.ir.functions import Fn
from whence.types import DType


class _Expression:
    """What all expressions have: a type, a number of lanes, and arithmetic."""

    __slots__ = ()

    @property
    def lanes(self) -> int:
        return 1

    @property
    def size(self) -> int:
        """The number of parts, written out as a tree, up to a billion; of an index that data
        decides, too.
        """
        index = getattr(self, "index", None)
        return 1 if index is None else 1 + sum(part.size for part in loaded_values(index))

    def variables(self) -> set[Var]:
        """The loop variables it depends on."""
        found: set[Var] = set()
        for part in walk(self):  # type: ignore[arg-type]
            if isinstance(part, Load | Position | LookupTable):
                found |= part.index.variables()
        return found

    def __add__(self, other: Expr) -> Op:
        return lanewise(Fn.ADD, self, other)  # type: ignore[arg-type]

    def __sub__(self, other: Expr) -> Op:
        return lanewise(Fn.SUB, self, other)  # type: ignore[arg-type]

    def __mul__(self, other: Expr) -> Op:
        return lanewise(Fn.MUL, self, other)  # type: ignore[arg-type]

    def __truediv__(self, other: Expr) -> Op:
        return lanewise(Fn.DIV, self, other)  # type: ignore[arg-type]

    def __neg__(self) -> Op:
        return lanewise(Fn.NEG, self)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Literal(_Expression):
    value: Any
    dtype: DType


@dataclass(frozen=True, slots=True)
class Load(_Expression):
    """Element `index` of a buffer; with lanes, so many from there on."""

    buffer: str
    index: Index
    dtype: DType
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Position(_Expression):
    """An index as a value."""

    index: Index
    dtype: DType = DType.I64


@dataclass(frozen=True, slots=True)
class Name(_Expression):
    """A value bound by `Let`, a variable or an accumulator."""

    name: str
    dtype: DType
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class LookupTable(_Expression):
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
    lanes: int = 1
    _size: int = field(init=False, repr=False)
    _hash: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        size = 1 + sum(arg.size for arg in self.args)
        object.__setattr__(self, "_size", min(size, _HUGE))
        object.__setattr__(self, "_hash", hash((self.fn, self.args, self.dtype, self.lanes)))

    @property
    def size(self) -> int:
        return self._size

    def __reduce__(self) -> tuple[type[Op], tuple[object, ...]]:
        # Hashes of text are other ones in another process.
        return Op, (self.fn, self.args, self.dtype, self.lanes)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Op):
            return NotImplemented
        return _same(self, other)


@dataclass(frozen=True, slots=True)
class Splat(_Expression):
    """A scalar in every lane."""

    value: Expr
    lanes: int

    @property
    def dtype(self) -> DType:
        return self.value.dtype


@dataclass(frozen=True, slots=True)
class Lanes(_Expression):
    """A vector of numbers that are part of the code."""

    values: tuple[int | float, ...]
    dtype: DType

    @property
    def lanes(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True)
class At(_Expression):
    """What lies at an offset from a pointer, in elements; with lanes, so many from there on. The
    address needs no more alignment than an element has.
    """

    pointer: str
    offset: Count
    dtype: DType
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Item(_Expression):
    """An element of an array; of a register tile, a vector."""

    array: str
    at: tuple[Count, ...]
    dtype: DType
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class CountValue(_Expression):
    """A count as a value."""

    count: Count
    dtype: DType = DType.I64


@dataclass(frozen=True, slots=True)
class Bits(_Expression):
    """The bits of a value as those of another type, of as many lanes as they fill: four bytes are
    an int32.
    """

    value: Expr
    dtype: DType

    @property
    def lanes(self) -> int:
        return self.value.lanes * self.value.dtype.bits // self.dtype.bits


@dataclass(frozen=True, slots=True)
class Primitive(_Expression):
    """What a function of the prelude makes of its arguments. Its name ends in the type, such as
    `_f32x8`, where there is one for each type.
    """

    name: str
    args: tuple[Expr, ...]
    dtype: DType
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class LookUp(_Expression):
    """The bytes of a table (`LetTable`) at the places that unsigned bytes say."""

    table: str
    code: Expr
    dtype: DType

    @property
    def lanes(self) -> int:
        return self.code.lanes


Expr: TypeAlias = (
    Literal
    | Load
    | Position
    | Name
    | LookupTable
    | Op
    | Splat
    | Lanes
    | At
    | Item
    | CountValue
    | Bits
    | Primitive
    | LookUp
)
Place: TypeAlias = Name | At | Item
"""What can be assigned to."""


def lanewise(fn: Fn, *args: Expr) -> Op:
    """A function of each lane; scalars beside vectors are spread over all lanes. A mask, which a
    comparison gives, has the type of what it is combined with.
    """
    lanes = max(arg.lanes for arg in args)
    compares = fn in (Fn.LT, Fn.LE, Fn.EQ)
    wide = tuple(arg if arg.lanes == lanes else Splat(arg, lanes) for arg in args)
    types = [arg.dtype for arg in args if arg.dtype is not DType.BOOL]
    return Op(fn, wide, DType.BOOL if compares or not types else types[-1], lanes)


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
                if (one._hash, one.fn, one.dtype, one.lanes) != (
                    other._hash,
                    other.fn,
                    other.dtype,
                    other.lanes,
                ):
                    return False
                stack.append((one.args, other.args))
            case (Load(buffer, index), Load(other_buffer, other_index)) if (
                buffer == other_buffer and one.dtype is other.dtype and one.lanes == other.lanes
            ):
                stack.append((index.terms, other_index.terms))
                if index.const != other_index.const:
                    return False
            case LoadedIndex(value, extent), LoadedIndex(other_value, other_extent):
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
        stack.extend(operands(part))


def index_atoms(*exprs: Expr) -> Iterator[Atom]:
    """What the indices of all loads in them are sums of."""
    for part in walk(*exprs):
        if isinstance(part, Load):
            yield from (atom for atom, _ in part.index.terms)


def operands(part: Expr) -> tuple[Expr, ...]:
    """The expressions that one is made of, looked-up indices included."""
    match part:
        case Op() | Primitive():
            return part.args
        case Splat() | Bits():
            return (part.value,)
        case LookUp():
            return (part.code,)
        case Load() | Position() | LookupTable():
            return tuple(loaded_values(part.index))
    return ()


def remade(
    expr: Expr, make: Callable[[Expr, Mapping[Expr, Expr]], Expr], known: Mapping[Expr, Expr]
) -> Expr:
    """The expression made anew from its operands on: `make` is called once for each part, with what
    its operands became, but for those whose outcome is `known`.
    """
    done = dict(known)
    stack = [expr]
    while stack:
        part = stack[-1]
        missing = [] if part in done else [each for each in operands(part) if each not in done]
        stack.extend(missing)
        if not missing:
            stack.pop()
            if part not in done:
                done[part] = make(part, done)
    return done[expr]


def replaced(expr: Expr, known: Mapping[Expr, Expr]) -> Expr:
    """The expression with some of its parts, those of looked-up indices included, as others."""
    return remade(expr, _with_operands, known)


def _with_operands(part: Expr, done: Mapping[Expr, Expr]) -> Expr:
    match part:
        case Op(fn, args, dtype, lanes):
            return Op(fn, tuple(done[arg] for arg in args), dtype, lanes)
        case Load(buffer, index, dtype, lanes):
            return Load(buffer, _with_loaded(index, done), dtype, lanes)
        case Position(index, dtype):
            return Position(_with_loaded(index, done), dtype)
    return part


def _with_loaded(index: Index, done: Mapping[Expr, Expr]) -> Index:
    total = of(index.const)
    for atom, coefficient in index.terms:
        if isinstance(atom, LoadedIndex):
            atom = LoadedIndex(done[atom.value], atom.extent)
        total = total + of(atom) * coefficient
    return total


def loaded_values(index: Index) -> Iterator[Expr]:
    """The expressions whose values are part of the index."""
    for atom, _ in index.terms:
        if isinstance(atom, LoadedIndex):
            yield atom.value
        elif isinstance(atom, Quotient | Remainder):
            yield from loaded_values(atom.of)
