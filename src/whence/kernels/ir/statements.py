"""The statements of kernel programs.

Loop nests (`Loop`, `Let`, `Accumulator`, `Accumulate`, `Store`) say what is computed and which
iterations are independent; renderers divide them as their machine likes. Micro-kernels say how: the
statements below them name registers, pointers, prefetches and barriers, and are built with
`kernels/builder.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from whence.errors import UnsupportedError
from whence.kernels.index import Index, Var
from whence.kernels.ir.counts import ONE, Condition, Count, Counter
from whence.kernels.ir.functions import Fn
from whence.kernels.ir.matrix_tiles import MatrixTileStmt
from whence.kernels.ir.values import Expr, Item, Literal, Name, Place
from whence.types import DType

if TYPE_CHECKING:
    from whence.kernels.ir.kernel import Kernel
    from whence.kernels.ir.slices import Slices
    from whence.kernels.size_arguments import SizeArguments


class LoopKind(enum.Enum):
    SERIAL = "serial"
    VECTOR = "vector"
    """Iterations are independent and touch memory in order: the renderer asks the compiler to
    vectorise.
    """
    INDEPENDENT = "independent"
    """Iterations are independent, and each fills vectors by itself: a device deals them out."""
    REDUCE = "reduce"
    """Iterations only feed accumulators, whose order of summation may change."""


@dataclass(frozen=True, slots=True)
class Loop:
    """`for var in 0 .. extent-1`. The extent of a loop over a slice of the tasks is given by the
    renderer.
    """

    var: Var
    body: tuple[Stmt, ...]
    kind: LoopKind = LoopKind.SERIAL
    first: int = 0
    """For a loop over tasks: the work item that is this loop's number 0. A kernel may have several
    such loops, one after the other.
    """
    end: Count | None = None
    """Where it ends, if that is known only at run time; never beyond the variable's extent."""
    digits: tuple[Var, ...] = ()
    """For a loop over tasks: the variables of nested loops, outermost first, that the task counts
    together. They are counted on with it, where finding them by division would be slow.
    """


def nested(
    loops: Sequence[Var], body: tuple[Stmt, ...], innermost: LoopKind = LoopKind.SERIAL
) -> tuple[Stmt, ...]:
    """The body inside a loop over each variable, the first outermost, the last of this kind."""
    kind = innermost
    for var in reversed(loops):
        body, kind = (Loop(var, body, kind),), LoopKind.SERIAL
    return body


@dataclass(frozen=True, slots=True)
class Let:
    """Bind a name to a value; with `is_variable`, one that changes."""

    name: str
    value: Expr
    is_variable: bool = False


@dataclass(frozen=True, slots=True)
class Accumulator:
    """A running value, started here. With `lanes`, an array of them, one for each value of that
    variable.
    """

    name: str
    start: Literal
    lanes: Var | None = None

    @property
    def value(self) -> Name | Item:
        """What it is so far; with lanes, the one of the lane at hand."""
        if self.lanes is None:
            return Name(self.name, self.start.dtype)
        return Item(self.name, (Counter(self.lanes.name),), self.start.dtype)


@dataclass(frozen=True, slots=True)
class Accumulate:
    """`name = fn(name, value)`; for an accumulator with lanes, at the lane of its variable."""

    name: str
    fn: Fn
    value: Expr
    lane: Var | None = None


@dataclass(frozen=True, slots=True)
class Store:
    buffer: str
    index: Index
    value: Expr


class Micro:
    """A family of micro-kernels: what is to be computed and how it is divided. `program` says what
    that means, statement by statement.
    """

    __slots__ = ()

    @property
    def slices(self) -> Slices | None:
        """Its work items by rows of the image; `None` where they are not."""
        return None

    def program(self, kernel: Kernel) -> tuple[Stmt, ...]:
        """The statements it stands for, in a kernel with these parameters."""
        raise UnsupportedError(f"{type(self).__name__} has no program")

    def shared_program(self, kernel: Kernel, sizes: SizeArguments) -> tuple[Stmt, ...] | None:
        """The same with incidental sizes as arguments, so that kernels which differ only in them
        share a function; `None` where the family has no such form.
        """
        return None

    def device_program(self, kernel: Kernel) -> tuple[Stmt, ...]:
        """The same for devices with many small workers and no vectors, where that is another."""
        return self.program(kernel)


@dataclass(frozen=True, slots=True)
class Grid:
    """A device's work items: so many groups in each of three dimensions, each of so many work
    items. Binds the counters of the group, and of the work item in its group.
    """

    groups: tuple[int, int, int]
    items: tuple[int, int, int]
    group: tuple[str, str, str]
    item: tuple[str, str, str]


