"""What a kernel program does, counted: arithmetic, and bytes read and written, by walking the same
statements that are rendered.

Loops count as often as they run. Where a bound or a condition depends on an outer counter, that
loop is gone through value by value; all others count once, times their iterations. A program that
takes too many steps this way, which looks at every pixel of a large image, is not counted.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from whence.errors import UnsupportedError
from whence.kernels import ir
from whence.kernels.index import Index, Quotient, Remainder, Var

_DOTS = ("dot_x", "small_dot_i32x")
"""Sums of four products."""
_DECLARATIONS = (ir.ConstantArray, ir.LetPointer, ir.ChoosePointer)
"""Do nothing, and say the same each time: names in a program are never used twice."""
_ALWAYS_THE_SAME = (
    ir.Let,
    ir.Assign,
    ir.Accumulate,
    ir.Store,
    ir.TileMultiply,
    ir.TileLoad,
    ir.TileStore,
)
_MOST_STATEMENTS = 40_000
"""That are looked at, a second's worth."""
_TILE_PRODUCTS = 16 * 16 * 32
_TILE_BYTES = 16 * 64


@dataclass(slots=True)
class Work:
    """Of all work items of a kernel."""

    operations: int = 0
    """Additions, products, comparisons and the like of single numbers; a multiply-add is two."""
    functions: int = 0
    """Exponentials and other functions that are many operations each."""
    loaded: dict[str, int] = field(default_factory=dict)
    """Bytes that loads take from each parameter, and from scratch; a byte that is loaded again
    counts again, wherever it comes from.
    """
    stored: dict[str, int] = field(default_factory=dict)

    def add(self, other: Work, times: int = 1) -> None:
        self.operations += times * other.operations
        self.functions += times * other.functions
        for mine, others in ((self.loaded, other.loaded), (self.stored, other.stored)):
            for name, size in others.items():
                mine[name] = mine.get(name, 0) + times * size

    def bytes_of(self, kernel: ir.Kernel) -> int:
        """Of the kernel's operands, what is read and what is written: a byte that is loaded again,
        or that the kernel has stored, comes from a cache.
        """
        return sum(
            min(
                each.elements * each.dtype.bits // 8,
                (self.stored if each.role is ir.Role.OUTPUT else self.loaded).get(each.name, 0),
            )
            for each in kernel.params
        )


def count_work(kernel: ir.Kernel) -> Work:
    """Raises `UnsupportedError` for a program whose course depends on the data, or that would take
    long to count.
    """
    walker = _Walker(kernel)
    return walker.statements(kernel.body)


