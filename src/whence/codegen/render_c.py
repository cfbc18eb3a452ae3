"""Kernel programs as C text, meant to be read."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from whence.codegen.nesting import Recursive, is_deep, without_recursion
from whence.errors import UnsupportedError
from whence.kernels.index import Index, Looked, Quotient, Remainder, Var
from whence.kernels.ir import (
    TASK,
    Accumulate,
    Accumulator,
    Expr,
    Fn,
    Kernel,
    Let,
    Literal,
    Load,
    Loop,
    LoopKind,
    Micro,
    Name,
    Op,
    Position,
    Role,
    Stmt,
    Store,
    Table,
    looked,
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
_PREFIX = {Fn.NEG: "-", Fn.NOT: "!", Fn.BIT_NOT: "~"}

# Functions whose C form writes an argument more than once; a text this long gets a name before.
_REPEATING = frozenset({Fn.ABS, Fn.ISNAN, Fn.SHIFT_LEFT, Fn.SHIFT_RIGHT})
_LONG = 200
# A guarded side of more parts, written out as a tree, becomes a branch of its own.
_LARGE = 256

HEADER = 64
"""Bytes before scratch memory at which the pointer to the workers of a kernel stands; see
whence_runtime.h.
"""

Micros = Mapping[type[Micro], Callable[["CWriter", Micro], None]]
"""How each family of micro-kernels is written out."""


def c_comment(text: str) -> str:
    """Text from a model as the inside of a C comment: it cannot end the comment, nor the line, nor
    continue it.
    """
    plain = "".join(
        char if char.isprintable() and char.isascii() else f"<{ord(char):x}>" for char in text
    )
    return plain.replace("*/", "* /").replace("/*", "/ *").replace("\\", "<5c>").replace("?", " ?")


class CWriter:
    """Lines of C with indentation."""

    def __init__(self, kernel: Kernel, micros: Micros) -> None:
        self.kernel = kernel
        self.lines: list[str] = []
        self._depth = 0
        self._micros = micros
        self._fresh = 0
        self._tables: dict[tuple[bytes, DType], str] = {}

    def line(self, text: str = "") -> None:
        self.lines.append("  " * self._depth + text if text else "")

    def open(self, text: str) -> None:
        self.line(text + " {")
        self._depth += 1

    def close(self) -> None:
        self._depth -= 1
        self.line("}")

    def fresh(self, stem: str) -> str:
        self._fresh += 1
        return f"{stem}{self._fresh}"

    # ---- statements ----

    def statements(self, body: Sequence[Stmt]) -> None:
        for stmt in body:
            self.statement(stmt)

    def statement(self, stmt: Stmt) -> None:
        match stmt:
            case Loop():
                self._loop(stmt)
            case Let(name, value):
                self.line(f"const {_value_type(value.dtype)} {name} = {self.expression(value)};")
            case Accumulator(name, start, None):
                self.line(f"{_value_type(start.dtype)} {name} = {c_literal(start)};")
            case Accumulator(name, start, lanes):
                assert lanes is not None
                self.line(f"{_value_type(start.dtype)} {name}[{lanes.extent}];")
                self.line(
                    f"for (int64_t lane = 0; lane < {lanes.extent}; lane++) {name}[lane] ="
                    f" {c_literal(start)};"
                )
            case Accumulate(name, fn, value, lane):
                target = name if lane is None else f"{name}[{lane.name}]"
                self.line(
                    f"{target} = {written_call(fn, value.dtype, (target, self.expression(value)))};"
                )
            case Store(buffer, index, value):
                place = c_index(index, self.expression)
                self.line(f"{buffer}[{place}] = {self.stored(buffer, value)};")
            case Micro():
                self._micros[type(stmt)](self, stmt)

    def _loop(self, loop: Loop) -> None:
        var = loop.var
        if loop.kind is LoopKind.REDUCE:
            # Sums may be reordered here, which is what lets the compiler keep several of them at
            # once.
            self.open("")
            self.line("#pragma clang fp reassociate(on)")
        if loop.kind is LoopKind.VECTOR:
            self.line("#pragma clang loop vectorize(assume_safety)")
        elif loop.kind is LoopKind.UNROLL:
            self.line("#pragma clang loop unroll(full)")
        if var.name == TASK and loop.first == 0 and var.extent == self.kernel.tasks:
            self.open(f"for (int64_t {TASK} = begin; {TASK} < end; {TASK}++)")
        elif var.name == TASK:
            low, high = f"begin - {loop.first}", f"end - {loop.first}"
            last = f"{TASK} < {high} && {TASK} < {var.extent}"
            self.open(f"for (int64_t {TASK} = {low} > 0 ? {low} : 0; {last}; {TASK}++)")
        else:
            self.open(f"for (int64_t {var.name} = 0; {var.name} < {var.extent}; {var.name}++)")
        self.statements(loop.body)
        self.close()
        if loop.kind is LoopKind.REDUCE:
            self.close()

    def dtype_of(self, buffer: str) -> DType:
        """The type of a parameter's elements."""
        return next(param.dtype for param in self.kernel.params if param.name == buffer)

    def tables(self) -> list[str]:
        """The definitions of the tables that expressions written so far read."""
        found = []
        for (data, dtype), name in self._tables.items():
            values = ", ".join(
                c_literal(Literal(value.item(), dtype))
                for value in np.frombuffer(data, dtype.numpy)
            )
            found.append(f"  static const {c_type(dtype)} {name}[] = {{{values}}};")
        return found

    def table_name(self, number: int) -> str:
        return f"table{number}"

    # ---- expressions ----

    def stored(self, buffer: str, value: Expr) -> str:
        """A value as it is stored in a buffer."""
        return converted(self.expression(value), value.dtype, self.dtype_of(buffer))

    def expression(self, expr: Expr) -> str:
        """The expression as C. Parts that occur more than once are computed once, in lines written
        before.
        """
        return without_recursion(self._text(expr, _Parts(expr), {}, conditional=False))

    def _text(
        self, expr: Expr, parts: _Parts, names: dict[Expr, str], *, conditional: bool
    ) -> Recursive:
        if expr in names:
            return names[expr]
        text: str = yield self._plain(expr, parts, names, conditional)
        if not conditional and (expr in parts.repeated or (isinstance(expr, Op) and is_deep(text))):
            name = self.fresh("t")
            self.line(f"const {_value_type(expr.dtype)} {name} = {text};")
            names[expr] = name
            return name
        return text

    def _plain(
        self, expr: Expr, parts: _Parts, names: dict[Expr, str], conditional: bool
    ) -> Recursive:
        match expr:
            case Literal():
                return c_literal(expr)
            case Name(name, _):
                return name
            case Load(_, index, _) | Position(index, _) | Table(_, index, _):
                texts = {}
                for part in looked(index):
                    texts[part] = yield self._text(part, parts, names, conditional=conditional)
                return self._at(expr, c_index(index, texts.__getitem__))
            case Op(Fn.SELECT, (condition, then, otherwise), _):
                # Only the chosen side may be evaluated, so nothing in it is computed ahead unless
                # it was needed anyway.
                chosen = yield self._text(condition, parts, names, conditional=conditional)
                guarded = [side in parts.touching for side in (then, otherwise)]
                if not conditional and any(
                    guard and isinstance(side, Op) and side.size > _LARGE
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
            case Op(fn, args, dtype):
                texts_of = []
                for arg in args:
                    text = yield self._text(arg, parts, names, conditional=conditional)
                    if fn in _REPEATING and len(text) > _LONG and not conditional:
                        text = self._bound(arg, text)
                    texts_of.append(text)
                if fn is Fn.CHOOSE:
                    return f"({texts_of[0]} ? {texts_of[1]} : {texts_of[2]})"
                if fn is Fn.CAST:
                    made = converted(texts_of[0], args[0].dtype, dtype)
                    return f"w_bf16_value({made})" if dtype is DType.BF16 else made
                kind = args[0].dtype if dtype is DType.BOOL else dtype
                return written_call(fn, kind, tuple(texts_of))

    def _at(self, expr: Load | Position | Table, place: str) -> str:
        match expr:
            case Load(buffer, _, dtype):
                element = f"{buffer}[{place}]"
                return f"w_bf16_value({element})" if dtype is DType.BF16 else element
            case Position():
                return f"({place})"
            case Table(data, _, dtype):
                table = self._tables.setdefault((data, dtype), self.table_name(len(self._tables)))
                return f"{table}[{place}]"

    def _bound(self, expr: Expr, text: str) -> str:
        """A name for a text that would be written several times."""
        name = self.fresh("t")
        self.line(f"const {_value_type(expr.dtype)} {name} = {text};")
        return name

    def _branches(self, expr: Op, chosen: str, parts: _Parts, names: dict[Expr, str]) -> Recursive:
        """A choice as statements, so that what a side needs more than once has a name there."""
        name = self.fresh("t")
        self.line(f"{_value_type(expr.dtype)} {name};")
        for head, side in ((f"if ({chosen})", expr.args[1]), ("else", expr.args[2])):
            self.open(head)
            text = yield self._text(side, parts, dict(names), conditional=False)
            self.line(f"{name} = {text};")
            self.close()
        return name


class _Parts:
    """What writing an expression has to know of its parts."""

    def __init__(self, expr: Expr) -> None:
        counts: Counter[Expr] = Counter()
        stack: list[Expr] = [expr]
        inside: dict[Expr, list[Expr]] = {}
        while stack:
            part = stack.pop()
            counts[part] += 1
            if counts[part] == 1:
                inside[part] = _operands(part)
                stack.extend(inside[part])
        self.repeated = frozenset(
            part for part, count in counts.items() if count > 1 and isinstance(part, Op | Load)
        )
        """The parts worth naming: operations and loads that occur more than once."""
        users: dict[Expr, list[Expr]] = {}
        for part, operands in inside.items():
            for operand in operands:
                users.setdefault(operand, []).append(part)
        stack = [
            part
            for part in inside
            if isinstance(part, Load) or (isinstance(part, Op) and part.fn is Fn.CHECKED)
        ]
        touching = set(stack)
        while stack:
            for user in users.get(stack.pop(), ()):
                if user not in touching:
                    touching.add(user)
                    stack.append(user)
        self.touching = frozenset(touching)
        """The parts that read memory, or look at an index that must be inside an axis."""


def _operands(part: Expr) -> list[Expr]:
    if isinstance(part, Op):
        return list(part.args)
    return list(looked(part.index)) if isinstance(part, Load | Position | Table) else []


def c_type(dtype: DType) -> str:
    try:
        return C_TYPES[dtype]
    except KeyError:
        raise UnsupportedError(f"no C type for {dtype}") from None


def _value_type(dtype: DType) -> str:
    """The C type of a value on its way: a bfloat16 is one in memory only, and a rounded float
    everywhere else.
    """
    return "float" if dtype is DType.BF16 else c_type(dtype)


def c_literal(literal: Literal) -> str:
    value, dtype = literal.value, literal.dtype
    if dtype is DType.BOOL:
        return "1" if value else "0"
    if dtype in (DType.F32, DType.F64, DType.F16, DType.BF16):
        suffix = "" if dtype is DType.F64 else "f"
        if math.isnan(value):
            return f'__builtin_nan{suffix}("")'
        if math.isinf(value):
            return f"{'-' if value < 0 else ''}__builtin_inf{suffix}()"
        return (
            f"{float(value).hex()}{suffix}"
            if not float(value).is_integer() or abs(value) > 1e6
            else f"{float(value):.1f}{suffix}"
        )
    if dtype is DType.I64 and value == -(2**63):
        return "INT64_MIN"
    if dtype is DType.U64:
        return f"{value}ull"
    return f"{value}ll" if dtype is DType.I64 and abs(value) >= 2**31 else str(value)


def c_index(index: Index, value: Callable[[Expr], str] | None = None) -> str:
    parts = []
    for atom, coefficient in index.terms:
        text = _atom(atom, value)
        parts.append(text if coefficient == 1 else f"{coefficient} * {text}")
    if index.const or not parts:
        parts.append(str(index.const))
    return " + ".join(parts)


def _atom(atom: Var | Quotient | Remainder | Looked, value: Callable[[Expr], str] | None) -> str:
    match atom:
        case Var(name, _):
            return name
        case Quotient(of, by):
            inner = c_index(of, value)
            return f"(({inner}) / {by})" if of.bounds()[0] >= 0 else f"w_floordiv({inner}, {by})"
        case Remainder(of, by):
            inner = c_index(of, value)
            return f"(({inner}) % {by})" if of.bounds()[0] >= 0 else f"w_floormod({inner}, {by})"
        case Looked(expr, _):
            if value is None:
                raise UnsupportedError("an index from data cannot be stored to")
            return f"({value(expr)})"


_SUFFIX = {DType.F32: "f", DType.F64: "d"}
_LIBM = {Fn.SIN: "sin", Fn.COS: "cos", Fn.TAN: "tan", Fn.ASIN: "asin", Fn.ACOS: "acos", Fn.ATAN: "atan", Fn.SINH: "sinh", Fn.COSH: "cosh",
         Fn.ASINH: "asinh", Fn.ACOSH: "acosh", Fn.ATANH: "atanh", Fn.POW: "pow"}  # fmt: skip
_BUILTIN = {Fn.SQRT: "sqrt", Fn.FLOOR: "floor", Fn.CEIL: "ceil", Fn.ROUND: "rint"}
_OWN = {
    Fn.EXP: "exp",
    Fn.EXPM1: "expm1",
    Fn.EXP_DOWN: "exp_down",
    Fn.LOG: "log",
    Fn.TANH: "tanh",
    Fn.ERF: "erf",
    Fn.SIGMOID: "sigmoid",
    Fn.SOFTPLUS: "softplus",
}


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
        return (
            text
            if floating or fn in (Fn.LT, Fn.LE, Fn.EQ, Fn.AND, Fn.OR, Fn.XOR)
            else f"(({c_type(dtype)}){text})"
        )
    if fn in _PREFIX:
        return f"(({c_type(dtype)})({_PREFIX[fn]}{args[0]}))"
    if fn in _OWN and floating:
        return f"w_{_OWN[fn]}{_SUFFIX[dtype]}({', '.join(args)})"
    if fn in _BUILTIN and floating:
        return f"__builtin_{_BUILTIN[fn]}{builtin_suffix}({args[0]})"
    if fn in _LIBM and floating:
        return f"__builtin_{_LIBM[fn]}{builtin_suffix}({', '.join(args)})"
    if fn is Fn.RSQRT and floating:
        return f"(1.0{builtin_suffix} / __builtin_sqrt{builtin_suffix}({args[0]}))"
    if fn is Fn.ABS:
        return (
            f"__builtin_fabs{builtin_suffix}({args[0]})"
            if floating
            else f"(({c_type(dtype)})({args[0]} < 0 ? -{args[0]} : {args[0]}))"
        )
    if fn is Fn.CHECKED:
        return f"w_checked({args[0]}, {args[1]}, &{OUTSIDE})"
    if fn in (Fn.ORDER, Fn.UNORDER, Fn.HIGH_MUL, Fn.ROUND_SHIFT, Fn.SCALE_ONCE):
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


def render_kernel(kernel: Kernel, name: str, comments: Sequence[str], micros: Micros) -> str:
    """One C function, opened by comment lines that say where it came from."""
    writer = CWriter(kernel, micros)
    for comment in comments:
        writer.line(f"/* {c_comment(comment)} */")
    writer.open(
        f"void {name}(void *const *restrict buf, int64_t begin, int64_t end, void *restrict"
        " scratch)"
    )
    head = len(writer.lines)
    if not kernel.scratch_bytes:
        writer.line("(void)scratch;")
    writer.statements(kernel.body)
    checks = any(f"&{OUTSIDE})" in line for line in writer.lines[head:])
    if checks:
        # A variable, so that loops stay free of stores: nobody but the runtime asks, and only once.
        writer.line(f"if ({OUTSIDE}) w_note_fault((char *)scratch - {HEADER});")
    # A constant of one number is written as that number, and its parameter then read by nobody.
    words = set(re.findall(r"\w+", "\n".join(writer.lines[head:])))
    declared = []
    for position, param in enumerate(kernel.params):
        if param.name in words:
            qualifier = "" if param.role is Role.OUTPUT else "const "
            declared.append(
                f"  {qualifier}{c_type(param.dtype)} *restrict {param.name} = buf[{position}];"
            )
    noted = [f"  int64_t {OUTSIDE} = 0;"] if checks else []
    writer.lines[head:head] = [*declared, *writer.tables(), *noted]
    writer.close()
    return "\n".join(writer.lines) + "\n"
