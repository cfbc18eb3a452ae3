"""Epilogues of integer kernels: what is stored for a tile of int32 sums.

The sums lie in memory for it, and everything that is the same for all rows of a tile (factors,
shifts, biases) is loaded before the loop over them: stores of bytes might change anything, as far
as a compiler knows, so it would load them again for every row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whence.kernels.builder import Builder, Memory
from whence.kernels.conv.epilogue import Sums
from whence.kernels.index import Var
from whence.kernels.ir import Count, Kernel, Name, Store
from whence.kernels.vectorise import Vectoriser
from whence.types import DType

BATCH, ROW, COLUMN = "batch", "m", "n"
"""The variables of an epilogue."""
ACCUMULATOR = Name("acc", DType.I32)


@dataclass(frozen=True, slots=True)
class IntegerEpilogue:
    """What to store for a tile of some neighbouring rows times some vectors of columns."""

    outputs: tuple[Store, ...]
    columns: int
    lanes: int
    rows: int
    first_row: Count
    """The number of the tile's first row."""

    def store(self, build: Builder, kernel: Kernel, starts: Sequence[Count], sums: Sums) -> None:
        """`starts` are the first columns of the vectors."""
        width = len(starts) * self.lanes
        size = self.rows * width
        tile = build.array("tile", size, dtype=DType.I32)
        with build.unrolled(("i", self.rows)) as (i,):
            for j in range(len(starts)):
                build.assign(tile.vector(i * width + j * self.lanes, self.lanes), sums(i, j))
        acc = Name(ACCUMULATOR.name, DType.I32, self.lanes)
        for j, start in enumerate(starts):
            vectors = Vectoriser(self._lane(), self.lanes, {acc.name: acc})
            with build.scope():
                if self._has_vectors(kernel, vectors):
                    self._by_vector(build, vectors, tile, width, j, start)
                else:
                    self._by_element(build, tile, width, j, start)

    def _has_vectors(self, kernel: Kernel, vectors: Vectoriser) -> bool:
        stored_as_computed = all(
            output.value.dtype is kernel.dtype_of(output.buffer) for output in self.outputs
        )
        return (
            self.columns >= self.lanes
            and stored_as_computed
            and vectors.can_write(*(output.value for output in self.outputs))
        )

    def _lane(self) -> Var:
        """The variable of the columns."""
        found = (var for output in self.outputs for var in output.index.variables())
        return next((var for var in found if var.name == COLUMN), Var(COLUMN, self.columns))

    def _by_vector(
        self, build: Builder, vectors: Vectoriser, tile: Memory, width: int, j: int, start: Count
    ) -> None:
        build.bind(COLUMN, start)
        vectors.load_ahead(build, [output.value for output in self.outputs], ROW)
        with build.loop("i", self.rows, unroll=2) as i:
            build.bind(ROW, self.first_row + i)
            build.bind_value(ACCUMULATOR.name, tile.vector(i * width + j * self.lanes, self.lanes))
            for output in self.outputs:
                build.store(output.buffer, output.index, vectors.write(output.value))

    def _by_element(self, build: Builder, tile: Memory, width: int, j: int, start: Count) -> None:
        with build.loop("i", self.rows) as i:
            build.bind(ROW, self.first_row + i)
            with build.loop("k", min(self.columns, self.lanes), vectorise=True) as k:
                build.bind(COLUMN, start + k)
                build.bind_value(ACCUMULATOR.name, tile[i * width + j * self.lanes + k])
                build.add(*self.outputs)
