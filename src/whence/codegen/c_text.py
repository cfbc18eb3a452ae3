"""Types, numbers, indices, counts and functions as C text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from whence.errors import UnsupportedError
from whence.extent import Relation, decide, is_symbolic, surely_equal
from whence.kernels.index import Index, LoadedIndex, Quotient, Remainder, Var
from whence.kernels.ir import (
    LIBRARY_FUNCTIONS,
    OWN_FUNCTIONS,
    Arithmetic,
    Both,
    Chosen,
    Condition,
    Count,
    CountComparison,
    Counter,
    CountFn,
    Either,
    Expr,
    Fn,
    Holds,
    IndexCount,
    Literal,
    Not,
    Number,
    SameAddress,
    ValueCount,
)
from whence.types import DType

C_TYPES: Mapping[DType, str] = {
    DType.F32: "float",
    DType.F64: "double",
    DType.F16: "_Float16",
    DType.BF16: "w_bf16",
    DType.I8: "int8_t",
    DType.U8: "uint8_t",
    DType.I16: "int16_t",
    DType.U16: "uint16_t",
    DType.I32: "int32_t",
    DType.U32: "uint32_t",
    DType.I64: "int64_t",
    DType.U64: "uint64_t",
    DType.BOOL: "uint8_t",
}

OUTSIDE = "outside"
"""The variable of a kernel that says whether an index it read was outside its axis."""

_INFIX = {Fn.ADD: "+", Fn.SUB: "-", Fn.MUL: "*", Fn.DIV: "/", Fn.LT: "<", Fn.LE: "<=", Fn.EQ: "==", Fn.AND: "&&", Fn.OR: "||", Fn.XOR: "!=",
          Fn.BIT_AND: "&", Fn.BIT_OR: "|", Fn.BIT_XOR: "^"}  # fmt: skip
_PREFIX = {Fn.NOT: "!", Fn.BIT_NOT: "~"}

VECTOR_INFIX = {Fn.ADD: "+", Fn.SUB: "-", Fn.MUL: "*", Fn.DIV: "/", Fn.LT: "<", Fn.LE: "<=", Fn.EQ: "==", Fn.BIT_AND: "&", Fn.BIT_OR: "|",
                Fn.BIT_XOR: "^", Fn.SHIFT_LEFT: "<<", Fn.SHIFT_RIGHT: ">>"}  # fmt: skip


def c_comment(text: str) -> str:
    """Text from a model as the inside of a C comment: it cannot end the comment, nor the line, nor
    continue it.
    """
    plain = "".join(
        char if char.isprintable() and char.isascii() else f"<{ord(char):x}>" for char in text
    )
    return plain.replace("*/", "* /").replace("/*", "/ *").replace("\\", "<5c>").replace("?", " ?")


def c_type(dtype: DType) -> str:
    try:
        return C_TYPES[dtype]
    except KeyError:
        raise UnsupportedError(f"no C type for {dtype}") from None


def value_type(dtype: DType) -> str:
    """The C type of a value on its way: a bfloat16 is one in memory only, and a rounded float
    everywhere else.
    """
    return "float" if dtype is DType.BF16 else c_type(dtype)


def vector_type(dtype: DType, lanes: int) -> str:
    """The C type of a vector; the prelude defines it."""
    return f"w_{dtype}x{lanes}"


def c_literal(literal: Literal) -> str:
    value, dtype = literal.value, literal.dtype
    if is_symbolic(value):
        # A size that is known at run time.
        return f"{value}" if dtype is DType.I64 else f"(({value_type(dtype)}){value})"
    if dtype is DType.BOOL:
        return "1" if value else "0"
    if dtype in (DType.F32, DType.F64, DType.F16, DType.BF16):
        suffix = "" if dtype is DType.F64 else "f"
        if math.isnan(value):
            return f'__builtin_nan{suffix}("")'
        if math.isinf(value):
            return f"{'-' if value < 0 else ''}__builtin_inf{suffix}()"
        if not float(value).is_integer() or abs(value) > 1e6:
            return f"{float(value).hex()}{suffix}"
        return f"{float(value):.1f}{suffix}"
    if dtype is DType.I64 and value == -(2**63):
        return "INT64_MIN"
    if dtype is DType.U64:
        return f"{value}ull"
    return f"{value}ll" if dtype is DType.I64 and abs(value) >= 2**31 else str(value)


def c_literals(values: Iterable[int | float], dtype: DType) -> str:
    """The elements of a list."""
    return ", ".join(c_literal(Literal(value, dtype)) for value in values)


def c_negated(text: str) -> str:
    """Minus a value that is C already. Of a negative number the sign is not written behind another
    one: `--1` would count it down.
    """
    return f"-({text})" if text.startswith("-") else f"-{text}"


def c_index(index: Index, value: Callable[[Expr], str] | None = None) -> str:
    parts = []
    for atom, coefficient in index.terms:
        text = _atom(atom, value)
        parts.append(text if surely_equal(coefficient, 1) else f"{coefficient} * {text}")
    if not surely_equal(index.const, 0) or not parts:
        parts.append(f"{index.const}")
    return " + ".join(parts)


def _atom(
    atom: Var | Quotient | Remainder | LoadedIndex, value: Callable[[Expr], str] | None
) -> str:
    match atom:
        case Var(name, _):
            return name
        case Quotient(of, by):
            inner = c_index(of, value)
            return f"(({inner}) / {by})" if _is_natural(of) else f"w_floordiv({inner}, {by})"
        case Remainder(of, by):
            inner = c_index(of, value)
            return f"(({inner}) % {by})" if _is_natural(of) else f"w_floormod({inner}, {by})"
        case LoadedIndex(expr, _):
            if value is None:
                raise UnsupportedError("an index from data cannot be stored to")
            return f"({value(expr)})"


def _is_natural(index: Index) -> bool:
    """Is it never below zero?"""
    return decide(0, Relation.LE, index.bounds()[0]) is True


_SUFFIX = {DType.F32: "f", DType.F64: "d"}
BUILTIN = {Fn.SQRT: "sqrt", Fn.FLOOR: "floor", Fn.CEIL: "ceil", Fn.ROUND: "rint"}
FIXED_POINT = (Fn.HIGH_MUL, Fn.ROUND_SHIFT, Fn.SCALE_ONCE)


def written_call(fn: Fn, dtype: DType, args: tuple[str, ...]) -> str:
    """A function applied to arguments that are C already."""
    dtype = DType.F32 if dtype is DType.BF16 else dtype
    floating = dtype in _SUFFIX
    builtin_suffix = "f" if dtype is DType.F32 else ""
    if fn in (Fn.ADD, Fn.SUB, Fn.MUL, Fn.NEG) and dtype in (DType.I32, DType.I64):
        # Wrap around like the other engines do; signed overflow would be undefined in C.
        unsigned = "uint32_t" if dtype is DType.I32 else "uint64_t"
        inner = (
            f" {_INFIX[fn]} ".join(f"({unsigned})({arg})" for arg in args)
            if fn in _INFIX
            else f"-({unsigned})({args[0]})"
        )
        return f"(({c_type(dtype)})({inner}))"
    if fn is Fn.DIV and not floating:
        return f"w_div_{c_type(dtype)}({', '.join(args)})"
    if fn in _INFIX:
        text = f"({f' {_INFIX[fn]} '.join(args)})"
        if floating or fn in (Fn.LT, Fn.LE, Fn.EQ, Fn.AND, Fn.OR, Fn.XOR):
            return text
        return f"(({c_type(dtype)}){text})"
    if fn is Fn.NEG:
        return f"(({c_type(dtype)})({c_negated(args[0])}))"
    if fn in _PREFIX:
        return f"(({c_type(dtype)})({_PREFIX[fn]}{args[0]}))"
    if fn in OWN_FUNCTIONS and floating:
        return f"w_{fn.value}{_SUFFIX[dtype]}({', '.join(args)})"
    if fn in BUILTIN and floating:
        return f"__builtin_{BUILTIN[fn]}{builtin_suffix}({args[0]})"
    if fn in LIBRARY_FUNCTIONS and floating:
        return f"__builtin_{fn.value}{builtin_suffix}({', '.join(args)})"
    if fn is Fn.RSQRT and floating:
        return f"(1.0{builtin_suffix} / __builtin_sqrt{builtin_suffix}({args[0]}))"
    if fn is Fn.ABS:
        if floating:
            return f"__builtin_fabs{builtin_suffix}({args[0]})"
        return f"(({c_type(dtype)})({args[0]} < 0 ? {c_negated(args[0])} : {args[0]}))"
    if fn is Fn.CHECKED:
        return f"w_checked({args[0]}, {args[1]}, &{OUTSIDE})"
    if fn in (Fn.ORDER, Fn.UNORDER, *FIXED_POINT):
        return f"w_{fn.value}({', '.join(args)})"
    if fn is Fn.ISNAN:
        return f"({args[0]} != {args[0]})"
    if fn is Fn.ISINF:
        return f"(__builtin_fabs{builtin_suffix}({args[0]}) == __builtin_inf{builtin_suffix}())"
    if fn in (Fn.SHIFT_LEFT, Fn.SHIFT_RIGHT):
        # An amount below 0 or past the last bit leaves only the fill: the sign bit to the right, 0
        # to the left.
        shifted = (
            f"(uint64_t)({args[0]}) << ({args[1]})"
            if fn is Fn.SHIFT_LEFT
            else f"({args[0]}) >> ({args[1]})"
        )
        fill = f"(({args[0]}) < 0 ? -1 : 0)" if fn is Fn.SHIFT_RIGHT else "0"
        return f"(({c_type(dtype)})((uint64_t)({args[1]}) >= {dtype.bits} ? {fill} : {shifted}))"
    if fn in (Fn.MAX, Fn.MIN, Fn.SIGN, Fn.MOD, Fn.REM):
        return f"w_{fn.value}_{c_type(dtype)}({', '.join(args)})"
    raise UnsupportedError(f"{fn} of {dtype} has no C form")


def converted(text: str, source: DType, target: DType) -> str:
    """A C expression of one type as it is stored in another, the way ONNX's Cast does it."""
    if target is DType.BF16:
        return f"w_to_bf16({text if source in (DType.F32, DType.BF16) else f'(float){text}'})"
    if source is target:
        return text
    if target is DType.BOOL:
        return f"({text} != 0)"
    if source is DType.BF16:
        return text if target is DType.F32 else converted(text, DType.F32, target)
    if source.is_float and target.is_integer:
        return f"w_{'f' if source is not DType.F64 else 'd'}_to_{c_type(target)}({text})"
    return f"(({c_type(target)}){text})"


