"""Scalar expressions as vectors along one of their variables.

A load that moves by one with the variable is a vector load, what does not depend on it is the same
in all lanes, a byte from a table with an entry for each byte is looked up in it, and a function
becomes the function of each lane. An int32 sum, its scaling and the byte that is stored are vectors
of one length and different widths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from whence.extent import surely_equal
from whence.kernels.builder import Builder
from whence.kernels.index import Index, LoadedIndex, Quotient, Remainder, Var
from whence.kernels.ir import Bits, Expr, Fn, Literal, Load, LookUp, Name, Op, Splat, remade, walk
from whence.types import DType

_TYPES = frozenset(
    dtype for dtype in DType if dtype is DType.F32 or (dtype.is_integer and dtype.bits >= 8)
)
_ANY_TYPE = (Fn.ADD, Fn.SUB, Fn.MUL, Fn.MAX, Fn.MIN, Fn.NEG, Fn.BIT_AND, Fn.BIT_OR, Fn.BIT_XOR)
_FLOATING = (Fn.DIV, Fn.SIGMOID, Fn.ROUND, Fn.FLOOR, Fn.CEIL, Fn.SQRT)
_INT32 = (Fn.SHIFT_LEFT, Fn.HIGH_MUL, Fn.ROUND_SHIFT, Fn.SCALE_ONCE)
_TESTS = (Fn.LT, Fn.LE, Fn.EQ, Fn.ISNAN)
_CODES = 256
"""Entries of a table with one for each byte."""


class Vectoriser:
    """Expressions for `lanes` values of `lane`, the first of which is the variable's own. `names`
    has what their names stand for.
    """

    def __init__(self, lane: Var, lanes: int, names: Mapping[str, Expr]) -> None:
        self._lane = lane
        self._lanes = lanes
        self._names = names
        self._ahead: dict[Expr, Expr] = {}
        self._tables: dict[str, str] = {}

    def load_ahead(self, build: Builder, exprs: Sequence[Expr], varying: str) -> None:
        """Load here what does not depend on the variable named `varying`, and make tables ready."""
        for part in walk(*exprs):
            if not isinstance(part, Load):
                continue
            if _code(part) is not None:
                if part.buffer not in self._tables:
                    self._tables[part.buffer] = build.table("table", part.buffer)
            elif varying not in {var.name for var in part.index.variables()}:
                self._ahead[part] = build.let("c", self._load(part))

    def can_write(self, *exprs: Expr) -> bool:
        """Are they made of functions that have a vector form, of values side by side and of values
        that are the same for all?
        """
        return all(self._is_simple(part) for part in walk(*exprs))

    def write(self, expr: Expr) -> Expr:
        """An expression that `can_write`."""
        return remade(expr, self._wide, self._ahead)

    def _wide(self, part: Expr, done: Mapping[Expr, Expr]) -> Expr:
        lanes = self._lanes
        match part:
            case Name(name, _, _):
                return self._names[name]
            case Load(buffer, _, dtype, _):
                code = _code(part)
                if code is None:
                    return self._load(part)
                return LookUp(self._tables[buffer], _unsigned(done[code]), dtype)
            case Op(Fn.CAST, (value,), dtype, _) if value.dtype is DType.F32 and dtype.is_integer:
                return _to_integer(done[value], _is_clipped(value), dtype)
            case Op(fn, args, dtype, _):
                return Op(fn, tuple(done[arg] for arg in args), dtype, lanes)
        return Splat(part, lanes)

    def _load(self, load: Load) -> Expr:
        if moves_with(load.index, self._lane):
            return Load(load.buffer, load.index, load.dtype, self._lanes)
        return Splat(load, self._lanes)

    def _is_simple(self, part: Expr) -> bool:
        match part:
            case Literal(_, dtype):
                return dtype in _TYPES
            case Name(name, dtype, _):
                return dtype in _TYPES and name in self._names
            case Load(_, index, dtype, _):
                return dtype in _TYPES and (
                    _code(part) is not None or moves_with(index, self._lane) is not None
                )
            case Op(fn, args, _, _) if fn in _TESTS:
                return args[0].dtype in _TYPES
            case Op(Fn.CAST, (value,), dtype, _):
                return _can_convert(value, dtype)
            case Op(Fn.SELECT | Fn.CHOOSE, (condition, _, _), dtype, _):
                return dtype in _TYPES and isinstance(condition, Op) and condition.fn in _TESTS
            case Op(fn, _, dtype, _):
                return (
                    (fn in _ANY_TYPE and dtype in _TYPES)
                    or (fn in _FLOATING and dtype is DType.F32)
                    or (fn in _INT32 and dtype is DType.I32)
                )
        return False


def vectorised(expr: Expr, lane: Var, lanes: int, names: Mapping[str, Expr]) -> Expr | None:
    """An expression that looks nothing up, for `lanes` values of `lane`; `None` when it has no
    vector form.
    """
    vectors = Vectoriser(lane, lanes, names)
    return None if looks_up(expr) or not vectors.can_write(expr) else vectors.write(expr)


def looks_up(*exprs: Expr) -> bool:
    """Do they read tables with an entry for each byte?"""
    return any(isinstance(part, Load) and _code(part) is not None for part in walk(*exprs))


def moves_with(index: Index, lane: Var) -> bool | None:
    """True when the index moves by one with the variable, False when it does not move, `None` when
    it does anything else.
    """
    if _reads_data(index):
        return None
    if not index.depends_on(lane):
        return False
    others = [term for term in index.terms if term[0] != lane]
    inside = any(Index(0, (term,)).depends_on(lane) for term in others)
    return True if surely_equal(index.coefficient(lane), 1) and not inside else None


def _reads_data(index: Index) -> bool:
    return any(
        isinstance(atom, LoadedIndex)
        or (isinstance(atom, Quotient | Remainder) and _reads_data(atom.of))
        for atom, _ in index.terms
    )


def _code(load: Load) -> Expr | None:
    """What is looked up, when the load reads a byte from a table with one entry for each value of a
    byte.
    """
    if load.dtype not in (DType.I8, DType.U8) or load.index.const:
        return None
    match load.index.terms:
        case ((LoadedIndex(Op(Fn.SUB, (Op(Fn.CAST, (code,), _), Literal(low))), extent), 1),):
            known = (code.dtype, low) in ((DType.I8, -128), (DType.U8, 0))
            return code if known and extent == _CODES else None
    return None


def _unsigned(code: Expr) -> Expr:
    """A byte as its place in a table."""
    if code.dtype is DType.U8:
        return code
    middle = Splat(Literal(128, DType.U8), code.lanes)
    return Op(Fn.BIT_XOR, (Bits(code, DType.U8), middle), DType.U8, code.lanes)


# ---- conversions ----


def _can_convert(value: Expr, dtype: DType) -> bool:
    if {dtype, value.dtype} == {DType.F32, DType.F16}:
        # Rounding to half precision: there and back.
        return True
    if dtype not in _TYPES or value.dtype not in _TYPES:
        return False
    # Vectors convert by way of int32, which must hold the number.
    from_float = value.dtype is DType.F32 and dtype.is_integer
    return not from_float or (dtype.bits <= 32 and _is_int32(value))


def _to_integer(value: Expr, may_be_nan: bool, dtype: DType) -> Expr:
    """What is no number becomes 0."""
    lanes = value.lanes
    if may_be_nan:
        is_number = Op(Fn.EQ, (value, value), DType.BOOL, lanes)
        zero = Splat(Literal(0.0, DType.F32), lanes)
        value = Op(Fn.CHOOSE, (is_number, value, zero), DType.F32, lanes)
    whole = Op(Fn.CAST, (value,), DType.I32, lanes)
    return whole if dtype is DType.I32 else Op(Fn.CAST, (whole,), dtype, lanes)


def _is_int32(value: Expr) -> bool:
    """Is the float, if it is a number, surely one that an int32 holds?"""
    match value:
        case Op(Fn.SELECT | Fn.CHOOSE, (Op(Fn.ISNAN, (tested,)), Literal(instead), clipped)):
            return bool(tested == clipped and abs(instead) < 2**31 and _is_clipped(clipped))
    return _is_clipped(value)


def _is_clipped(value: Expr) -> bool:
    match value:
        case Op(Fn.MIN, (Op(Fn.MAX, (_, Literal(low))), Literal(high))):
            return bool(-(2**31) <= low <= high < 2**31)
    return False
