"""The matrix product by matrix units as a program: split a block of rows into two bfloat16 each,
multiply tiles, store what becomes of the sums.
"""

from __future__ import annotations

from dataclasses import dataclass

from whence.kernels.bf16x2 import DEPTH, GROUP, STEP_FLOATS, TILE, lines_ahead
from whence.kernels.bf16x2_program import multiply_step, store_split, store_sums, zero_sums
from whence.kernels.builder import Builder, Pointer, prefetch_lines
from whence.kernels.ir import (
    Count,
    Countable,
    Kernel,
    Micro,
    Stmt,
    TileConfigure,
    TileRelease,
    count,
    least,
)
from whence.kernels.product.gemm_program import BATCH, STREAM_AHEAD, ZERO, Gemm, store_rows
from whence.machine import CACHE_LINE
from whence.types import DType

_STEP = 2 * GROUP * DEPTH
"""bfloat16 that a step reads: the rows' high parts, then their low parts."""


@dataclass(frozen=True, slots=True)
class Bf16x2Gemm(Micro):
    """The whole product: work items are blocks of rows and parts of the panels."""

    product: Gemm
    """What is multiplied and stored, in tiles as large as a step's; the panels are split."""
    parts: int
    is_far: bool
    """Are the weights too many to stay in the cache?"""

    @property
    def depths(self) -> int:
        """Steps of a sum."""
        return -(-self.product.depth // DEPTH)

    @property
    def groups(self) -> int:
        """Of rows that are multiplied at a time, in a block."""
        return -(-self.product.block_rows // GROUP)

    @property
    def tasks(self) -> int:
        return self.product.blocks * self.parts

    @property
    def split_floats(self) -> int:
        """Room of a block's parts, in float32: by group, block of the depth, half, row, number."""
        return self.groups * GROUP * self.depths * DEPTH

    @property
    def ahead(self) -> int:
        """Cache lines of the weights to come to prefetch at each step."""
        return lines_ahead(self.groups) if self.is_far else 0

    @property
    def distance(self) -> int:
        """Floats from the step's weights to those that are prefetched."""
        panel = self.depths * STEP_FLOATS
        return panel if self.groups > 1 else min(panel, STREAM_AHEAD)

    def program(self, kernel: Kernel) -> tuple[Stmt, ...]:
        build, gemm = Builder(), self.product
        build.add(TileConfigure())
        split = build.scratch("split", DType.BF16)
        sums = build.scratch("sums", offset=self.split_floats)
        build.bind(BATCH, 0)
        a = build.pointer("a", build.buffer(gemm.a.buffer), gemm.a.base)
        have = build.count_variable("have", -1)
        with build.tasks(kernel.tasks) as task:
            block = build.count("block", task // self.parts)
            part = build.count("part", task % self.parts)
            first = build.count("first", block * gemm.block_rows)
            rows = build.count("count", least(gemm.block_rows, gemm.rows - first))
            with build.when(block.differs(have)):
                build.set(have, block)
                _split_rows(build, self, a, split, first, rows)
            begin, end = (each * gemm.panels // self.parts for each in (part, part + 1))
            with build.loop("panel", end, begin=begin) as panel:
                n0 = build.count("n0", panel * GROUP)
                columns = build.count("columns", least(gemm.columns - n0, GROUP))
                with build.loop("at", rows, step=GROUP) as at:
                    _multiply(build, self, split, sums, panel, at)
                    m0 = build.count("m0", first + at)
                    some = build.count("some", least(rows - at, GROUP))
                    store_rows(build, gemm, sums, some, m0, n0, columns)
        build.add(TileRelease())
        return build.finish()


def _split_rows(
    build: Builder, it: Bf16x2Gemm, a: Pointer, split: Pointer, first: Count, rows: Count
) -> None:
    """The parts of so many rows from `first` on. Rows that there are not are left as they are: what
    becomes of them is dropped.
    """
    gemm = it.product
    whole, rest = divmod(gemm.depth, DEPTH)

    def target(at: Count, k: Countable, i: Count, j: Count) -> Pointer:
        step = (at * it.depths + count(k) * GROUP) * (2 * DEPTH)
        return build.pointer("to", split, step + i * DEPTH + j, written=True)

    with build.loop("at", rows, step=GROUP) as at:
        some = build.count("some", least(rows - at, GROUP))
        with (
            build.loop("k", whole) as k,
            build.loop("i", some) as i,
            build.loop("j", DEPTH, step=TILE) as j,
        ):
            to = target(at, k, i, j)
            value = a.vector((first + at + i) * gemm.a.row_stride + k * DEPTH + j, TILE)
            store_split(build, value, to, 0, GROUP * DEPTH)
        if rest:
            with build.loop("i", some) as i:
                last = build.array("last", DEPTH)
                with build.loop("j", DEPTH) as j:
                    build.assign(last[j], ZERO)
                with build.loop("j", rest) as j:
                    row = (first + at + i) * gemm.a.row_stride
                    build.assign(last[j], a[row + whole * DEPTH + j])
                with build.loop("j", DEPTH, step=TILE) as j:
                    to = target(at, whole, i, j)
                    store_split(build, last.vector(j, TILE), to, 0, GROUP * DEPTH)


def _multiply(
    build: Builder, it: Bf16x2Gemm, split: Pointer, sums: Pointer, panel: Count, at: Count
) -> None:
    """The sums of as many rows as are multiplied at a time."""
    gemm = it.product
    weights = build.buffer(gemm.b.buffer)
    w = build.pointer("w", weights, panel * (it.depths * STEP_FLOATS))
    x = build.pointer("x", split, at * (it.depths * 2 * DEPTH))
    ahead = None
    if it.ahead:
        every = it.depths * it.ahead * CACHE_LINE // 4
        ahead = build.pointer("ahead", w, it.distance + at // GROUP * every, alone=False)
    zero_sums(build)
    with build.loop("k", it.depths):
        if ahead is not None:
            prefetch_lines(build, ahead, it.ahead)
        multiply_step(build, x, GROUP * DEPTH, w)
        build.advance(w, STEP_FLOATS)
        build.advance(x, _STEP)
    store_sums(build, sums)