FULLY = -1
"""As the number of copies of a loop's body: as many as it has iterations."""


@dataclass(frozen=True, slots=True)
class For:
    """`for counter in begin .. end-1` by `step`."""

    counter: str
    begin: Count
    end: Count
    body: tuple[Stmt, ...]
    step: Count = ONE
    unroll: int = 0
    """Copies of the body: 1 for no more than one, `FULLY`; 0 leaves it to the compiler."""
    vectorise: bool = False
    """Iterations are independent and touch memory in order."""
    shared: bool = False
    """The workers of a kernel take iterations, from 0 on, one by one; none goes on before all are
    done. Each kernel may have one such loop, before its work items.
    """


@dataclass(frozen=True, slots=True)
class While:
    condition: Condition
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class If:
    condition: Condition
    then: tuple[Stmt, ...]
    otherwise: tuple[Stmt, ...] = ()


@dataclass(frozen=True, slots=True)
class Scope:
    """Statements whose names nobody outside sees."""

    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class LetCount:
    """Bind a name to a count; with `is_variable`, one that changes."""

    name: str
    value: Count
    is_variable: bool = False


@dataclass(frozen=True, slots=True)
class SetCount:
    name: str
    value: Count


@dataclass(frozen=True, slots=True)
class Assign:
    place: Place
    value: Expr


@dataclass(frozen=True, slots=True)
class Array:
    """Private memory of these extents; with lanes, a register tile: an array of vectors."""

    name: str
    shape: tuple[int, ...]
    dtype: DType = DType.F32
    lanes: int = 1
    is_shared: bool = False
    """One for all work items of a group (`Grid`), not private."""


@dataclass(frozen=True, slots=True)
class ConstantArray:
    """Numbers that are part of the code, as an array."""

    name: str
    shape: tuple[int, ...]
    values: tuple[int | float, ...]
    dtype: DType


SCRATCH = "scratch"
"""The private memory of a worker, as what a pointer points into."""
SHARED = "shared"
"""The memory that all workers of a kernel share, where they work together."""
BEGIN, END = "begin", "end"
"""The counters of the work items that a call of the kernel is for: from, to."""


@dataclass(frozen=True, slots=True)
class LetPointer:
    """A pointer into what another pointer, a parameter, an array or `SCRATCH` points to. The offset
    is in elements of `dtype`.
    """

    name: str
    base: str
    offset: Count
    dtype: DType
    is_written: bool = False
    is_alone: bool = True
    """Nothing that it points to is reached through another pointer while it is in use."""


@dataclass(frozen=True, slots=True)
class ChoosePointer:
    """A pointer to `base + offset` where the condition holds, else to what `otherwise` points
    to.
    """

    name: str
    condition: Condition
    base: str
    offset: Count
    otherwise: str
    dtype: DType


@dataclass(frozen=True, slots=True)
class LetTable:
    """A table of 256 bytes in a parameter, made ready to be looked up in (`LookUp`)."""

    name: str
    buffer: str


@dataclass(frozen=True, slots=True)
class Advance:
    """Move a pointer on by so many elements."""

    pointer: str
    by: Count


@dataclass(frozen=True, slots=True)
class Swap:
    """Two pointers change places."""

    one: str
    other: str


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Ask for the cache line at an address, to be near in the second-level cache."""

    pointer: str
    offset: Count
    nearest: bool = False
    """Into the first-level cache, to stay there."""


@dataclass(frozen=True, slots=True)
class Fill:
    """Set so many elements to a byte, repeated; `byte` is a number or an integer value."""

    pointer: str
    offset: Count
    elements: Count
    byte: Expr


@dataclass(frozen=True, slots=True)
class Transpose:
    """A square of registers, transposed: an array of as many vectors as each has lanes."""

    array: str
    dtype: DType
    lanes: int


class BarrierScope(enum.StrEnum):
    GROUP = "group"
    WORKERS = "workers"


@dataclass(frozen=True, slots=True)
class Barrier:
    """Nobody goes on before all are here: the work items of a group, or all workers of a kernel."""

    scope: BarrierScope = BarrierScope.GROUP


Stmt: TypeAlias = (
    Loop
    | Let
    | Accumulator
    | Accumulate
    | Store
    | Micro
    | Grid
    | For
    | While
    | If
    | Scope
    | LetCount
    | SetCount
    | Assign
    | Array
    | ConstantArray
    | LetPointer
    | ChoosePointer
    | LetTable
    | Advance
    | Swap
    | Prefetch
    | Fill
    | Transpose
    | Barrier
    | MatrixTileStmt
)