class _Walker:
    def __init__(self, kernel: ir.Kernel) -> None:
        self._kernel = kernel
        self._counts: dict[str, int] = {}
        self._tables: dict[str, tuple[int | float, ...]] = {}
        self._roots = {param.name: param.name for param in kernel.params} | {ir.SCRATCH: ir.SCRATCH}
        self._sizes: dict[str, int] = {}
        """Of the elements that a pointer points to, in bytes."""
        self._deciding: dict[int, tuple[frozenset[str], bool]] = {}
        self._done: dict[tuple[int, tuple[int, ...]], Work] = {}
        self._bodies: dict[int, tuple[Work, list[ir.Stmt]]] = {}
        self._retained: list[object] = []
        """What ids are of stays alive."""
        self._statements = 0

    def statements(self, body: Sequence[ir.Stmt]) -> Work:
        """What does the same each time is looked at once; only the rest is gone through again."""
        found = self._bodies.get(id(body))
        total = Work()
        if found is not None:
            always, others = found
            total.add(always)
            for stmt in others:
                total.add(self._statement(stmt))
            return total
        always, others = Work(), []
        for stmt in body:
            work = self._statement(stmt)
            total.add(work)
            if isinstance(stmt, _ALWAYS_THE_SAME):
                always.add(work)
            elif not isinstance(stmt, _DECLARATIONS):
                others.append(stmt)
        self._retained.append(body)
        self._bodies[id(body)] = always, others
        return total

    def _statement(self, stmt: ir.Stmt) -> Work:
        self._statements += 1
        if self._statements > _MOST_STATEMENTS:
            raise UnsupportedError("there are too many cases to count")
        match stmt:
            case ir.Micro():
                body = stmt.program(self._kernel)
                self._retained.append(body)
                return self.statements(body)
            case ir.Loop(var, body):
                end = var.extent if stmt.end is None else self._value(stmt.end)
                return self._loop(stmt, var.name, range(end), body)
            case ir.For():
                bounds = (self._value(each) for each in (stmt.begin, stmt.end, stmt.step))
                return self._loop(stmt, stmt.counter, range(*bounds), stmt.body)
            case ir.If(condition, then, otherwise):
                return self.statements(then if self._holds(condition) else otherwise)
            case ir.Scope(body):
                return self.statements(body)
            case ir.While():
                raise UnsupportedError("how often a loop runs depends on the data")
            case ir.LetCount(name, value) | ir.SetCount(name, value):
                self._bind(name, value)
                return Work()
            case ir.ConstantArray(name, _, values, _):
                self._tables[name] = values
                return Work()
            case ir.LetPointer(name, base, _, dtype) | ir.ChoosePointer(name, _, base, _, _, dtype):
                self._roots[name] = self._roots.get(base, "")
                self._sizes[name] = dtype.numpy.itemsize
                return Work()
            case ir.Let() | ir.Assign() | ir.Accumulate() | ir.Store():
                return self._compute(stmt)
            case ir.Fill(pointer, _, elements, _):
                size = self._value(elements) * self._sizes.get(pointer, 4)
                return self._moved(pointer, size, is_stored=True)
            case ir.TileMultiply():
                return Work(operations=2 * _TILE_PRODUCTS)
            case ir.TileLoad(_, pointer, _, _):
                return self._moved(pointer, _TILE_BYTES)
            case ir.TileStore(_, pointer, _, _):
                return self._moved(pointer, _TILE_BYTES, is_stored=True)
        return Work()

    def _loop(self, stmt: ir.Stmt, counter: str, values: range, body: tuple[ir.Stmt, ...]) -> Work:
        total = Work()
        if not values:
            return total
        needed, sets_counts = self._decisions(body)
        outer = sorted((needed - {counter}) & self._counts.keys())
        key = (id(stmt), (values.start, len(values), *(self._counts[each] for each in outer)))
        if key in self._done and not sets_counts:
            return self._done[key]
        if counter not in needed and not sets_counts:
            self._counts[counter] = values[0]
            total.add(self.statements(body), len(values))
        else:
            for value in values:
                self._counts[counter] = value
                total.add(self.statements(body))
        self._done[key] = total
        return total

    # ---- arithmetic and memory ----

    def _compute(self, stmt: ir.Let | ir.Assign | ir.Accumulate | ir.Store) -> Work:
        work = self._expression(stmt.value)
        match stmt:
            case ir.Assign(ir.At(pointer, _, dtype, lanes), _):
                size = dtype.numpy.itemsize * lanes
                work.add(self._moved(pointer, size, is_stored=True))
            case ir.Accumulate(_, _, value):
                work.operations += value.lanes
            case ir.Store(buffer, _, value):
                size = self._kernel.dtype_of(buffer).numpy.itemsize * value.lanes
                work.add(Work(stored={buffer: size}))
        return work

    def _expression(self, expr: ir.Expr) -> Work:
        work = Work()
        for part in ir.walk(expr):
            match part:
                case ir.Op(fn, _, _, lanes) if fn in ir.COSTLY_FUNCTIONS:
                    work.functions += lanes
                case ir.Op(lanes=lanes):
                    work.operations += lanes
                case ir.Primitive(name, _, _, lanes) if name.startswith(_DOTS):
                    work.operations += 2 * 4 * lanes
                case ir.Load(buffer, _, dtype, lanes):
                    work.add(Work(loaded={buffer: dtype.numpy.itemsize * lanes}))
                case ir.At(pointer, _, dtype, lanes):
                    work.add(self._moved(pointer, dtype.numpy.itemsize * lanes))
        return work

    def _moved(self, pointer: str, size: int, *, is_stored: bool = False) -> Work:
        """Private arrays are left out: most of them are registers."""
        root = self._roots.get(pointer, "")
        moved = {root: size} if root else {}
        return Work(stored=moved) if is_stored else Work(loaded=moved)

    # ---- counts ----

    def _decisions(self, body: tuple[ir.Stmt, ...]) -> tuple[frozenset[str], bool]:
        """The counts that decide what a body does, and whether it sets some of them itself."""
        found = self._deciding.get(id(body))
        if found is None:
            self._retained.append(body)
            needed = frozenset(_deciding(body))
            sets = (stmt.name for stmt in _inside(body) if isinstance(stmt, ir.SetCount))
            found = self._deciding[id(body)] = needed, not needed.isdisjoint(sets)
        return found

    def _bind(self, name: str, value: ir.Count) -> None:
        """What depends on the data stays unknown, and is an error only where it decides."""
        try:
            self._counts[name] = self._value(value)
        except UnsupportedError:
            self._counts.pop(name, None)

    def _value(self, count: ir.Count) -> int:
        match count:
            case ir.Number(value):
                return value
            case ir.Counter(name):
                return self._counter(name)
            case ir.IndexCount(index):
                return self._index(index)
            case ir.Chosen(condition, then, otherwise):
                return self._value(then if self._holds(condition) else otherwise)
            case ir.ValueCount(ir.Item(array, (at,), _, _)) if array in self._tables:
                return int(self._tables[array][self._value(at)])
            case ir.Arithmetic(fn, left, right):
                return ir.RESULTS[fn](self._value(left), self._value(right))
        raise UnsupportedError("a bound depends on the data")

    def _counter(self, name: str) -> int:
        if name not in self._counts:
            raise UnsupportedError(f"'{name}' depends on the data")
        return self._counts[name]

    def _index(self, index: Index) -> int:
        total = index.const
        for atom, coefficient in index.terms:
            match atom:
                case Var(name, _):
                    value = self._counter(name)
                case Quotient(of, by):
                    value = self._index(of) // by
                case Remainder(of, by):
                    value = self._index(of) % by
                case _:
                    raise UnsupportedError("an index depends on the data")
            total += coefficient * value
        return total

    def _holds(self, condition: ir.Condition) -> bool:
        match condition:
            case ir.CountComparison(comparator, left, right):
                return _COMPARATORS[comparator](self._value(left), self._value(right))
            case ir.Both(left, right):
                return self._holds(left) and self._holds(right)
            case ir.Either(left, right):
                return self._holds(left) or self._holds(right)
            case ir.Not(of):
                return not self._holds(of)
        raise UnsupportedError("a condition depends on the data")


