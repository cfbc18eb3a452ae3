"""Building micro-kernels: statements in the order of the algorithm, values with operators.

    build = Builder()
    with build.tasks(kernel.tasks) as task:
        row = build.count("row", task % 8)
        x = build.pointer("x", build.buffer("in0", DType.F32), row * 64)
        total = build.variable("total", zeros(8))
        with build.loop("k", 64, step=8) as k:
            build.assign(total, total + x.vector(k, 8))

Every name is the program's own: what two parts of a micro-kernel share is handed over as a value,
not by agreeing on how it is spelled, and a name that is taken where it would be seen gets a number.
The exceptions are the variables of expressions that the group was pulled into (`Store`,
`IndexCount`), which are bound under exactly the variables' names (`bind`, `bind_value`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

from whence.kernels import ir
from whence.kernels.index import Index, Var
from whence.kernels.size_arguments import SizeArguments
from whence.machine import CACHE_LINE
from whence.types import DType

_RESERVED = (ir.TASK, ir.SCRATCH, ir.SHARED, ir.BEGIN, ir.END, "buf")
"""What the function around every program has names for."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """A pointer to elements of one type: a parameter, scratch memory, or one made from another."""

    name: str
    dtype: DType

    def __getitem__(self, offset: ir.Countable) -> ir.At:
        return ir.At(self.name, ir.count(offset), self.dtype)

    def vector(self, offset: ir.Countable, lanes: int) -> ir.At:
        """So many elements from there on."""
        return ir.At(self.name, ir.count(offset), self.dtype, lanes)


@dataclass(frozen=True, slots=True)
class Memory:
    """An array: of elements, or with lanes a register tile, an array of vectors."""

    name: str
    dtype: DType
    lanes: int

    def __getitem__(self, at: ir.Countable | tuple[ir.Countable, ...]) -> ir.Item:
        places = at if isinstance(at, tuple) else (at,)
        return ir.Item(
            self.name, tuple(ir.count(place) for place in places), self.dtype, self.lanes
        )

    @property
    def pointer(self) -> Pointer:
        """To its first element."""
        return Pointer(self.name, self.dtype)

    def vector(self, offset: ir.Countable, lanes: int) -> ir.At:
        """So many elements of an array with one extent, from there on."""
        return ir.At(self.name, ir.count(offset), self.dtype, lanes)


class Builder:
    """Statements so far. Loops and branches are `with` blocks."""

    def __init__(self, reserved: Iterable[str] = (), sizes: SizeArguments | None = None) -> None:
        """`reserved` are names that statements around the program have taken; `sizes` collects what
        becomes an argument.
        """
        self._sizes = sizes
        self._open: list[list[ir.Stmt]] = [[]]
        self._names: list[set[str]] = [{*_RESERVED, *reserved}]

    def size(self, size: int) -> int:
        """A size that the code need not know: an argument of the kernel, if it has any."""
        return size if self._sizes is None else self._sizes.argument(size)

    def finish(self) -> tuple[ir.Stmt, ...]:
        (statements,) = self._open
        return tuple(statements)

    def add(self, *statements: ir.Stmt) -> None:
        self._open[-1].extend(statements)

    @contextmanager
    def _inside(self) -> Iterator[list[ir.Stmt]]:
        body: list[ir.Stmt] = []
        self._open.append(body)
        self._names.append(set())
        yield body
        self._names.pop()
        assert self._open.pop() is body

    def _name(self, stem: str) -> str:
        """A name that hides none: the stem, or with a number behind it."""
        name, number = stem, 1
        while any(name in seen for seen in self._names):
            number += 1
            name = f"{stem}_{number}"
        self._names[-1].add(name)
        return name

    # ---- control ----

    @contextmanager
    def tasks(self, tasks: int) -> Iterator[ir.Count]:
        """The loop over the work items that this call of the kernel is for."""
        with self._inside() as body:
            yield ir.Counter(ir.TASK)
        self.add(ir.Loop(Var(ir.TASK, tasks), tuple(body)))

    def grid(
        self, groups: tuple[int, int, int], items: tuple[int, int, int]
    ) -> tuple[tuple[ir.Count, ...], tuple[ir.Count, ...]]:
        """A device's work items: the numbers of the group, and of the work item in its group."""
        x, y, z = (self._name(f"group_{axis}") for axis in "xyz")
        i, j, k = (self._name(f"item_{axis}") for axis in "xyz")
        self.add(ir.Grid(groups, items, (x, y, z), (i, j, k)))
        return (ir.Counter(x), ir.Counter(y), ir.Counter(z)), (
            ir.Counter(i),
            ir.Counter(j),
            ir.Counter(k),
        )

    def barrier(self) -> None:
        """No work item of a group goes on before all are here."""
        self.add(ir.Barrier())

    @contextmanager
    def loop(
        self,
        name: str,
        end: ir.Countable,
        *,
        begin: ir.Countable = 0,
        step: ir.Countable = 1,
        unroll: int = 0,
        vectorise: bool = False,
        shared: bool = False,
    ) -> Iterator[ir.Count]:
        """Of a `shared` one, the workers of the kernel take the iterations one by one. What it
        makes for the others lies in `SHARED` memory.
        """
        with self._inside() as body:
            name = self._name(name)
            yield ir.Counter(name)
        first, behind, by = map(ir.count, (begin, end, step))
        self.add(ir.For(name, first, behind, tuple(body), by, unroll, vectorise, shared))

    @contextmanager
    def unrolled(self, *extents: tuple[str, int]) -> Iterator[tuple[ir.Count, ...]]:
        """Nested loops that are written out, over registers."""
        with ExitStack() as loops:
            yield tuple(
                loops.enter_context(self.loop(name, extent, unroll=0 if level else ir.FULLY))
                for level, (name, extent) in enumerate(extents)
            )

    @contextmanager
    def _block(self, make: Callable[[tuple[ir.Stmt, ...]], ir.Stmt]) -> Iterator[None]:
        """What is built inside becomes the body of a statement."""
        with self._inside() as body:
            yield
        self.add(make(tuple(body)))

    def repeat(self, condition: ir.Condition) -> AbstractContextManager[None]:
        """As long as the condition holds."""
        return self._block(partial(ir.While, condition))

    def when(self, condition: ir.Condition) -> AbstractContextManager[None]:
        return self._block(partial(ir.If, condition))

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """What happens instead, right after `when`."""
        with self._inside() as body:
            yield
        branch = self._open[-1].pop()
        assert isinstance(branch, ir.If)
        assert not branch.otherwise
        self.add(ir.If(branch.condition, branch.then, tuple(body)))

    def scope(self) -> AbstractContextManager[None]:
        return self._block(ir.Scope)

    # ---- names ----

    def bind(self, name: str, value: ir.Countable) -> ir.Count:
        """A variable of the group's expressions."""
        assert self._name(name) == name
        self.add(ir.LetCount(name, ir.count(value)))
        return ir.Counter(name)

    def bind_value(self, name: str, value: ir.Expr) -> ir.Name:
        """A name of the group's expressions, such as the accumulator."""
        assert self._name(name) == name
        self.add(ir.Let(name, value))
        return ir.Name(name, value.dtype, value.lanes)

    def count(self, name: str, value: ir.Countable | Index) -> ir.Count:
        name = self._name(name)
        self.add(ir.LetCount(name, ir.count(value)))
        return ir.Counter(name)

    def count_variable(self, name: str, value: ir.Countable) -> ir.Count:
        """A count that `set` changes."""
        name = self._name(name)
        self.add(ir.LetCount(name, ir.count(value), is_variable=True))
        return ir.Counter(name)

    def set(self, variable: ir.Count, value: ir.Countable) -> None:
        assert isinstance(variable, ir.Counter)
        self.add(ir.SetCount(variable.name, ir.count(value)))

    def let(self, name: str, value: ir.Expr) -> ir.Name:
        name = self._name(name)
        self.add(ir.Let(name, value))
        return ir.Name(name, value.dtype, value.lanes)

    def variable(self, name: str, value: ir.Expr) -> ir.Name:
        name = self._name(name)
        self.add(ir.Let(name, value, is_variable=True))
        return ir.Name(name, value.dtype, value.lanes)

    # ---- memory ----

    def buffer(self, name: str, dtype: DType = DType.F32) -> Pointer:
        """A parameter of the kernel."""
        return Pointer(name, dtype)

    def scratch(
        self, name: str, dtype: DType = DType.F32, offset: ir.Countable = 0, *, alone: bool = True
    ) -> Pointer:
        """A pointer into the worker's private memory, so many elements behind its start."""
        return self.pointer(name, Pointer(ir.SCRATCH, dtype), offset, written=True, alone=alone)

    def memory(self, name: str, base: str, dtype: DType, offset: int) -> Pointer:
        """A pointer into `SCRATCH` or `SHARED` memory that may change places with another."""
        memory = Pointer(base, dtype)
        return self.pointer(name, memory, offset, written=True, alone=False)

    def pointer(
        self,
        name: str,
        base: Pointer | Memory,
        offset: ir.Countable | Index = 0,
        *,
        written: bool = False,
        alone: bool = True,
    ) -> Pointer:
        name = self._name(name)
        self.add(ir.LetPointer(name, base.name, ir.count(offset), base.dtype, written, alone))
        return Pointer(name, base.dtype)

    def choose_pointer(
        self,
        name: str,
        condition: ir.Condition,
        base: Pointer,
        offset: ir.Countable,
        otherwise: Pointer,
    ) -> Pointer:
        name = self._name(name)
        place = (base.name, ir.count(offset), otherwise.name)
        self.add(ir.ChoosePointer(name, condition, *place, base.dtype))
        return Pointer(name, base.dtype)

    def table(self, name: str, buffer: str) -> str:
        """A table of 256 bytes to look up in."""
        name = self._name(name)
        self.add(ir.LetTable(name, buffer))
        return name

    def advance(self, pointer: Pointer, by: ir.Countable) -> None:
        self.add(ir.Advance(pointer.name, ir.count(by)))

    def array(
        self, name: str, *shape: int, dtype: DType = DType.F32, lanes: int = 1, shared: bool = False
    ) -> Memory:
        name = self._name(name)
        self.add(ir.Array(name, shape, dtype, lanes, shared))
        return Memory(name, dtype, lanes)

    def sums(self, *shape: int, lanes: int) -> Memory:
        """A register tile of zeros, of one or two extents, to add to."""
        made = self.array("sum", *shape, lanes=lanes)
        with self.unrolled(*zip("ij", shape, strict=False)) as at:
            self.assign(made[at], zeros(lanes))
        return made

    def constants(
        self, name: str, values: Sequence[int | float], dtype: DType, *shape: int
    ) -> Memory:
        name = self._name(name)
        self.add(ir.ConstantArray(name, shape or (len(values),), tuple(values), dtype))
        return Memory(name, dtype, 1)

    def assign(self, place: ir.Place, value: ir.Expr) -> None:
        self.add(ir.Assign(place, value))

    def accumulate(self, place: ir.Place, value: ir.Expr) -> None:
        self.add(ir.Assign(place, place + value))

    def store(self, buffer: str, index: Index, value: ir.Expr) -> None:
        """An element of a parameter, as the group's expressions say."""
        self.add(ir.Store(buffer, index, value))

    def prefetch(
        self, pointer: Pointer, offset: ir.Countable = 0, *, nearest: bool = False
    ) -> None:
        self.add(ir.Prefetch(pointer.name, ir.count(offset), nearest))

    def fill(
        self,
        pointer: Pointer,
        offset: ir.Countable,
        elements: ir.Countable,
        byte: ir.Expr | None = None,
    ) -> None:
        """Set elements to a byte, 0 unless told."""
        self.add(
            ir.Fill(
                pointer.name, ir.count(offset), ir.count(elements), byte or ir.Literal(0, DType.I32)
            )
        )

    def transpose(self, square: Memory) -> None:
        self.add(ir.Transpose(square.name, square.dtype, square.lanes))


def zeros(lanes: int, dtype: DType = DType.F32) -> ir.Expr:
    return splat(0, lanes, dtype)


def splat(value: float | ir.Expr, lanes: int, dtype: DType = DType.F32) -> ir.Expr:
    """A number or a scalar in every lane."""
    scalar = ir.Literal(value, dtype) if isinstance(value, int | float) else value
    return ir.Splat(scalar, lanes)


def prefetch_lines(build: Builder, ahead: Pointer, lines: int, *, unroll: int = 0) -> None:
    """Prefetch so many cache lines of the weights, and go on by as many."""
    with build.loop("j", lines, unroll=unroll) as j:
        build.prefetch(ahead, j * (CACHE_LINE // 4))
    build.advance(ahead, lines * CACHE_LINE // 4)
