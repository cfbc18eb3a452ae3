"""Epilogues of convolutions and pools in C: what is stored for the sums of a tile.

Simple arithmetic is done on the sums as they lie in vector registers; anything else goes through a
small array and a loop over it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from whence.codegen.c_text import c_index, c_literal
from whence.codegen.nesting import Recursive, is_deep, without_recursion
from whence.codegen.render_c import CWriter
from whence.kernels.conv.epilogue import CHANNELS, LANE, PIXEL, Output
from whence.kernels.index import Index, Var
from whence.kernels.ir import Expr, Fn, Literal, Load, Name, Op, walk
from whence.types import DType

_INFIX = {Fn.ADD: "+", Fn.SUB: "-", Fn.MUL: "*", Fn.DIV: "/"}
_VECTORS = (("float", "vec"), ("int32_t", "ivec"), ("_Float16", "hvec"))
_COMPARE = {Fn.LT: "<", Fn.LE: "<=", Fn.EQ: "=="}


def vector_typedef(lanes: int) -> str:
    """A vector type named `vec`, `ivec` for its bits and `hvec` for its values in half precision.

    Scalars spread over it by conversion, comparisons choose by lane, any address will do.
    """
    return "".join(
        f"typedef {kind} {name} __attribute__((ext_vector_type({lanes}), aligned(4))); "
        for kind, name in _VECTORS
    )


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What to store for a tile `sum[pixel][vector]`, whose first pixel is `place`, first block of
    channels `block` and first lane `lane0`.
    """

    outputs: tuple[Output, ...]
    lanes: int
    block: int
    lane0: str = "0"

    def prefetch(self, writer: CWriter, pixels: int, vectors: int) -> None:
        """Ask now for what is added to each pixel: the sums take longer than memory does."""
        loads = {
            part for output in self.outputs for part in walk(output.value) if isinstance(part, Load)
        }
        streams = [
            load for load in loads if {PIXEL, LANE} <= {var.name for var in load.index.variables()}
        ]
        if not streams:
            return
        writer.line("#pragma clang loop unroll(full)")
        writer.open(f"for (int i = 0; i < {pixels}; i++)")
        writer.line(f"const int64_t {PIXEL} = place + i;")
        for j in range(vectors):
            self._open_vector(writer, j)
            for load in sorted(streams, key=lambda load: load.buffer):
                writer.line(f"__builtin_prefetch({load.buffer} + {c_index(load.index)});")
            writer.close()
        writer.close()

    def store(self, writer: CWriter, pixels: int, vectors: int) -> None:
        lane, vector = Var(LANE, self.block), VectorWriter(writer, Var(LANE, self.block), "acc")
        by_vector = all(
            vector.can_write(output.value) and writer.dtype_of(output.buffer) is DType.F32
            for output in self.outputs
        )
        in_registers = by_vector and not any(is_costly(output.value) for output in self.outputs)
        if not in_registers:
            writer.line(f"float tile[{pixels}][{vectors * self.lanes}];")
            writer.line("#pragma clang loop unroll(full)")
            writer.line(
                f"for (int i = 0; i < {pixels}; i++) for (int j = 0; j < {vectors}; j++) *(vec"
                f" *)(tile[i] + j * {self.lanes}) = sum[i][j];"
            )
        writer.line(f"#pragma clang loop unroll({'full' if in_registers else 'disable'})")
        writer.open(f"for (int i = 0; i < {pixels}; i++)")
        writer.line(f"const int64_t {PIXEL} = place + i;")
        for j in range(vectors):
            if not by_vector:
                self._scalars(writer, j)
                continue
            self._open_vector(writer, j)
            writer.line(
                "const vec acc ="
                f" {f'sum[i][{j}]' if in_registers else f'*(const vec *)(tile[i] + {j * self.lanes})'};"
            )
            for output in self.outputs:
                text = VectorWriter(writer, lane, "acc").text(output.value)
                writer.line(f"*(vec *)({output.buffer} + {c_index(output.index)}) = {text};")
            writer.close()
        writer.close()

    def _open_vector(self, writer: CWriter, j: int) -> None:
        per_block = self.block // self.lanes
        writer.open("")
        writer.line(
            f"const int64_t {CHANNELS} = block + {j // per_block}, {LANE} = {self.lane0} +"
            f" {j % per_block * self.lanes};"
        )

    def _scalars(self, writer: CWriter, j: int) -> None:
        per_block = self.block // self.lanes
        writer.open("")
        writer.line(f"const int64_t {CHANNELS} = block + {j // per_block};")
        writer.line("#pragma clang loop vectorize(assume_safety)")
        writer.open(f"for (int64_t k = 0; k < {self.lanes}; k++)")
        writer.line(f"const int64_t {LANE} = {self.lane0} + {j % per_block * self.lanes} + k;")
        writer.line(f"const float acc = tile[i][{j * self.lanes} + k];")
        for output in self.outputs:
            writer.line(
                f"{output.buffer}[{c_index(output.index)}] ="
                f" {writer.stored(output.buffer, output.value)};"
            )
        writer.close()
        writer.close()