_COMPARATORS: Mapping[ir.Comparator, Callable[[int, int], bool]] = {
    ir.Comparator.LT: operator.lt,
    ir.Comparator.LE: operator.le,
    ir.Comparator.EQ: operator.eq,
    ir.Comparator.NE: operator.ne,
}


def _deciding(body: Sequence[ir.Stmt]) -> set[str]:
    """The counts from outside, and of it, that decide what it does."""
    needed: set[str] = set()
    for stmt in reversed(body):
        match stmt:
            case ir.LetCount(name, value) | ir.SetCount(name, value):
                if name in needed:
                    needed |= _names(value)
            case ir.For():
                needed |= _deciding(stmt.body) - {stmt.counter}
                needed |= _names(stmt.begin, stmt.end, stmt.step)
            case ir.Loop(_, inner):
                needed |= _deciding(inner) | (set() if stmt.end is None else _names(stmt.end))
            case ir.If(condition, then, otherwise):
                needed |= _names(condition) | _deciding(then) | _deciding(otherwise)
            case ir.Scope(inner):
                needed |= _deciding(inner)
            case ir.Fill(_, _, elements, _):
                needed |= _names(elements)
    return needed


def _inside(body: Sequence[ir.Stmt]) -> Iterator[ir.Stmt]:
    for stmt in body:
        yield stmt
        match stmt:
            case ir.Loop() | ir.For() | ir.Scope() | ir.While():
                yield from _inside(stmt.body)
            case ir.If(_, then, otherwise):
                yield from _inside(then)
                yield from _inside(otherwise)


def _names(*wholes: ir.Count | ir.Condition) -> set[str]:
    """The counters that they depend on."""
    names: set[str] = set()
    for whole in wholes:
        match whole:
            case ir.Counter(name):
                names.add(name)
            case ir.IndexCount(index):
                names |= {var.name for var in index.variables()}
            case ir.Arithmetic(_, left, right) | ir.CountComparison(_, left, right):
                names |= _names(left, right)
            case ir.Both(left, right) | ir.Either(left, right):
                names |= _names(left, right)
            case ir.Chosen(condition, then, otherwise):
                names |= _names(condition, then, otherwise)
            case ir.ValueCount(ir.Item(_, at, _, _)):
                names |= _names(*at)
            case ir.Not(of):
                names |= _names(of)
    return names
