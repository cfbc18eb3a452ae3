"""Sums of products tiled through memory that a group of work items shares: the loop of matrix
products and convolutions.

A group of 8 × 8 work items makes a tile of results, each work item several neighbouring columns of
several rows. Step by step the group copies a few steps of both operands into shared memory, where
every value is then read by eight work items.
"""

from __future__ import annotations

from collections.abc import Callable

from whence.kernels.builder import Builder, Memory, splat
from whence.kernels.ir import Count, Literal, Name, Splat
from whence.types import DType

_DEPTH = 16
_ITEMS = 8
_PAD = 4
"""Between rows of a tile, so that they do not lie in the same banks of memory; a multiple of a
vector.
"""

Read = Callable[[Name, Count, Count], None]
"""Assigns an operand's value to a variable: the left one's at (row, step), the right one's at
(step, column), both inside their extents.
"""


class TiledProduct:
    """The whole kernel, so many products in a batch; `group` is the number in the batch."""

    def __init__(
        self,
        build: Builder,
        rows: int,
        columns: int,
        depth: int,
        batch: int,
        dtype: DType = DType.F32,
    ) -> None:
        self._build, self._dtype = build, dtype
        self._rows, self._columns, self._depth = rows, columns, depth
        self._tall, self._wide = _each(rows), _each(columns)
        height, width = self._tall * _ITEMS, self._wide * _ITEMS
        groups = (-(-columns // width), -(-rows // height), batch)
        (across, down, self.group), (self._x, self._y, _) = build.grid(groups, (_ITEMS, _ITEMS, 1))
        self._n0 = build.count("n0", across * width)
        self._m0 = build.count("m0", down * height)

    def run(self, left: Read, right: Read, store: Callable[[Count, Count], None]) -> None:
        """`store` uses the sum, which is bound as `acc`, of a row and a column."""
        build, tall, wide = self._build, self._tall, self._wide
        height, width = tall * _ITEMS + _PAD, wide * _ITEMS + _PAD
        a = build.array("left", _DEPTH * height, dtype=self._dtype, shared=True)
        b = build.array("right", _DEPTH * width, dtype=self._dtype, shared=True)
        sums = build.array("sum", tall, dtype=self._dtype, lanes=wide)
        for i in range(tall):
            build.assign(sums[i], splat(0, wide, self._dtype))
        with build.loop("k0", self._depth, step=_DEPTH) as k0:
            self._copy(a, tall * _ITEMS, self._m0, self._rows, k0, left, by_depth=True)
            self._copy(b, wide * _ITEMS, self._n0, self._columns, k0, right, by_depth=False)
            build.barrier()
            with build.loop("k", _DEPTH) as k:
                row = build.let("row", b.vector(k * width + self._x * wide, wide))
                for i in range(tall):
                    value = a[k * height + self._y * tall + i]
                    build.accumulate(sums[i], Splat(value, wide) * row)
            build.barrier()
        made = build.array("made", tall * wide, dtype=self._dtype)
        for i in range(tall):
            build.assign(made.vector(i * wide, wide), sums[i])
        with build.loop("i", tall) as at, build.loop("j", wide) as j:
            m = build.count("row", self._m0 + self._y * tall + at)
            n = build.count("column", self._n0 + self._x * wide + j)
            with build.when((m < self._rows) & (n < self._columns)):
                build.bind_value("acc", made[at * wide + j])
                store(m, n)

    def _copy(
        self,
        to: Memory,
        extent: int,
        first: Count,
        inside: int,
        k0: Count,
        read: Read,
        *,
        by_depth: bool,
    ) -> None:
        """Rows of the left operand lie along its depth, those of the right one along its columns:
        neighbours read neighbours.
        """
        build, item = self._build, self._y * _ITEMS + self._x
        with build.loop("e", extent * _DEPTH, begin=item, step=_ITEMS * _ITEMS) as e:
            place = build.count("place", e // _DEPTH if by_depth else e % extent)
            step = build.count("step", e % _DEPTH if by_depth else e // extent)
            along, k = build.count("along", first + place), build.count("k", k0 + step)
            value = build.variable("value", Literal(0, self._dtype))
            with build.when((along < inside) & (k < self._depth)):
                read(value, *((along, k) if by_depth else (k, along)))
            build.assign(to[step * (extent + _PAD) + place], value)


def _each(extent: int) -> int:
    """How many rows or columns a work item makes: as many as there are for it, eight at most."""
    return next((each for each in (2, 4) if extent <= each * _ITEMS), 8)
