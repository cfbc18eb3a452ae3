"""Numbers that depend on the position along one axis alone, listed in scratch memory once for a
call: the places and weights of a Resize whose sizes are known only at run time. Where sizes are
numbers, such lists are constants of the code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from whence.extent import estimate, is_symbolic
from whence.kernels.expressions import cast
from whence.kernels.index import Var, of
from whence.kernels.ir import (
    SCRATCH,
    Assign,
    At,
    Counter,
    Expr,
    Fn,
    For,
    LetPointer,
    Literal,
    Load,
    Op,
    Position,
    Stmt,
    Store,
    count,
    operands,
    replaced,
    walk,
)
from whence.types import DType

# So often must a number be needed that listing it pays.
_ROUNDS = 8
_ROUNDING = frozenset({Fn.FLOOR, Fn.CEIL})
_BYTES = 4
"""Of an entry: a float32 or an int32."""


class AxisTables:
    """The lists of one kernel."""

    def __init__(self) -> None:
        self._names: dict[tuple[Expr, Var], str] = {}
        self._entries = 0
        self.fill: list[Stmt] = []
        """What makes them, before anything reads them."""

    @property
    def scratch_bytes(self) -> int:
        return self._entries * _BYTES

    def listed(self, stores: Sequence[Store], task: Var, loops: Sequence[Var]) -> tuple[Store, ...]:
        """The stores, in these loops of a task, outermost first, with numbers read from lists where
        they depend on one loop of open length that is run often.
        """
        rounds, often = task.extent, []
        for var in loops:
            if is_symbolic(var.extent) and estimate(rounds) >= _ROUNDS:
                often.append(var)
            rounds *= var.extent
        if not often:
            return tuple(stores)
        found = {
            part: self._read(part, var)
            for part, var in _places([store.value for store in stores], often)
        }
        if not found:
            return tuple(stores)
        return tuple(
            Store(store.buffer, store.index, replaced(store.value, found)) for store in stores
        )

    def _read(self, part: Expr, var: Var) -> Expr:
        dtype = DType.F32 if part.dtype is DType.F32 else DType.I32
        name = self._names.get((part, var))
        if name is None:
            name = self._names[part, var] = f"axis{len(self._names)}"
            # From numbers to int32 there is a vector instruction, to int64 often none.
            value = Op(part.fn, part.args, dtype) if isinstance(part, Op) else part
            place = At(name, Counter(var.name), dtype)
            self.fill += [
                LetPointer(name, SCRATCH, count(self._entries), dtype, is_written=True),
                For(var.name, count(0), count(var.extent), (Assign(place, value),), vectorise=True),
            ]
            self._entries += var.extent
        return cast(Load(name, of(var), dtype), part.dtype)


def _places(values: Sequence[Expr], often: Sequence[Var]) -> Iterator[tuple[Expr, Var]]:
    """The largest parts that round a position along one of these loops, and depend on nothing
    else.
    """
    by_name = {var.name: var for var in often}
    seen: set[Expr] = set()
    stack = list(values)
    while stack:
        part = stack.pop()
        if part in seen:
            continue
        seen.add(part)
        names = {var.name for var in part.variables()}
        if len(names) == 1 and names <= by_name.keys() and _is_place(part):
            yield part, by_name[names.pop()]
        else:
            stack.extend(operands(part))


def _is_place(part: Expr) -> bool:
    """Is it a float32, or one as an integer, that is computed by rounding, from nothing in
    memory?
    """
    if not isinstance(part, Op):
        return False
    is_index = part.fn is Fn.CAST and part.dtype is DType.I64 and part.args[0].dtype is DType.F32
    if part.dtype is not DType.F32 and not is_index:
        return False
    parts = list(walk(part))
    return all(isinstance(each, Op | Literal | Position) for each in parts) and any(
        isinstance(each, Op) and each.fn in _ROUNDING for each in parts
    )
