"""Winograd's convolution as a program: transform a chunk of the input, multiply place by place,
transform back and store.
"""

from __future__ import annotations

from dataclasses import dataclass

from whence.kernels.builder import Builder, Pointer, prefetch_lines
from whence.kernels.conv.epilogue import IMAGE, Epilogue
from whence.kernels.conv.tile_loops import add_products, copies
from whence.kernels.conv.tiles import Field
from whence.kernels.conv.winograd_transforms import KERNEL, apply_matrix, transforms
from whence.kernels.ir import (
    FULLY,
    Bits,
    Count,
    CountValue,
    Expr,
    Fn,
    Kernel,
    Micro,
    Stmt,
    Store,
    ValueCount,
    chosen,
    count,
    lanewise,
    least,
)
from whence.machine import CACHE_LINE
from whence.types import DType


@dataclass(frozen=True, slots=True)
class Winograd(Micro):
    """The whole convolution: work items are chunks of tiles and parts of the output channels."""

    size: int
    """Of an output tile, in both directions."""
    images: int
    rows: Field
    columns: Field
    source: str
    weights: str
    channels: int
    """Of the input; the last block may be partly filled."""
    block: int
    lanes: int
    group_vectors: int
    """Of output channels."""
    vectors: int
    """In a panel; they divide `group_vectors`."""
    tile_rows: int
    """Tiles that are multiplied at a time."""
    chunk: int
    """Tiles in a work item, a multiple of `tile_rows`."""
    parts: int
    """Into which the panels are divided."""
    outputs: tuple[Store, ...]

    @property
    def places(self) -> int:
        """Of a transformed tile."""
        return (self.size + KERNEL - 1) ** 2

    @property
    def tiles_down(self) -> int:
        return -(-self.rows.out // self.size)

    @property
    def tiles_across(self) -> int:
        return -(-self.columns.out // self.size)

    @property
    def tiles(self) -> int:
        return self.images * self.tiles_down * self.tiles_across

    @property
    def chunks(self) -> int:
        return -(-self.tiles // self.chunk)

    @property
    def blocks_in(self) -> int:
        return -(-self.channels // self.block)

    @property
    def panels(self) -> int:
        return self.group_vectors // self.vectors

    @property
    def tasks(self) -> int:
        return self.chunks * self.parts

    @property
    def lines_ahead(self) -> int:
        """Of the weights of the next place, to be asked for with each block of channels that is
        multiplied.
        """
        lines = -(-4 * self.channels * self.vectors * self.lanes // CACHE_LINE)
        return -(-lines // (-(-self.chunk // self.tile_rows) * self.blocks_in))

    @property
    def input_floats(self) -> int:
        """Of a chunk's transformed input: by group of tiles, block of channels, place, tile,
        channel.

        A tile's places lie near each other, for the transform that writes them, and so do the tiles
        of a row, for the product that reads them.
        """
        return self.places * self.blocks_in * self.chunk * self.block

    @property
    def product_floats(self) -> int:
        """Of a chunk's products with one panel: by group of tiles, place, tile, channel."""
        return self.places * self.chunk * self.vectors * self.lanes

    def program(self, kernel: Kernel) -> tuple[Stmt, ...]:
        build = Builder()
        transformed = build.scratch("transformed")
        products = build.scratch("products", offset=self.input_floats)
        have = build.count_variable("have", -1)
        with build.tasks(kernel.tasks) as task:
            chunk = build.count("chunk", task // self.parts)
            part = build.count("part", task % self.parts)
            first = build.count("first", chunk * self.chunk)
            tiles = build.count("count", least(self.chunk, self.tiles - first))
            with build.when(chunk.differs(have)):
                build.set(have, chunk)
                _input(build, self, first, tiles, transformed)
            begin, end = (each * self.panels // self.parts for each in (part, part + 1))
            with build.loop("panel", end, begin=begin) as panel:
                _multiply(build, self, panel, tiles, transformed, products)
                _output(build, self, kernel, panel, first, tiles, products)
        return build.finish()


def _tile_place(build: Builder, it: Winograd, tile: Count) -> tuple[Count, Count, Count]:
    """The image of a tile, and where in it the tile's output begins."""
    across, area = it.tiles_across, it.tiles_down * it.tiles_across
    return (
        build.bind(IMAGE, tile // area),
        build.count("row", tile % area // across * it.size),
        build.count("column", tile % across * it.size),
    )


def _input(build: Builder, it: Winograd, first: Count, tiles: Count, transformed: Pointer) -> None:
    """The chunk's input, transformed."""
    n, height, width = it.size + KERNEL - 1, it.rows.size, it.columns.size
    vectors = it.block // it.lanes
    with build.loop("t", tiles) as t:
        group = build.count("group", t // it.tile_rows)
        member = build.count("member", t % it.tile_rows)
        image, row, column = _tile_place(build, it, first + t)
        top = build.count("top", row - it.rows.begin)
        left = build.count("left", column - it.columns.begin)
        on_input = (top >= 0) & (top + n <= height) & (left >= 0) & (left + n <= width)
        inside = build.count("inside", chosen(on_input, 1, 0))
        source = build.pointer(
            "from",
            build.buffer(it.source),
            ((image * (it.blocks_in * height) + top) * width + left) * it.block,
            alone=False,
        )
        # At the edges, what lies outside is read from the image's first pixel instead, and every
        # bit of it dropped: a branch for each would take longer.
        at = build.array("at", n * n, dtype=DType.I64)
        keep = build.array("keep", n * n, dtype=DType.I32)
        with (
            build.when(inside.equals(0)),
            build.loop("i", n) as i,
            build.loop("j", n) as j,
        ):
            reads = (top + i >= 0) & (top + i < height) & (left + j >= 0) & (left + j < width)
            read = build.count("read", chosen(reads, 1, 0))
            nearest = chosen(read.equals(1), i * width + j, 0 - (top * width + left))
            build.assign(at[i * n + j], CountValue(nearest * it.block))
            build.assign(keep[i * n + j], CountValue(0 - read, DType.I32))
        with build.loop("c", it.blocks_in * vectors) as c:
            block, lane = c // vectors, c % vectors * it.lanes
            x = build.pointer("x", source, block * (height * width * it.block) + lane)
            to = build.pointer(
                "to",
                transformed,
                ((group * it.blocks_in + block) * it.places * it.tile_rows + member) * it.block
                + lane,
                written=True,
            )
            # Loops, not n copies: values for all n² places are more than there are registers, so
            # that nothing is gained by writing the transforms out, which takes compilers long.
            e = build.array("e", n, n, lanes=it.lanes)
            matrix = transforms(it.size).input
            with build.when(inside.equals(1)), build.loop("across", n, unroll=1) as across:
                pixels: list[Expr] = [
                    x.vector(down * width * it.block + across * it.block, it.lanes)
                    for down in range(n)
                ]
                apply_matrix(build, matrix, pixels, [e[down, across] for down in range(n)])
            with build.otherwise(), build.loop("across", n, unroll=1) as across:
                pixels = []
                for down in range(n):
                    place = down * n + across
                    read_bits = Bits(x.vector(ValueCount(at[place]), it.lanes), DType.I32)
                    kept = lanewise(Fn.BIT_AND, read_bits, keep[place])
                    pixels.append(Bits(kept, DType.F32))
                apply_matrix(build, matrix, pixels, [e[down, across] for down in range(n)])
            stride = it.tile_rows * it.block
            with build.loop("row", n, unroll=1) as row:
                to_row = [to.vector((row * n + place) * stride, it.lanes) for place in range(n)]
                apply_matrix(build, matrix, [e[row, place] for place in range(n)], to_row)
    # The last rows of a register tile may have no tile of the image; what is multiplied there must
    # not be slow.
    end = (tiles + (it.tile_rows - 1)) // it.tile_rows * it.tile_rows
    with (
        build.loop("t", end, begin=tiles) as t,
        build.loop("i", it.places * it.blocks_in) as i,
    ):
        row = t // it.tile_rows * (it.places * it.blocks_in) + i
        place = (row * it.tile_rows + t % it.tile_rows) * it.block
        build.fill(transformed, place, it.block)


def _multiply(
    build: Builder, it: Winograd, panel: Count, tiles: Count, transformed: Pointer, made: Pointer
) -> None:
    """For each place of the transformed tiles, their products with a panel's weights."""
    width, stride = it.vectors * it.lanes, it.places * it.tile_rows * it.block
    with build.loop("place", it.places) as place:
        w = build.pointer(
            "w", build.buffer(it.weights), (panel * it.places + place) * (it.channels * width)
        )
        # The weights of the next place follow, or those of the next panel's first.
        ahead = build.pointer("ahead", w, it.channels * width, alone=False)
        with build.loop("t", tiles, step=it.tile_rows) as t:
            x = build.pointer(
                "x",
                transformed,
                t * (it.blocks_in * it.places * it.block) + place * (it.tile_rows * it.block),
            )
            sums = build.sums(it.tile_rows, it.vectors, lanes=it.lanes)

            def add_block(c: Count, channels: int) -> None:
                """The products of a block of input channels."""
                prefetch_lines(build, ahead, it.lines_ahead, unroll=FULLY)
                x_at, w_at = c * stride, c * (it.block * width)
                unroll = min(channels, copies(it.tile_rows, it.vectors))
                with build.loop("k", channels, unroll=unroll) as k:
                    values = [(i, x[x_at + k + i * it.block]) for i in range(it.tile_rows)]
                    add_products(build, sums, it.vectors, w, w_at + k * width, values)

            whole, rest = divmod(it.channels, it.block)
            if whole:
                with build.loop("c", whole) as c:
                    add_block(c, it.block)
            if rest:
                add_block(count(whole), rest)
            to = build.pointer(
                "to",
                made,
                (t * it.places + place * it.tile_rows) * width,
                written=True,
            )
            with build.unrolled(("i", it.tile_rows), ("j", it.vectors)) as (i, j):
                build.assign(to.vector(i * width + j * it.lanes, it.lanes), sums[i, j])


def _output(
    build: Builder,
    it: Winograd,
    kernel: Kernel,
    panel: Count,
    first: Count,
    tiles: Count,
    made: Pointer,
) -> None:
    """The products of a panel, transformed back and stored."""
    n, m, width = it.size + KERNEL - 1, it.size, it.vectors * it.lanes
    matrix = transforms(m).output
    block = build.count("block", panel * width // it.block)
    lane0 = build.count("lane0", panel * width % it.block)
    with build.loop("t", tiles) as t:
        _, row, column = _tile_place(build, it, first + t)
        group = build.count("group", t // it.tile_rows)
        member = build.count("member", t % it.tile_rows)
        results = build.array("made", m, m, it.vectors, lanes=it.lanes)
        with build.loop("v", it.vectors, unroll=1) as v:
            source = build.pointer(
                "from",
                made,
                (group * (it.places * it.tile_rows) + member) * width + v * it.lanes,
            )
            e = build.array("e", m, n, lanes=it.lanes)
            stride = it.tile_rows * width
            with build.loop("j", n, unroll=1) as j:
                values = [source.vector((i * n + j) * stride, it.lanes) for i in range(n)]
                apply_matrix(build, matrix, values, [e[i, j] for i in range(m)])
            with build.loop("i", m, unroll=1) as i:
                row_of = [e[i, j] for j in range(n)]
                apply_matrix(build, matrix, row_of, [results[i, j, v] for j in range(m)])
        with build.loop("r", least(m, it.rows.out - row)) as r:
            place = build.count("place", (row + r) * it.columns.out + column)
            epilogue = Epilogue(it.outputs, it.lanes, it.block, place, block, lane0)

            def store(pixels: int, have: Count | None = None) -> None:
                epilogue.store(
                    build, kernel, pixels, it.vectors, lambda i, j: results[r, i, j], have
                )

            is_open = it.columns.is_open
            if is_open or (it.columns.out >= m and it.columns.out % m):
                with build.when(column + m > it.columns.out):
                    rest = it.columns.out - column
                    store(m, rest) if is_open else store(it.columns.out % m)
                with build.otherwise():
                    store(m)
            else:
                store(it.columns.out % m or m)
