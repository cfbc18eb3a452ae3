"""Convolution by matrix units as a program: split a chunk of the input into two bfloat16 each,
multiply tiles, store what becomes of the sums.
"""

from __future__ import annotations

from dataclasses import dataclass

from whence.kernels.bf16x2 import DEPTH, GROUP, PANEL, STEP_FLOATS, TILE, lines_ahead
from whence.kernels.bf16x2_program import (
    multiply_step,
    store_split,
    store_sums,
    store_zeros,
    zero_sums,
)
from whence.kernels.builder import Builder, Memory, Pointer, prefetch_lines, splat
from whence.kernels.conv.epilogue import IMAGE, Epilogue
from whence.kernels.conv.slices import image_slices
from whence.kernels.conv.tiles import Field
from whence.kernels.ir import (
    Bits,
    Count,
    Expr,
    Fn,
    Kernel,
    Lanes,
    Micro,
    Stmt,
    Store,
    TileConfigure,
    TileRelease,
    ValueCount,
    chosen,
    count,
    lanewise,
    least,
)
from whence.kernels.ir.slices import Slices
from whence.machine import CACHE_LINE
from whence.types import DType


@dataclass(frozen=True, slots=True)
class Bf16x2Conv(Micro):
    """The whole convolution: work items are chunks of output rows and parts of the panels."""

    images: int
    rows: Field
    columns: Field
    source: str
    weights: str
    channels: int
    """Of the input; the last block may be partly filled."""
    group_vectors: int
    """Of output channels."""
    chunk: int
    parts: int
    is_far: bool
    """Are the weights too many to stay in the cache?"""
    outputs: tuple[Store, ...]

    @property
    def blocks_in(self) -> int:
        return -(-self.channels // TILE)

    @property
    def depths(self) -> int:
        """Blocks of as many channels as a product of tiles adds."""
        return -(-self.channels // DEPTH)

    @property
    def panels(self) -> int:
        return -(-self.group_vectors // PANEL)

    @property
    def chunks(self) -> int:
        return -(-self.rows.out // self.chunk)

    @property
    def tasks(self) -> int:
        return self.images * self.chunks * self.parts

    @property
    def width(self) -> int:
        """Columns of a plane."""
        return self.columns.out + _reach(self.columns)

    @property
    def plane_rows(self) -> int:
        """Rows of a plane for a chunk."""
        return self.chunk + _reach(self.rows)

    @property
    def row_planes(self) -> tuple[int, ...]:
        return _remainders(self.rows)

    @property
    def column_planes(self) -> tuple[int, ...]:
        return _remainders(self.columns)

    @property
    def plane(self) -> int:
        """Pixels of a plane, with what the last tile reads beyond it. An odd number: planes a power
        of two apart would meet in the caches.
        """
        read = self.groups * GROUP + _reach(self.rows) * self.width + _reach(self.columns)
        return max(read, self.plane_rows * self.width) | 1

    @property
    def groups(self) -> int:
        """Of positions that are multiplied at a time, in a chunk."""
        return -(-((self.chunk - 1) * self.width + self.columns.out) // GROUP)

    @property
    def ahead(self) -> int:
        """Cache lines of the next panel to prefetch at each step."""
        return lines_ahead(self.groups) if self.is_far else 0

    @property
    def half(self) -> int:
        """Pixels of all planes."""
        return self.plane * len(self.row_planes) * len(self.column_planes)

    @property
    def taps(self) -> tuple[int, ...]:
        """By kernel position: where its input is, in pixels from the output position's."""
        across = len(self.column_planes)
        found = []
        for kh in range(self.rows.kernel):
            down, above = divmod(kh * self.rows.dilation, self.rows.stride)
            for kw in range(self.columns.kernel):
                right, beside = divmod(kw * self.columns.dilation, self.columns.stride)
                number = self.row_planes.index(above) * across + self.column_planes.index(beside)
                found.append(number * self.plane + down * self.width + right)
        return tuple(found)

    @property
    def split_floats(self) -> int:
        """Room of the input's parts, in float32: by block of channels, half, plane, pixel,
        channel.
        """
        return self.depths * 2 * self.half * DEPTH // 2

    @property
    def slices(self) -> Slices | None:
        ends = [
            min((number + 1) * self.chunk, self.rows.out) * self.columns.out
            for number in range(self.chunks)
        ]
        return image_slices(self, ends)

    def program(self, kernel: Kernel) -> tuple[Stmt, ...]:
        build = Builder()
        build.add(TileConfigure())
        split = build.scratch("split", DType.BF16)
        sums = build.scratch("sums", offset=self.split_floats)
        taps = build.constants("taps", [tap * DEPTH for tap in self.taps], DType.I32)
        have = build.count_variable("have", -1)
        with build.tasks(kernel.tasks) as task:
            round_ = build.count("round", task // self.parts)
            part = build.count("part", task % self.parts)
            image = build.bind(IMAGE, round_ // self.chunks)
            first = build.count("first", round_ % self.chunks * self.chunk)
            rows = build.count("count", least(self.chunk, self.rows.out - first))
            with build.when(round_.differs(have)):
                build.set(have, round_)
                _split_input(build, self, split, image, first, rows)
            positions = build.count("positions", (rows - 1) * self.width + self.columns.out)
            begin, end = (each * self.panels // self.parts for each in (part, part + 1))
            with (
                build.loop("panel", end, begin=begin) as panel,
                build.loop("at", positions, step=GROUP) as at,
            ):
                _multiply(build, self, split, sums, taps, panel, at)
                _store(build, self, kernel, sums, panel, first, positions, at)
        build.add(TileRelease())
        return build.finish()


def _split_input(
    build: Builder, it: Bf16x2Conv, split: Pointer, image: Count, first: Count, rows: Count
) -> None:
    """The input of so many output rows from `first` on, in planes."""
    columns, across, low = it.columns, len(it.column_planes), it.half * DEPTH
    if it.blocks_in % 2:
        build.fill(split, (it.depths - 1) * 2 * low, 2 * low)
    with build.loop("c", it.blocks_in) as c:
        pixels = it.rows.size * columns.size
        source = build.pointer(
            "from", build.buffer(it.source), (image * it.blocks_in + c) * (pixels * TILE)
        )
        block = build.pointer("block", split, c // 2 * (2 * low) + c % 2 * TILE, written=True)
        rest, kept = it.channels % TILE, None
        if rest:
            # Behind the last channel there may be anything.
            kept = build.variable("kept", splat(-1, TILE, DType.I32))
            with build.when(c.equals(it.blocks_in - 1)):
                mask = tuple(-1 if lane < rest else 0 for lane in range(TILE))
                build.assign(kept, Lanes(mask, DType.I32))

        def split_row(to: Pointer, row: Count, inside: Count, beside: int) -> None:
            """A row of a plane: every so many columns of the input, from `beside` on, zeros around
            them.
            """
            left, right = _columns_inside(columns, beside, it.width)
            begin = build.count("begin", chosen(inside.equals(1), left, it.width))
            end = build.count("end", chosen(inside.equals(1), right, it.width))
            for from_, until in ((count(0), begin), (end, count(it.width))):
                with build.loop("x", until, begin=from_) as x:
                    store_zeros(build, to, x * DEPTH, low)
            with build.loop("column", end, begin=begin) as column:
                pixel = row * columns.size + column * columns.stride + (beside - columns.begin)
                value: Expr = source.vector(pixel * TILE, TILE)
                if kept is not None:
                    value = Bits(lanewise(Fn.BIT_AND, Bits(value, DType.I32), kept), DType.F32)
                store_split(build, value, to, column * DEPTH, low)

        for number, above in enumerate(it.row_planes):
            with build.loop("r", rows + (it.plane_rows - it.chunk)) as r:
                row = build.count("row", (first + r) * it.rows.stride + (above - it.rows.begin))
                on_input = (row >= 0) & (row < it.rows.size)
                inside = build.count("inside", chosen(on_input, 1, 0))
                for beside_number, beside in enumerate(it.column_planes):
                    with build.scope():
                        plane = (number * across + beside_number) * it.plane * DEPTH
                        place = plane + r * (it.width * DEPTH)
                        to = build.pointer("to", block, place, written=True)
                        split_row(to, row, inside, beside)


def _columns_inside(field: Field, beside: int, width: int) -> tuple[int, int]:
    """The columns of a plane that lie on the input: from the first to behind the last."""
    inside = [x for x in range(width) if 0 <= x * field.stride + beside - field.begin < field.size]
    return (inside[0], inside[-1] + 1) if inside else (width, width)


def _multiply(
    build: Builder,
    it: Bf16x2Conv,
    split: Pointer,
    sums: Pointer,
    taps: Memory,
    panel: Count,
    at: Count,
) -> None:
    """The sums of as many positions as are multiplied at a time."""
    size = it.depths * len(it.taps) * STEP_FLOATS
    w = build.pointer("w", build.buffer(it.weights), panel * size)
    ahead = None
    if it.ahead:
        every = it.depths * len(it.taps) * it.ahead * CACHE_LINE // 4
        ahead = build.pointer("ahead", w, size + at // GROUP * every, alone=False)
    zero_sums(build)
    with build.loop("c", it.depths) as c:
        x = build.pointer("x", split, (c * (2 * it.half) + at) * DEPTH)
        with build.loop("tap", len(it.taps)) as tap:
            xt = build.pointer("xt", x, ValueCount(taps[tap]))
            if ahead is not None:
                prefetch_lines(build, ahead, it.ahead)
            multiply_step(build, xt, it.half * DEPTH, w)
            build.advance(w, STEP_FLOATS)
    store_sums(build, sums)


def _store(
    build: Builder,
    it: Bf16x2Conv,
    kernel: Kernel,
    sums: Pointer,
    panel: Count,
    first: Count,
    positions: Count,
    at: Count,
) -> None:
    block = build.count("block", panel * PANEL)
    some = build.count("some", least(positions - at, GROUP))
    columns, rest = it.columns.out, it.group_vectors % PANEL

    def store(i: Count, place: Count) -> None:
        epilogue = Epilogue(it.outputs, TILE, TILE, place, block)

        def vectors(many: int) -> None:
            epilogue.store(
                build,
                kernel,
                1,
                many,
                lambda pixel, j: sums.vector((i + pixel) * GROUP + j * TILE, TILE),
            )

        if rest:
            with build.when(panel.equals(it.panels - 1)):
                vectors(rest)
            with build.otherwise():
                vectors(PANEL)
        else:
            vectors(PANEL)

    if it.width == columns:
        with build.loop("i", some) as i:
            store(i, build.count("place", first * columns + at + i))
        return
    column = build.count_variable("column", at % it.width - 1)
    before = (first + at // it.width) * columns
    place = build.count_variable("place", before + chosen(column < columns, column, columns - 1))
    with build.loop("i", some) as i:
        # Behind the end of a row there are no pixels until the next one begins.
        build.set(column, chosen(column + 1 < it.width, column + 1, 0))
        with build.when(column < columns):
            build.set(place, place + 1)
            store(i, place)


def _reach(field: Field) -> int:
    """How far the last tap is from the first, in positions."""
    return (field.kernel - 1) * field.dilation // field.stride


def _remainders(field: Field) -> tuple[int, ...]:
    return tuple(sorted({tap * field.dilation % field.stride for tap in range(field.kernel)}))
