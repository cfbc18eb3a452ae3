"""A kernel program as the text of a Python function over flat NumPy arrays.

Loops and scalar arithmetic are all there is: what else a kernel may hold, such as a micro-kernel,
is refused, and its operators run by their reference implementation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from whence.errors import UnsupportedError
from whence.kernels.index import Index, LoadedIndex, Quotient, Remainder, Var
from whence.kernels.ir import (
    TASK,
    Accumulate,
    Accumulator,
    Counter,
    Expr,
    Fn,
    Item,
    Kernel,
    Let,
    Literal,
    Load,
    Loop,
    Name,
    Op,
    Position,
    Stmt,
    Store,
)

_TEXT: Mapping[Fn, str] = {
    Fn.ADD: "({} + {})",
    Fn.SUB: "({} - {})",
    Fn.MUL: "({} * {})",
    Fn.NEG: "(-{})",
    Fn.ABS: "abs({})",
    Fn.MAX: "np.maximum({}, {})",
    Fn.MIN: "np.minimum({}, {})",
    Fn.SQRT: "np.sqrt({})",
    Fn.EXP: "np.exp({})",
    Fn.EXP_DOWN: "np.exp({})",
    Fn.LOG: "np.log({})",
    Fn.TANH: "np.tanh({})",
    Fn.LT: "({} < {})",
    Fn.LE: "({} <= {})",
    Fn.EQ: "({} == {})",
    Fn.NOT: "(not {})",
    Fn.SELECT: "({1} if {0} else {2})",
    Fn.CHOOSE: "({1} if {0} else {2})",
}


def render(kernel: Kernel, symbol: str) -> str:
    """The function `symbol(begin, end, *arrays)`, which does the work items from `begin` on."""
    names = ", ".join(each.name for each in kernel.params)
    head = f"def {symbol}(begin, end, {names}):"
    return "\n".join([head, *_lines(kernel.body, 1), "    return", ""])


def _lines(body: Sequence[Stmt], depth: int) -> list[str]:
    found: list[str] = []
    for stmt in body:
        match stmt:
            case Loop(end=end) if end is not None:
                raise UnsupportedError(
                    "a loop whose end is known at run time has no form in Python"
                )
            case Loop(var=var, body=inner, first=first):
                bounds = f"{var.extent}"
                if var.name == TASK:
                    bounds = f"max(begin - {first}, 0), min(end - {first}, {var.extent})"
                found.append(f"for {var.name} in range({bounds}):")
                found += _lines(inner, 1)
            case Let(name, value):
                found.append(f"{name} = {_expression(value)}")
            case Accumulator(name, start, lanes):
                each = "" if lanes is None else f"[{_expression(start)}] * {lanes.extent}"
                found.append(f"{name} = {each or _expression(start)}")
            case Accumulate(name, fn, value, lane):
                place = name if lane is None else f"{name}[{lane.name}]"
                found.append(f"{place} = {_call(fn, [place, _expression(value)])}")
            case Store(buffer, index, value):
                found.append(f"{buffer}[{_index(index)}] = {_expression(value)}")
            case _:
                raise UnsupportedError(f"a {type(stmt).__name__} has no form in Python")
    return [f"{'    ' * depth}{line}" for line in found]


def _expression(expr: Expr) -> str:
    match expr:
        case Literal(value, dtype):
            return f"np.{dtype.numpy.name}({str(value)!r})" if dtype.is_float else repr(value)
        case Name(name, _):
            return name
        case Item(array, (Counter(lane),), _, 1):
            return f"{array}[{lane}]"
        case Load(buffer, index, _):
            return f"{buffer}[{_index(index)}]"
        case Position(index, _):
            return f"({_index(index)})"
        # Division of integers, and whatever else differs from NumPy's, is left to the reference.
        case Op(Fn.DIV, (one, other), dtype) if dtype.is_float:
            return f"({_expression(one)} / {_expression(other)})"
        case Op(fn, args, _):
            return _call(fn, [_expression(each) for each in args])
    raise UnsupportedError(f"a {type(expr).__name__} has no form in Python")


def _call(fn: Fn, args: Sequence[str]) -> str:
    if fn not in _TEXT:
        raise UnsupportedError(f"'{fn}' has no form in Python")
    return _TEXT[fn].format(*args)


def _index(index: Index) -> str:
    terms = [f"{factor} * {_atom(atom)}" for atom, factor in index.terms]
    return " + ".join([*terms, str(index.const)])


def _atom(atom: Var | Quotient | Remainder | LoadedIndex) -> str:
    match atom:
        case Var(name, _):
            return name
        case Quotient(of, by):
            return f"(({_index(of)}) // {by})"
        case Remainder(of, by):
            return f"(({_index(of)}) % {by})"
        case LoadedIndex(value, _):
            return f"int({_expression(value)})"