# ---- counts ----

_SUM, _PRODUCT, _WHOLE = range(3)
"""How tightly a text holds together."""


def c_count(count: Count, value: Callable[[Expr], str] | None = None) -> str:
    """A count; `value` writes the values in it."""
    return _count(count, value)[0]


def _count(count: Count, value: Callable[[Expr], str] | None) -> tuple[str, int]:
    match count:
        case Number(number):
            return f"{number}", _WHOLE if is_symbolic(number) or number >= 0 else _SUM
        case Counter(name):
            return name, _WHOLE
        case IndexCount(index):
            return c_index(index, value), _SUM
        case ValueCount(of):
            assert value is not None
            return f"({value(of)})", _WHOLE
        case Chosen(condition, then, otherwise):
            sides = f"{c_count(then, value)} : {c_count(otherwise, value)}"
            return f"({c_condition(condition, value)} ? {sides})", _WHOLE
        case Arithmetic(CountFn.MIN | CountFn.MAX as fn, left, right):
            one, other = c_count(left, value), c_count(right, value)
            sign = "<" if fn is CountFn.MIN else ">"
            return f"({one} {sign} {other} ? {one} : {other})", _WHOLE
        case Arithmetic(fn, left, right):
            own = _SUM if fn in (CountFn.ADD, CountFn.SUB) else _PRODUCT
            (one, holds), (other, right_holds) = _count(left, value), _count(right, value)
            if holds < own:
                one = f"({one})"
            # a - (b + c), a * (b / c): only sums of sums and products of products need no brackets.
            joins = fn is CountFn.ADD or (
                fn is CountFn.MUL
                and not (isinstance(right, Arithmetic) and right.fn in (CountFn.DIV, CountFn.REM))
            )
            if right_holds < own or (right_holds == own and not joins):
                other = f"({other})"
            return f"{one} {fn.value} {other}", own
    raise AssertionError(count)


def c_condition(condition: Condition, value: Callable[[Expr], str] | None = None) -> str:
    match condition:
        case CountComparison(comparator, left, right):
            return f"{c_count(left, value)} {comparator.value} {c_count(right, value)}"
        case Both(left, right) | Either(left, right):
            word, other = ("&&", Either) if isinstance(condition, Both) else ("||", Both)
            sides = (
                f"({c_condition(side, value)})"
                if isinstance(side, other)
                else c_condition(side, value)
                for side in (left, right)
            )
            return f" {word} ".join(sides)
        case Not(of):
            return f"!({c_condition(of, value)})"
        case Holds(of):
            assert value is not None
            return value(of)
        case SameAddress(one, other):
            return f"{one} == {other}"
    raise AssertionError(condition)