class VectorWriter:
    """Writes expressions as vectors over one variable, whose C variable holds the first lane's
    value.
    """

    def __init__(self, writer: CWriter, lane: Var, accumulator: str) -> None:
        self._writer = writer
        self._lane = lane
        self._accumulator = accumulator

    def can_write(self, expr: Expr) -> bool:
        """Is it float32 arithmetic on values that lie side by side, or are the same in all
        lanes?
        """
        return all(self._is_simple(part) for part in walk(expr))

    def _is_simple(self, part: Expr) -> bool:
        if isinstance(part, Op):
            if part.fn in _COMPARE:
                return all(arg.dtype is DType.F32 for arg in part.args)
            plain = part.fn in _INFIX or part.fn in (Fn.MAX, Fn.MIN, Fn.NEG)
            if part.fn is Fn.SIGMOID:
                return part.dtype is DType.F32
            if part.fn is Fn.CAST:
                # Rounding to half precision: there and back.
                return {part.dtype, part.args[0].dtype} == {DType.F32, DType.F16}
            choice = (
                part.fn in (Fn.SELECT, Fn.CHOOSE)
                and isinstance(part.args[0], Op)
                and part.args[0].fn in _COMPARE
            )
            return part.dtype is DType.F32 and (plain or choice)
        if isinstance(part, Load) and self._spread(part.index) is None:
            return False
        return isinstance(part, Literal | Load | Name) and part.dtype is DType.F32

    def _spread(self, index: Index) -> bool | None:
        """True when the index moves by one with the lane, False when it does not move, `None` when
        it does anything else.
        """
        if not index.depends_on(self._lane):
            return False
        others = [term for term in index.terms if term[0] != self._lane]
        inside = any(Index(0, (term,)).depends_on(self._lane) for term in others)
        return True if index.coefficient(self._lane) == 1 and not inside else None

    def text(self, expr: Expr) -> str:
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
        return without_recursion(self._text(expr, counts, {}))

    def _text(self, expr: Expr, counts: Counter[Expr], names: dict[Expr, str]) -> Recursive:
        if expr in names:
            return names[expr]
        text: str = yield self._plain(expr, counts, names)
        if (
            (counts[expr] > 1 or is_deep(text))
            and isinstance(expr, Op | Load)
            and expr.dtype is DType.F32
        ):
            names[expr] = self._writer.fresh("t")
            self._writer.line(f"const vec {names[expr]} = {text};")
            return names[expr]
        return text

    def _plain(self, expr: Expr, counts: Counter[Expr], names: dict[Expr, str]) -> Recursive:
        match expr:
            case Literal():
                return f"(vec)({c_literal(expr)})"
            case Name():
                return self._accumulator
            case Load(buffer, index, _):
                at = c_index(index)
                return (
                    f"*(const vec *)({buffer} + {at})"
                    if self._spread(index)
                    else f"(vec)({buffer}[{at}])"
                )
            case Op(fn, args, _):
                parts = []
                for arg in args:
                    parts.append((yield self._text(arg, counts, names)))
                if fn in _INFIX or fn in _COMPARE:
                    return f"({parts[0]} {(_INFIX | _COMPARE)[fn]} {parts[1]})"
                if fn is Fn.CAST:
                    return (
                        f"__builtin_convertvector({parts[0]},"
                        f" {'vec' if expr.dtype is DType.F32 else 'hvec'})"
                    )
                if fn is Fn.NEG:
                    return f"(-{parts[0]})"
                if fn in (Fn.SELECT, Fn.CHOOSE):
                    return f"({parts[0]} ? {parts[1]} : {parts[2]})"
                if fn is Fn.SIGMOID:
                    return self._sigmoid(parts[0])
                if not any(isinstance(arg, Literal) for arg in args):
                    return (
                        f"__builtin_elementwise_{'maximum' if fn is Fn.MAX else 'minimum'}({parts[0]},"
                        f" {parts[1]})"
                    )
                # A choice in this order is one instruction, and a NaN stays one.
                bound, value = (
                    (parts[0], self._named(parts[1]))
                    if isinstance(args[0], Literal)
                    else (parts[1], self._named(parts[0]))
                )
                return f"({bound} {'>' if fn is Fn.MAX else '<'} {value} ? {bound} : {value})"
        raise AssertionError(expr)

    def _named(self, text: str) -> str:
        """A name for a text that is used twice."""
        if text.isidentifier():
            return text
        name = self._writer.fresh("t")
        self._writer.line(f"const vec {name} = {text};")
        return name

    def _sigmoid(self, text: str) -> str:
        """1 / (1 + exp(-x)), the exponential as 2^n times a polynomial of what is left, as in the
        prelude.
        """
        line, name = self._writer.line, self._writer.fresh("e")
        line(f"vec {name} = -({text});")
        # Beyond this the result is 1 or next to nothing, and 2^n a normal number before it.
        for bound, sign in (("-87.0f", ">"), ("87.0f", "<")):
            line(f"{name} = (vec)({bound}) {sign} {name} ? (vec)({bound}) : {name};")
        line(
            f"const vec {name}t = {name} * 0x1.715476p+0f + 0x1.8p+23f, {name}n = {name}t -"
            " 0x1.8p+23f;"
        )
        line(f"{name} = ({name} - {name}n * 0x1.62e4p-1f) - {name}n * 0x1.7f7d1cp-20f;")
        line(f"vec {name}p = (vec)(0x1.6a23cap-10f);")
        for factor in ("0x1.1239e8p-7f", "0x1.5558f2p-5f", "0x1.555492p-3f", "0x1.fffffcp-2f"):
            line(f"{name}p = {name}p * {name} + {factor};")
        line(f"{name}p = {name}p * {name} * {name} + {name} + 1.0f;")
        return f"((vec)(1.0f) / ((vec)((ivec){name}p + ((ivec){name}t << 23)) + 1.0f))"


def is_costly(expr: Expr) -> bool:
    """Would it take many registers besides those that hold the sums?"""
    return any(isinstance(part, Op) and part.fn is Fn.SIGMOID for part in walk(expr))
