"""Groups without an anchor: loop nests over the outputs, everything else pulled into their bodies.

The output is divided where that makes the inner loop plain: at the seams of a concatenation or the
borders of a padding, so that no element asks which side it is on, and dimensions into factors where
an index would be divided. Neighbouring dimensions are joined where that costs nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from whence.extent import Relation, decide, estimate, is_symbolic, surely_divides, surely_equal
from whence.graph import Ref
from whence.kernels.cost import largest_divisor
from whence.kernels.elements import Indices
from whence.kernels.group import Group
from whence.kernels.index import Index, Quotient, Remainder, Var, of, ravel
from whence.kernels.ir import (
    TASK,
    Expr,
    Kernel,
    Literal,
    Loop,
    LoopKind,
    Op,
    Stmt,
    Store,
    index_atoms,
    nested,
    replaced,
    walk,
)
from whence.kernels.loops.axis_tables import AxisTables
from whence.kernels.loops.pieces import OutputBox, breakpoints, pieces
from whence.kernels.loops.transpose import SIDE, SquareTranspose, runs_along, strided_loads

# Work items to aim for: enough for every thread to have several, few enough that none is tiny.
_TASKS = 256
# A row this long is divided when there are few of them.
_LONG = 8192
_FEW = 32
_CHUNK = 4096
# A last dimension this short fills no vector; the dimensions before it do, if they are so long.
_SHORT = 4
_LANES = 64
# Elements at equal distances that a place is found for at a time: their lines fit the nearest
# cache.
_STRIDED = 64
# A short row is cut into so many spans at most.
_SPANS = 4
# A row of so many elements at most is written out: a block of channels.
_ROW = 16


def lower_loopnest(group: Group) -> Kernel:
    """A kernel whose work items are rows of the outputs; the innermost loop runs along memory."""
    by_shape: dict[tuple[int, ...], list[Ref]] = {}
    for ref in group.outputs:
        by_shape.setdefault(group.shape(ref), []).append(ref)
    nests: list[Loop] = []
    tasks, tables = 0, AxisTables()
    for shape, refs in by_shape.items():
        for piece in pieces(group, refs, shape):
            for loop in _Nest(group, refs, shape, piece, tables).loops(tasks):
                nests.append(loop)
                tasks = loop.first + loop.var.extent
    return group.kernel(tasks, *tables.fill, *nests, scratch_bytes=tables.scratch_bytes)


class _Nest:
    """The loops over one piece of outputs of one shape."""

    def __init__(
        self,
        group: Group,
        refs: Sequence[Ref],
        shape: Sequence[int],
        piece: OutputBox,
        tables: AxisTables,
    ) -> None:
        self.group, self.refs, self.shape = group, refs, tuple(shape)
        self.tables = tables
        self.piece = self._refined(piece)
        self.blocks = self._merged()

    def loops(self, first: int) -> Iterator[Loop]:
        """The loops, the first one's tasks beginning at `first`."""
        extents = [math.prod(self._extent(place) for place in block) for block in self.blocks]
        row = self._transposed_row(extents)
        if row is None:
            along = None if self._spans(extents) else self._undivided(extents)
            yield (
                self._plain(extents, first)
                if along is None
                else self._strided(extents, *along, first)
            )
            return
        # The part in whole squares, then what is left of its rows and columns.
        whole = [
            extent // SIDE * SIDE if place in (row, len(extents) - 1) else extent
            for place, extent in enumerate(extents)
        ]
        loop = self._transposed(whole, row, first)
        yield loop
        for place, box in ((len(extents) - 1, extents), (row, [*extents[:-1], whole[-1]])):
            left = extents[place] - whole[place]
            if not surely_equal(left, 0):
                strip = [left if at == place else extent for at, extent in enumerate(box)]
                loop = self._nested(
                    strip, loop.first + loop.var.extent, begins={place: whole[place]}
                )
                yield loop

    def _plain(self, extents: list[int], first: int) -> Loop:
        if (
            len(extents) > 1
            and estimate(math.prod(extents[:-1])) < _FEW
            and not is_symbolic(extents[-1])
            and extents[-1] >= _LONG
        ):
            chunk = largest_divisor(extents[-1], _CHUNK, _CHUNK // 16 + 1)
            if chunk:
                extents[-1:] = [extents[-1] // chunk, chunk]
                return self._nested(extents, first, split_last=True)
        return self._nested(extents, first)

    def _nested(
        self,
        extents: Sequence[int],
        first: int,
        split_last: bool = False,
        begins: Mapping[int, int] | None = None,
    ) -> Loop:
        begins = begins or {}
        if len(extents) <= 1:
            # One flat loop: every element is a work item, and a worker's range is its vector loop.
            task = Var(TASK, math.prod(extents))
            return Loop(task, self._stores([of(task)]), LoopKind.VECTOR, first)
        is_short = not is_symbolic(extents[-1]) and extents[-1] <= _SHORT
        if is_short and not split_last and estimate(math.prod(extents[:-1])) >= _LANES:
            return self._unrolled(extents, first, begins)
        task, digits, inner, positions = _split(extents, len(extents) - 1)
        positions = [position + begins.get(place, 0) for place, position in enumerate(positions)]
        if split_last:
            positions[-2:] = [positions[-2] * extents[-1] + positions[-1]]
        spans = [] if split_last or begins else self._spans(extents)
        if spans:
            # One loop behind the other, in each of which loads lie side by side.
            body: tuple[Stmt, ...] = tuple(
                Loop(var, self.tables.listed(self._stores(at), task, inner), LoopKind.VECTOR)
                for begin, var in spans
                for at in [[*positions[:-1], of(var) + begin]]
            )
            body = nested(inner[:-1], body)
        else:
            stores = self.tables.listed(self._stores(positions), task, inner)
            body = nested(inner, stores, LoopKind.VECTOR)
        return Loop(task, body, LoopKind.SERIAL, first, digits=digits)

    def _spans(self, extents: Sequence[int]) -> list[tuple[int, Var]]:
        """The innermost dimension cut where a comparison of it changes its answer, or where it
        goes over into another block of what is read: begins, and the variable of a loop each.
        Empty if it need not be cut, or is worth no vectors then.
        """
        if is_symbolic(extents[-1]):
            return []
        (*_, last), values = self._by_block(extents)
        cuts = sorted({0, last.extent, *_cuts(values, last)})
        spans = [(begin, end - begin) for begin, end in itertools.pairwise(cuts)]
        if not 1 < len(spans) <= _SPANS or min(extent for _, extent in spans) < _SHORT:
            return []
        return [(begin, Var(last.name, extent)) for begin, extent in spans]

    def _unrolled(self, extents: Sequence[int], first: int, begins: Mapping[int, int]) -> Loop:
        """The last dimension written out, so that the one before it, which is longer, fills
        vectors: the channels of an image, say.
        """
        *outer, last = extents
        task, digits, inner, positions = _split(outer, max(len(outer) - 1, 1))
        at = [position + begins.get(place, 0) for place, position in enumerate(positions)]
        stores = tuple(
            store
            for place in range(last)
            for store in self._stores([*at, of(place + begins.get(len(outer), 0))])
        )
        return Loop(
            task,
            nested(inner, stores, LoopKind.VECTOR),
            LoopKind.SERIAL if inner else LoopKind.VECTOR,
            first,
            digits=digits,
        )

    # ---- places that are found by division ----

    def _undivided(self, extents: Sequence[int]) -> tuple[int, int] | None:
        """Where the innermost index is divided to find what to load, as in a shuffle of channels: a
        block that no division is made of, and how much of it to take at a time.
        """
        if len(extents) < 2 or any(map(is_symbolic, extents)):
            return None
        variables, values = self._by_block(extents)
        divided = [of(atom) for atom in index_atoms(*values) if not isinstance(atom, Var)]
        if not any(each.depends_on(variables[-1]) for each in divided):
            return None
        for place in reversed(range(len(extents) - 1)):
            if not any(each.depends_on(variables[place]) for each in divided):
                chunk = largest_divisor(extents[place], _STRIDED, _STRIDED // 4 + 1)
                return (place, chunk) if chunk else None
        return None

    def _strided(self, extents: Sequence[int], along: int, chunk: int, first: int) -> Loop:
        """The nest with `chunk` of the block `along` innermost: places are found once for so many
        elements, which lie at equal distances. A short row is written out, so that what lies side
        by side is loaded together.
        """
        last = len(extents) - 1
        others = [extent for place, extent in enumerate(extents[:-1]) if place != along]
        counts = [*others, extents[along] // chunk, extents[last], chunk]
        task, digits, inner, positions = _split(counts, len(others) + 1)
        at = [*positions[: len(others)], positions[-2]]
        at.insert(along, positions[-3] * chunk + positions[-1])
        *outer, across, within = inner
        body: tuple[Stmt, ...]
        if across.extent <= _ROW:
            stores = (
                store
                for lane in range(across.extent)
                for store in self._stores([*at[:-1], of(lane)])
            )
            body = (Loop(within, tuple(stores), LoopKind.INDEPENDENT),)
        else:
            # Independent loops: a device deals out the one along memory.
            body = (Loop(across, (Loop(within, self._stores(at)),), LoopKind.VECTOR),)
        return Loop(task, nested(outer, body), LoopKind.SERIAL, first, digits=digits)

    # ---- squares ----

    def _transposed_row(self, extents: Sequence[int]) -> int | None:
        """The block along which loads run that stride through memory along the innermost one."""
        if len(extents) < 2 or estimate(extents[-1]) < SIDE:
            return None
        variables, values = self._by_block(extents)
        loads = strided_loads(values, variables[-1])
        rows = [
            place
            for place in range(len(extents) - 1)
            if estimate(extents[place]) >= SIDE
            and any(runs_along(load, variables[place]) for load in loads)
        ]
        return rows[-1] if rows else None

    def _transposed(self, extents: Sequence[int], row: int, first: int) -> Loop:
        """The nest over whole squares of the block `row` and the innermost one."""
        last = len(extents) - 1
        order = [place for place in range(last) if place != row] + [row, last]
        counts = [extents[place] // (SIDE if place in (row, last) else 1) for place in order]
        task, digits, inner, positions = _split(counts, len(counts))
        along, across = Var("along", SIDE), Var("across", SIDE)
        at = dict(zip(order, positions, strict=True))
        at[row] = at[row] * SIDE + of(along)
        at[last] = at[last] * SIDE + of(across)
        stores = self._stores([at[place] for place in range(len(extents))])
        loads = [
            load
            for load in strided_loads([store.value for store in stores], across)
            if runs_along(load, along)
        ]
        transposes = {
            load: SquareTranspose(f"square{number}", load.buffer, load.index, along, across)
            for number, load in enumerate(loads)
        }
        elements: dict[Expr, Expr] = {
            load: transpose.element for load, transpose in transposes.items()
        }
        body = tuple(
            Store(store.buffer, store.index, replaced(store.value, elements)) for store in stores
        )
        squares = (*transposes.values(), *nested([along, across], body, LoopKind.VECTOR))
        return Loop(task, nested(inner, squares), LoopKind.SERIAL, first, digits=digits)

    # ---- where an element lies ----

    def _places(self) -> list[tuple[int, int]]:
        """Every factor of every dimension, outermost first."""
        return [
            (axis, number)
            for axis, factors in enumerate(self.piece.factors)
            for number in range(len(factors))
        ]

    def _extent(self, place: tuple[int, int]) -> int:
        return self.piece.factors[place[0]][place[1]]

    def _index(self, at: Mapping[tuple[int, int], Index]) -> Indices:
        """The output's index, from the position in each factor."""
        index = []
        for axis, factors in enumerate(self.piece.factors):
            total = of(0)
            for number, extent in enumerate(factors):
                total = total * extent + at[axis, number]
            index.append(total + self.piece.begins[axis])
        return tuple(index)

    def _blocked_index(
        self, blocks: Sequence[Sequence[tuple[int, int]]], positions: Sequence[Index]
    ) -> Indices:
        at: dict[tuple[int, int], Index] = {}
        for block, position in zip(blocks, positions, strict=True):
            rest = position
            for place in reversed(block[1:]):
                rest, at[place] = divmod(rest, self._extent(place))
            if block:
                at[block[0]] = rest
        return self._index(at)

    def _by_block(self, extents: Sequence[int]) -> tuple[list[Var], list[Expr]]:
        """A variable for each block, and the values of the element that they name."""
        variables = [Var(f"b{number}", extent) for number, extent in enumerate(extents)]
        positions = [of(var) for var in variables]
        return variables, self._values(self._blocked_index(self.blocks, positions))

    def _values(self, index: Indices) -> list[Expr]:
        elements = self.group.elements()
        return [elements.value(ref, index) for ref in self.refs]

    def _stores(self, positions: Sequence[Index]) -> tuple[Store, ...]:
        index = self._blocked_index(self.blocks, positions)
        flat = ravel(index, self.shape)
        numbers = {ref: number for number, ref in enumerate(self.group.outputs)}
        return tuple(
            Store(f"out{numbers[ref]}", flat, value)
            for ref, value in zip(self.refs, self._values(index), strict=True)
        )

    # ---- factors and blocks ----

    def _refined(self, piece: OutputBox) -> OutputBox:
        """Dimensions divided into factors as long as that removes a division from a load's
        index.
        """
        self.piece = piece
        while True:
            places = self._places()
            variables = {
                place: Var(f"f{place[0]}_{place[1]}", self._extent(place)) for place in places
            }
            values = self._values(self._index({place: of(var) for place, var in variables.items()}))
            by_name = {var.name: place for place, var in variables.items()}
            split = next(
                (
                    found
                    for found in _divisors(values, by_name)
                    if surely_divides(found[1], self._extent(found[0]))
                ),
                None,
            )
            if split is None:
                return self.piece
            (axis, number), by = split
            factors = list(self.piece.factors[axis])
            factors[number : number + 1] = [factors[number] // by, by]
            every = list(self.piece.factors)
            every[axis] = tuple(factors)
            self.piece = OutputBox(piece.begins, tuple(every))

    def _merged(self) -> list[list[tuple[int, int]]]:
        """Neighbouring factors joined into one loop wherever that costs no division, single ones
        dropped.

        An elementwise group over equal shapes becomes a single flat loop; a broadcast along one
        dimension, two or three loops.
        """
        blocks = [[place] for place in self._places()]
        if not blocks:
            return [[]]
        allowed = self._divisions(blocks)
        for place in range(len(blocks) - 1, 0, -1):
            trial = [*blocks[: place - 1], blocks[place - 1] + blocks[place], *blocks[place + 1 :]]
            if self._divisions(trial) <= allowed:
                blocks = trial
        return blocks

    def _divisions(self, blocks: Sequence[Sequence[tuple[int, int]]]) -> int:
        """How many quotients and remainders loads and stores need when factors are merged like
        this.
        """
        positions = [
            of(Var(f"b{number}", math.prod(self._extent(place) for place in block)))
            for number, block in enumerate(blocks)
        ]
        index = self._blocked_index(blocks, positions)
        indices = [
            part.index
            for part in walk(*self._values(index))
            if not isinstance(part, Op | Literal) and hasattr(part, "index")
        ]
        return sum(
            isinstance(atom, Quotient | Remainder)
            for each in (*indices, ravel(index, self.shape))
            for atom, _ in each.terms
        )


def _split(
    extents: Sequence[int], most: int
) -> tuple[Var, tuple[Var, ...], list[Var], list[Index]]:
    """The task that counts the outermost of nested loops, at most `most` of them, with their
    variables where they are counted too, the loops left, and the position in each.
    """
    count = 1
    while count < most and estimate(math.prod(extents[:count])) < _TASKS:
        count += 1
    task = Var(TASK, math.prod(extents[:count]))
    variables = [Var(f"i{place}", extent) for place, extent in enumerate(extents)]
    inner = variables[count:]
    # The processor divides by numbers that the compiler does not know in tens of cycles.
    digits = tuple(variables[:count]) if any(map(is_symbolic, extents[1:count])) else ()
    outer: list[Index] = [of(var) for var in digits]
    if not digits:
        rest = of(task)
        for extent in reversed(extents[1:count]):
            rest, digit = divmod(rest, extent)
            outer.insert(0, digit)
        outer.insert(0, rest)
    return task, digits, inner, [*outer, *(of(var) for var in inner)]


def _cuts(values: Sequence[Expr], var: Var) -> Iterator[int]:
    """The values of a variable, within its range, from which on a comparison gives another answer,
    or a quotient of it and a number is one more.
    """
    for part in walk(*values):
        for variable, place in breakpoints(part):
            if variable == var and 0 < place < var.extent:
                yield place
    for atom in index_atoms(*values):
        if isinstance(atom, Quotient | Remainder) and atom.of.variables() == {var}:
            shift, by = atom.of.const, atom.by
            if not is_symbolic(by) and atom.of.is_affine() and atom.of.coefficient(var) == 1:
                yield from range(by - shift % by, var.extent, by)


def _divisors(
    values: Sequence[Expr], variables: Mapping[str, tuple[int, int]]
) -> Iterator[tuple[tuple[int, int], int]]:
    """The variables that are divided by a number on their own, and the number."""
    for atom in index_atoms(*values):
        if (
            isinstance(atom, Quotient | Remainder)
            and surely_equal(atom.of.const, 0)
            and len(atom.of.terms) == 1
        ):
            ((var, coefficient),) = atom.of.terms
            if (
                isinstance(var, Var)
                and surely_equal(coefficient, 1)
                and var.name in variables
                and decide(1, Relation.LT, atom.by)
                # What divides an open size may be all of it: then the outer factor is 1.
                and (is_symbolic(var.extent) or decide(atom.by, Relation.LT, var.extent))
            ):
                yield variables[var.name], atom.by
