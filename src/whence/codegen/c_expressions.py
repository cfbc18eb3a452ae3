"""Expressions as C text: the one writer of scalars and vectors.

They may be of any depth: functions that call themselves do without a stack of calls, and no text is
nested more deeply than compilers accept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import Any, TypeAlias

from whence.codegen.c_text import (
    BUILTIN,
    FIXED_POINT,
    VECTOR_INFIX,
    c_count,
    c_index,
    c_literal,
    c_literals,
    c_negated,
    c_type,
    converted,
    value_type,
    vector_type,
    written_call,
)
from whence.errors import UnsupportedError
from whence.kernels import ir
from whence.types import DType

# Functions whose C form writes an argument more than once; a text this long gets a name before.
_REPEATING = frozenset({ir.Fn.ABS, ir.Fn.ISNAN, ir.Fn.SHIFT_LEFT, ir.Fn.SHIFT_RIGHT})
_LONG = 200
# A guarded side of more parts, written out as a tree, becomes a branch of its own.
_LARGE = 256
# An expression of at most so many parts is looked through part by part.
_SMALL = 32
_MASKS = {8: DType.I8, 16: DType.I16, 32: DType.I32, 64: DType.I64}

Recursive: TypeAlias = Generator["Recursive", Any, str]
"""A function that yields each call of itself, is sent the result and returns its own."""

# clang refuses 256 levels of brackets; a text this deep gets a name before it is used in another.
_DEEPEST = 100


class ExpressionWriter:
    """Lines of C with indentation, and expressions in them."""

    def __init__(self, kernel: ir.Kernel) -> None:
        self.kernel = kernel
        self.lines: list[str] = []
        self._depth = 0
        self._fresh = 0
        self._tables: dict[tuple[bytes, DType], str] = {}

    def line(self, text: str = "") -> None:
        self.lines.append("  " * self._depth + text if text else "")

    def open(self, text: str) -> None:
        self.line(f"{text} {{" if text else "{")
        self._depth += 1

    def close(self) -> None:
        self._depth -= 1
        self.line("}")

    def fresh(self, stem: str) -> str:
        self._fresh += 1
        return f"{stem}{self._fresh}"

    def table_name(self, number: int) -> str:
        return f"table{number}"

    def count(self, count: ir.Count) -> str:
        return c_count(count, self.expression)

    def stored(self, buffer: str, value: ir.Expr) -> str:
        """A value as it is stored in a buffer."""
        return converted(self.expression(value), value.dtype, self.kernel.dtype_of(buffer))

    def expression(self, expr: ir.Expr) -> str:
        """The expression as C. Parts that occur more than once are computed once, in lines written
        before.
        """
        # Most of what kernels compute is a short sum or product, without parts to look for.
        if _is_small_tree(expr, set()):
            return self._tree(expr)
        return without_recursion(self._text(expr, _Parts(expr), {}, conditional=False))

    def _tree(self, expr: ir.Expr) -> str:
        """An expression for which `_is_small_tree` holds."""
        if isinstance(expr, ir.Op):
            texts = [self._tree(arg) for arg in expr.args]
            if expr.fn is ir.Fn.MUL:
                texts = list(map(self._factor, expr.args, texts))
            return self.vector_call(expr, texts)
        if isinstance(expr, ir.Splat):
            return f"({self.type_of(expr)})({self._tree(expr.value)})"
        return self._leaf(expr)

    def _leaf(self, expr: ir.Expr) -> str:
        """An expression without operands."""
        match expr:
            case ir.Literal():
                return c_literal(expr)
            case ir.Name(name, _, _):
                return name
            case ir.Lanes(values, dtype):
                return f"({self.type_of(expr)}){{{c_literals(values, dtype)}}}"
            case ir.At(pointer, offset, _, 1):
                return f"{pointer}[{self.count(offset)}]"
            case ir.At(pointer, offset, _, _):
                return self.vector_read(f"{pointer} + {self.count(offset)}", expr)
            case ir.Item(array, at, _, _):
                return array + "".join(f"[{self.count(each)}]" for each in at)
            case ir.CountValue(of, dtype):
                return f"(({c_type(dtype)})({self.count(of)}))"
        raise AssertionError(expr)

    def _text(
        self, expr: ir.Expr, parts: _Parts, names: dict[ir.Expr, str], *, conditional: bool
    ) -> Recursive:
        if expr in names:
            return names[expr]
        text: str = yield self._plain(expr, parts, names, conditional)
        if (
            not conditional
            and (expr in parts.repeated or (isinstance(expr, ir.Op) and is_deep(text)))
            and not (expr.lanes > 1 and expr.dtype is DType.BOOL)
        ):
            text = names[expr] = self._named(expr, text)
        return text

    def _plain(
        self, expr: ir.Expr, parts: _Parts, names: dict[ir.Expr, str], conditional: bool
    ) -> Recursive:
        match expr:
            case ir.Splat(value, _):
                spread: str = yield self._text(value, parts, names, conditional=conditional)
                return f"({self.type_of(expr)})({spread})"
            case ir.Bits(value, _):
                bits: str = yield self._text(value, parts, names, conditional=conditional)
                return self.reinterpreted(bits, expr)
            case ir.LookUp(table, code, _):
                codes: str = yield self._text(code, parts, names, conditional=conditional)
                return f"({self.type_of(expr)})w_look_up_x{expr.lanes}({table}, {codes})"
            case ir.Primitive(name, args, _, _):
                given = []
                for arg in args:
                    given.append((yield self._text(arg, parts, names, conditional=conditional)))
                return f"w_{name}({', '.join(given)})"
            case ir.Load(_, index, _, _) | ir.Position(index, _) | ir.LookupTable(_, index, _):
                texts = {}
                for part in ir.loaded_values(index):
                    texts[part] = yield self._text(part, parts, names, conditional=conditional)
                return self._at(expr, c_index(index, texts.__getitem__))
            case ir.Op(ir.Fn.SELECT, (condition, then, otherwise), _, 1):
                # Only the chosen side may be evaluated, so nothing in it is computed ahead unless
                # it was needed anyway.
                chosen = yield self._text(condition, parts, names, conditional=conditional)
                guarded = [side in parts.touching for side in (then, otherwise)]
                if not conditional and any(
                    guard and isinstance(side, ir.Op) and side.size > _LARGE
                    for guard, side in zip(guarded, (then, otherwise), strict=True)
                ):
                    named: str = yield self._branches(expr, chosen, parts, names)
                    return named
                sides = []
                for side, guard in zip((then, otherwise), guarded, strict=True):
                    sides.append(
                        (yield self._text(side, parts, names, conditional=conditional or guard))
                    )
                return f"({chosen} ? {sides[0]} : {sides[1]})"
            case ir.Op(fn, args, dtype, lanes):
                texts_of = []
                for arg in args:
                    text = yield self._text(arg, parts, names, conditional=conditional)
                    if fn in _REPEATING and len(text) > _LONG and not conditional:
                        text = self._bound(arg, text)
                    texts_of.append(text)
                if fn is ir.Fn.MUL:
                    texts_of = list(map(self._factor, args, texts_of))
                if lanes > 1:
                    return self.vector_call(expr, texts_of)
                if fn is ir.Fn.CHOOSE:
                    return f"({texts_of[0]} ? {texts_of[1]} : {texts_of[2]})"
                if fn is ir.Fn.CAST:
                    made = converted(texts_of[0], args[0].dtype, dtype)
                    return f"w_bf16_value({made})" if dtype is DType.BF16 else made
                kind = args[0].dtype if dtype is DType.BOOL else dtype
                return written_call(fn, kind, tuple(texts_of))
            case _:
                return self._leaf(expr)

    def _factor(self, expr: ir.Expr, text: str) -> str:
        """A factor of a product. The compiler may not keep the sign of a zero that it knows of (see
        `COMPILE_FLAGS`), and 1 / (x · 0) has the sign of x: it is not told of that zero.
        """
        value = expr.value if isinstance(expr, ir.Splat) else expr
        if not isinstance(value, ir.Literal) or value.dtype is not DType.F32 or value.value != 0:
            return text
        hidden = f"w_hidden({c_literal(value)})"
        return hidden if value is expr else f"({self.type_of(expr)})({hidden})"

    def _at(self, expr: ir.Load | ir.Position | ir.LookupTable, place: str) -> str:
        match expr:
            case ir.Load(buffer, _, _, lanes) if lanes > 1:
                return self.vector_read(f"{buffer} + {place}", expr)
            case ir.Load(buffer, _, dtype, _):
                element = f"{buffer}[{place}]"
                return f"w_bf16_value({element})" if dtype is DType.BF16 else element
            case ir.Position():
                return f"({place})"
            case ir.LookupTable(data, _, dtype):
                table = self._tables.setdefault((data, dtype), self.table_name(len(self._tables)))
                return f"{table}[{place}]"

    def _bound(self, expr: ir.Expr, text: str) -> str:
        """A name for a text that would be written several times."""
        return text if text.isidentifier() else self._named(expr, text)

    def _named(self, expr: ir.Expr, text: str) -> str:
        name = self.fresh("t")
        self.line(f"const {self.type_of(expr)} {name} = {text};")
        return name

    # ---- vectors ----

    def type_of(self, expr: ir.Expr) -> str:
        """The C type of a value on its way."""
        if expr.lanes == 1:
            return value_type(expr.dtype)
        return self.vector_type(expr.dtype, expr.lanes)

    def vector_type(self, dtype: DType, lanes: int) -> str:
        return vector_type(dtype, lanes)

    def vector_read(self, address: str, what: ir.Expr) -> str:
        return f"*(const {self.type_of(what)} *)({address})"

    def reinterpreted(self, text: str, to: ir.Bits) -> str:
        if to.lanes < to.value.lanes and to.lanes == 1:
            return f"(({self.vector_type(to.dtype, 1)})({text}))[0]"
        return f"({self.type_of(to)})({text})"

    def vector_call(self, expr: ir.Op, texts: list[str]) -> str:
        """A function of each lane."""
        fn, args, lanes = expr.fn, expr.args, expr.lanes
        if fn in VECTOR_INFIX:
            return f"({texts[0]} {VECTOR_INFIX[fn]} {texts[1]})"
        if fn is ir.Fn.NEG:
            return f"({c_negated(texts[0])})"
        if fn is ir.Fn.ISNAN:
            value = self._bound(args[0], texts[0])
            return f"({value} != {value})"
        if fn in (ir.Fn.SELECT, ir.Fn.CHOOSE):
            return f"({self._mask(args[0], texts[0], expr)} ? {texts[1]} : {texts[2]})"
        if fn is ir.Fn.CAST:
            return f"__builtin_convertvector({texts[0]}, {self.type_of(expr)})"
        if fn in (ir.Fn.MAX, ir.Fn.MIN) and not expr.dtype.is_float:
            return f"__builtin_elementwise_{fn.value}({texts[0]}, {texts[1]})"
        if fn in (ir.Fn.MAX, ir.Fn.MIN):
            bounds = [
                isinstance(arg, ir.Splat) and isinstance(arg.value, ir.Literal) for arg in args
            ]
            if not any(bounds):
                word = "maximum" if fn is ir.Fn.MAX else "minimum"
                return f"__builtin_elementwise_{word}({texts[0]}, {texts[1]})"
            # A choice in this order is one instruction, and a NaN stays one.
            first = bounds[0]
            value = self._bound(args[int(first)], texts[int(first)])
            bound = texts[int(not first)]
            return f"({bound} {'>' if fn is ir.Fn.MAX else '<'} {value} ? {bound} : {value})"
        if fn in FIXED_POINT:
            return f"w_{fn.value}_x{lanes}({', '.join(texts)})"
        if fn in BUILTIN:
            return f"__builtin_elementwise_{BUILTIN[fn]}({texts[0]})"
        if fn in (ir.Fn.SIGMOID, ir.Fn.EXP_DOWN):
            return f"w_{fn.value}_f32x{lanes}({texts[0]})"
        raise UnsupportedError(f"{fn} of {lanes} × {expr.dtype} has no vector form")

    def _mask(self, condition: ir.Expr, text: str, chosen: ir.Op) -> str:
        """What a comparison found, in lanes as wide as those of what is chosen."""
        width = condition.args[0].dtype.bits if isinstance(condition, ir.Op) else chosen.dtype.bits
        if width == chosen.dtype.bits:
            return text
        kind = self.vector_type(_MASKS[chosen.dtype.bits], chosen.lanes)
        return f"__builtin_convertvector({text}, {kind})"

    def _branches(
        self, expr: ir.Op, chosen: str, parts: _Parts, names: dict[ir.Expr, str]
    ) -> Recursive:
        """A choice as statements, so that what a side needs more than once has a name there."""
        name = self.fresh("t")
        self.line(f"{self.type_of(expr)} {name};")
        for head, side in ((f"if ({chosen})", expr.args[1]), ("else", expr.args[2])):
            self.open(head)
            text = yield self._text(side, parts, dict(names), conditional=False)
            self.line(f"{name} = {text};")
            self.close()
        return name


def _is_small_tree(expr: ir.Expr, seen: set[ir.Expr]) -> bool:
    """Is it a value, or sums and products of few, of which none occurs twice that would get a name?

    `seen` has the parts that would.
    """
    if isinstance(expr, ir.Op):
        if expr.lanes == 1 or expr.fn not in VECTOR_INFIX or expr.size > _SMALL or expr in seen:
            return False
        seen.add(expr)
        return all(_is_small_tree(arg, seen) for arg in expr.args)
    if isinstance(expr, ir.Splat):
        return _is_small_tree(expr.value, seen)
    if isinstance(expr, ir.At):
        if expr in seen:
            return False
        seen.add(expr)
        return True
    return isinstance(expr, ir.Literal | ir.Name | ir.Lanes | ir.Item | ir.CountValue)


class _Parts:
    """What writing an expression has to know of its parts."""

    def __init__(self, expr: ir.Expr) -> None:
        counts: Counter[ir.Expr] = Counter()
        stack: list[ir.Expr] = [expr]
        inside: dict[ir.Expr, tuple[ir.Expr, ...]] = {}
        while stack:
            part = stack.pop()
            counts[part] += 1
            if counts[part] == 1:
                inside[part] = ir.operands(part)
                stack.extend(inside[part])
        self.repeated = frozenset(
            part
            for part, count in counts.items()
            if count > 1 and isinstance(part, ir.Op | ir.Load | ir.At)
        )
        """The parts worth naming: operations and loads that occur more than once."""
        users: dict[ir.Expr, list[ir.Expr]] = {}
        for part, its in inside.items():
            for operand in its:
                users.setdefault(operand, []).append(part)
        stack = [
            part
            for part in inside
            if isinstance(part, ir.Load) or (isinstance(part, ir.Op) and part.fn is ir.Fn.CHECKED)
        ]
        touching = set(stack)
        while stack:
            for user in users.get(stack.pop(), ()):
                if user not in touching:
                    touching.add(user)
                    stack.append(user)
        self.touching = frozenset(touching)
        """The parts that read memory, or look at an index that must be inside an axis."""


def without_recursion(call: Recursive) -> str:
    """The result of a call, whatever the depth of the calls that it makes."""
    stack = [call]
    result: str | None = None
    while stack:
        try:
            inner = stack[-1].send(result)
        except StopIteration as finished:
            stack.pop()
            result = finished.value
        else:
            stack.append(inner)
            result = None
    assert result is not None
    return result


def is_deep(text: str) -> bool:
    """Are its brackets nested so deeply that it should have a name?"""
    if len(text) < 2 * _DEEPEST:
        return False
    depth = 0
    for char in text:
        if char == "(":
            depth += 1
            if depth > _DEEPEST:
                return True
        elif char == ")":
            depth -= 1
    return False
