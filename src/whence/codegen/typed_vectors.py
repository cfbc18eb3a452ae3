"""Expressions of any element type written as vectors: every lane computes the same expression at
the next value of one variable.

An int32 sum, its scaling in 64-bit halves and the byte that is stored are vectors of one length and
different widths; the compiler finds the instructions that widen and narrow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from whence.codegen.c_text import c_index, c_literal
from whence.codegen.nesting import Recursive, is_deep, without_recursion
from whence.codegen.render_c import CWriter
from whence.kernels.index import Index, Looked, Quotient, Remainder, Var
from whence.kernels.ir import Expr, Fn, Literal, Load, Name, Op, walk
from whence.types import DType

_NAMES: Mapping[DType, str] = {
    DType.I8: "i8",
    DType.U8: "u8",
    DType.I16: "i16",
    DType.U16: "u16",
    DType.I32: "i32",
    DType.U32: "u32",
    DType.I64: "i64",
    DType.U64: "u64",
    DType.F32: "f32",
}
_MASKS = {8: "i8", 16: "i16", 32: "i32", 64: "i64"}
_INFIX = {Fn.ADD: "+", Fn.SUB: "-", Fn.MUL: "*", Fn.BIT_AND: "&", Fn.BIT_OR: "|", Fn.BIT_XOR: "^"}
_COMPARE = {Fn.LT: "<", Fn.LE: "<=", Fn.EQ: "=="}
_FIXED_POINT = {
    Fn.HIGH_MUL: "w_high_mul",
    Fn.ROUND_SHIFT: "w_round_shift",
    Fn.SCALE_ONCE: "w_scale_once",
}
_FLOATING = {Fn.ROUND: "rint", Fn.FLOOR: "floor", Fn.CEIL: "ceil", Fn.SQRT: "sqrt"}


def vector_type(dtype: DType, lanes: int) -> str:
    return f"v{lanes}_{_NAMES[dtype]}"


class TypedVectors:
    """Writes expressions as vectors of `lanes` elements along `lane`, whose C variable holds the
    first lane's value.

    `names` says what a `Name` of the expressions is in C: a vector of the name's type.
    """

    def __init__(self, writer: CWriter, lane: Var, lanes: int, names: Mapping[str, str]) -> None:
        self._writer = writer
        self._lane = lane
        self._lanes = lanes
        self._names = names
        self._loaded: dict[Expr, str] = {}
        self._tables: dict[str, str] = {}

    # ---- what can be written ----

    def can_write(self, *exprs: Expr) -> bool:
        return all(self._is_simple(part) for part in walk(*exprs))

    def _is_simple(self, part: Expr) -> bool:
        match part:
            case Literal(_, dtype):
                return dtype in _NAMES
            case Name(name, dtype):
                return dtype in _NAMES and name in self._names
            case Load(_, index, dtype):
                return dtype in _NAMES and (
                    _code(part) is not None or self.spread(index) is not None
                )
            case Op(Fn.CAST, (value,), dtype):
                if dtype not in _NAMES or value.dtype not in _NAMES:
                    return False
                return not (value.dtype is DType.F32 and dtype.is_integer) or (
                    dtype.bits <= 32 and _within_int32(value)
                )
            case Op(Fn.SELECT | Fn.CHOOSE, (condition, _, _), dtype):
                return (
                    dtype in _NAMES
                    and isinstance(condition, Op)
                    and (condition.fn in _COMPARE or condition.fn is Fn.ISNAN)
                )
            case Op(fn, args, _) if fn in _COMPARE or fn is Fn.ISNAN:
                return args[0].dtype in _NAMES
            case Op(Fn.SHIFT_LEFT, _, dtype):
                return dtype is DType.I32
            case Op(fn, _, dtype) if fn in _FIXED_POINT:
                return dtype is DType.I32
            case Op(fn, _, dtype) if fn in _FLOATING or fn is Fn.DIV:
                return dtype is DType.F32
            case Op(fn, _, dtype):
                return dtype in _NAMES and (fn in _INFIX or fn in (Fn.MAX, Fn.MIN, Fn.NEG))
        return False

    def spread(self, index: Index) -> bool | None:
        """True when the index moves by one with the lane, False when it does not move, `None` when
        it does anything else.
        """
        if _reads_data(index):
            return None
        if not index.depends_on(self._lane):
            return False
        others = [term for term in index.terms if term[0] != self._lane]
        inside = any(Index(0, (term,)).depends_on(self._lane) for term in others)
        return True if index.coefficient(self._lane) == 1 and not inside else None

    # ---- writing ----

    def load_ahead(self, exprs: Sequence[Expr], varying: str) -> None:
        """Load here what does not depend on the variable named `varying`, and tables; later texts
        use them.
        """
        for part in walk(*exprs):
            if isinstance(part, Load) and _code(part) is not None:
                self._table(part)
            elif isinstance(part, Load) and varying not in {
                var.name for var in part.index.variables()
            }:
                name = self._writer.fresh("c")
                self._writer.line(f"const {self._type(part.dtype)} {name} = {self._load(part)};")
                self._loaded[part] = name

    def _table(self, load: Load) -> str:
        """The name of the table that a byte is looked up in."""
        if load.buffer not in self._tables:
            self._tables[load.buffer] = self._writer.fresh("table_of")
            self._writer.line(
                f"const w_table {self._tables[load.buffer]} = w_table_of({load.buffer});"
            )
        return self._tables[load.buffer]

    def _load(self, load: Load) -> str:
        kind, at = self._type(load.dtype), c_index(load.index)
        return (
            f"*(const {kind} *)({load.buffer} + {at})"
            if self.spread(load.index)
            else f"({kind})({load.buffer}[{at}])"
        )

    def write(self, expr: Expr) -> str:
        """The expression; parts that occur more than once are computed once, in lines written
        before.
        """
        counts: Counter[Expr] = Counter()
        stack = [expr]
        while stack:
            part = stack.pop()
            counts[part] += 1
            if counts[part] == 1 and isinstance(part, Op):
                stack.extend(part.args)
            elif counts[part] == 1 and isinstance(part, Load) and (code := _code(part)) is not None:
                stack.append(code)
        return without_recursion(self._text(expr, counts, dict(self._loaded)))

    def _type(self, dtype: DType) -> str:
        return vector_type(dtype, self._lanes)

    def _text(self, expr: Expr, counts: Counter[Expr], known: dict[Expr, str]) -> Recursive:
        if expr in known:
            return known[expr]
        text: str = yield self._plain(expr, counts, known)
        if (
            (counts[expr] > 1 or is_deep(text))
            and isinstance(expr, Op | Load)
            and expr.dtype in _NAMES
        ):
            known[expr] = text = self._named(text, expr.dtype)
        return text

    def _named(self, text: str, dtype: DType) -> str:
        if text.isidentifier():
            return text
        name = self._writer.fresh("t")
        self._writer.line(f"const {self._type(dtype)} {name} = {text};")
        return name

    def _plain(self, expr: Expr, counts: Counter[Expr], known: dict[Expr, str]) -> Recursive:
        match expr:
            case Literal(_, dtype):
                return f"({self._type(dtype)})({c_literal(expr)})"
            case Name(name, _):
                return self._names[name]
            case Load():
                code = _code(expr)
                if code is None:
                    return self._load(expr)
                return self._look_up(expr, code, (yield self._text(code, counts, known)))
            case Op(fn, args, dtype):
                parts = []
                for arg in args:
                    parts.append((yield self._text(arg, counts, known)))
                return self._op(fn, args, parts, dtype)
        raise AssertionError(expr)

    def _look_up(self, load: Load, code: Expr, text: str) -> str:
        place = f"({self._type(DType.U8)})({text})"
        return (
            f"({self._type(load.dtype)})w_look_up_x{self._lanes}({self._table(load)},"
            f" {place}{' ^ 128' if code.dtype is DType.I8 else ''})"
        )

    def _op(self, fn: Fn, args: tuple[Expr, ...], parts: list[str], dtype: DType) -> str:
        if fn in _INFIX or fn is Fn.DIV:
            return f"({parts[0]} {_INFIX.get(fn, '/')} {parts[1]})"
        if fn in _COMPARE:
            return f"({parts[0]} {_COMPARE[fn]} {parts[1]})"
        if fn is Fn.ISNAN:
            part = self._named(parts[0], args[0].dtype)
            return f"({part} != {part})"
        if fn is Fn.NEG:
            return f"(-{parts[0]})"
        if fn is Fn.SHIFT_LEFT:
            return f"({parts[0]} << {parts[1]})"
        if fn is Fn.CAST:
            return self._cast(args[0], parts[0], dtype)
        if fn in (Fn.SELECT, Fn.CHOOSE):
            return self._select(args[0], parts, dtype)
        if fn in _FIXED_POINT:
            return f"{_FIXED_POINT[fn]}_x{self._lanes}({', '.join(parts)})"
        if fn in _FLOATING:
            return f"__builtin_elementwise_{_FLOATING[fn]}({parts[0]})"
        assert fn in (Fn.MAX, Fn.MIN)
        if dtype is not DType.F32:
            return f"__builtin_elementwise_{fn.value}({parts[0]}, {parts[1]})"
        if not any(isinstance(arg, Literal) for arg in args):
            return (
                f"__builtin_elementwise_{'maximum' if fn is Fn.MAX else 'minimum'}({parts[0]},"
                f" {parts[1]})"
            )
        # A choice in this order is one instruction, and a NaN stays one.
        bound, value = (
            (parts[0], parts[1]) if isinstance(args[0], Literal) else (parts[1], parts[0])
        )
        value = self._named(value, dtype)
        return f"({bound} {'>' if fn is Fn.MAX else '<'} {value} ? {bound} : {value})"

    def _cast(self, value: Expr, text: str, dtype: DType) -> str:
        if value.dtype is DType.F32 and dtype.is_integer:
            if _clipped(value):
                text = self._named(text, DType.F32)
                text = f"({text} == {text} ? {text} : ({self._type(DType.F32)})(0.0f))"
            text = f"__builtin_convertvector({text}, {self._type(DType.I32)})"
            return (
                text
                if dtype is DType.I32
                else f"__builtin_convertvector({text}, {self._type(dtype)})"
            )
        return f"__builtin_convertvector({text}, {self._type(dtype)})"

    def _select(self, condition: Expr, parts: list[str], dtype: DType) -> str:
        assert isinstance(condition, Op)
        mask = parts[0]
        if condition.args[0].dtype.bits != dtype.bits:
            mask = f"__builtin_convertvector({mask}, v{self._lanes}_{_MASKS[dtype.bits]})"
        return f"({mask} ? {parts[1]} : {parts[2]})"


def _reads_data(index: Index) -> bool:
    return any(
        isinstance(atom, Looked)
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
        case ((Looked(Op(Fn.SUB, (Op(Fn.CAST, (code,), _), Literal(low))), 256), 1),):
            return code if (code.dtype, low) in ((DType.I8, -128), (DType.U8, 0)) else None
    return None


def _within_int32(value: Expr) -> bool:
    """Is the float, if it is a number, surely one that an int32 holds? Clipped to literal bounds,
    it is.
    """
    match value:
        case Op(Fn.SELECT | Fn.CHOOSE, (Op(Fn.ISNAN, (tested,)), Literal(instead), clipped)):
            return bool(tested == clipped and abs(instead) < 2**31 and _clipped(clipped))
    return _clipped(value)


def _clipped(value: Expr) -> bool:
    match value:
        case Op(Fn.MIN, (Op(Fn.MAX, (_, Literal(low))), Literal(high))):
            return bool(-(2**31) <= low <= high < 2**31)
    return False
