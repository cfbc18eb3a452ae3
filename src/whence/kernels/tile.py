"""How many accumulators a machine's registers hold: the shape of the innermost tile of products and
convolutions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Tile:
    """`rows` × `vectors` accumulators of `lanes` single-precision values each."""

    rows: int
    vectors: int
    lanes: int
    cache_bytes: int
    """Of the second-level cache, for choosing how much to work on at a time."""
    transforms: bool = True
    """May convolutions be transformed to need fewer products?"""
    bf16x2: bool = False
    """Are there matrix units, and may float32 products be made of bfloat16 ones?"""
    threads: int = 1
    """That share the work of a kernel, for choosing how to divide it."""
    memory_bytes: float = 6.0
    """That a thread reads from memory in a cycle, where it does nothing else."""
    interleaved: bool = False
    """Can a run go back and forth between kernels, slice by slice (`kernels/ir/slices.py`)?"""

    def is_large(self, size: int) -> bool:
        """Does a value of so many bytes leave the cache before the next kernel reads it?"""
        return size > self.cache_bytes // 2

    @property
    def slice_bytes(self) -> int:
        """What a slice of a large image and of what is made of it may take: those of several
        kernels, and weights, are in the cache together.
        """
        return self.cache_bytes // 8

    @property
    def width(self) -> int:
        """Columns of the tile."""
        return self.vectors * self.lanes

    def rows_beside(self, vectors: int) -> int:
        """Rows of a tile so many vectors wide that takes as many accumulators."""
        return max(1, self.rows * self.vectors // vectors)

    def fitted(self, rows: int) -> Tile:
        """The tile with its rows evened out over `rows`: 32 rows are 11 + 11 + 10, not 14 + 14 + 4.

        Few rows leave registers free; more columns then keep the arithmetic units busy while each
        waits for its last result.
        """
        if rows <= self.rows // 3:
            return replace(self, rows=rows, vectors=self.vectors * 2)
        return self.evened(rows)

    def evened(self, rows: int) -> Tile:
        """The tile with its rows evened out over `rows`, as wide as it is."""
        return replace(self, rows=-(-rows // -(-rows // self.rows)))


AVX512 = Tile(rows=14, vectors=2, lanes=16, cache_bytes=1 << 20)
AVX2 = Tile(rows=6, vectors=2, lanes=8, cache_bytes=1 << 18)
NEON = Tile(rows=8, vectors=3, lanes=4, cache_bytes=1 << 18)
# Sixteen registers: twelve accumulators, a row's value, and vectors of the other operand.
SSE = Tile(rows=6, vectors=2, lanes=4, cache_bytes=1 << 18)
