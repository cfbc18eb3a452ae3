"""Convolution as a program: the sums of a tile in vector registers, one input value times a row of
a panel's weights a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from whence.extent import surely_equal
from whence.kernels.builder import Builder, Memory, Pointer, zeros
from whence.kernels.conv.epilogue import IMAGE, Epilogue, shared_outputs
from whence.kernels.conv.slices import chunk_ends, image_slices
from whence.kernels.conv.tile_loops import (
    EdgeAt,
    TileAt,
    each_kernel_row,
    each_open_tile,
    each_tile,
    edge_reads,
)
from whence.kernels.conv.tiles import Cover, Field, OpenCover, Read
from whence.kernels.device.conv import conv_on_device
from whence.kernels.ir import (
    Count,
    Kernel,
    Micro,
    Splat,
    Stmt,
    Store,
    ValueCount,
    count,
    least,
    most,
)
from whence.kernels.ir.slices import Slices
from whence.kernels.size_arguments import SizeArguments
from whence.machine import CACHE_LINE
from whence.types import DType

# As many products in a row as it takes to make the loop around them free.
_PRODUCTS = 24
# Of a pixel in an edge tile, in eighths of one in another tile: channels in blocks, and one by one.
_EDGE_COST, _PLAIN_EDGE_COST = 10, 24


@dataclass(frozen=True, slots=True)
class Depth:
    """A range of the sum: `count` steps `stride` apart in the input, at each every position of
    the kernel, there `lanes` channels side by side.
    """

    count: int
    stride: int
    lanes: int
    start: int
    """Where the first step begins in the input."""

    def size(self, taps: int) -> int:
        """Products for each output."""
        return self.count * self.lanes * taps


@dataclass(frozen=True, slots=True)
class Conv(Micro):
    """The whole convolution: work items are panels of output channels of chunks of the image."""

    images: int
    groups: int
    rows: Field
    columns: Field
    cover: Cover | OpenCover
    source: str
    image_stride: int
    group_stride: int
    row_stride: int
    pixel_stride: int
    depths: tuple[Depth, ...]
    weights: str
    """In panels; see `PackWeights`."""
    lanes: int
    vectors: int
    """Of a panel."""
    group_vectors: int
    """Of all panels of a group; the last panel has what is left."""
    block: int
    chunk: int
    """Units of the cover in a work item."""
    panels_outside: bool
    """Work items are numbered panel by panel, else chunk by chunk."""
    ahead: int
    """Cache lines of the next panel's weights to prefetch at each position of the kernel.
    """
    outputs: tuple[Store, ...]
    reach: tuple[tuple[int, int], ...] = ()
    """By panel: the input channels, from and to, that its outputs depend on, where these are not
    all.
    """

    @property
    def panels(self) -> int:
        """Of a group."""
        return -(-self.group_vectors // self.vectors)

    @property
    def chunks(self) -> int:
        return -(-self.cover.units // self.chunk)

    @property
    def depth(self) -> int:
        """Products for each output."""
        return sum(depth.size(self.rows.kernel * self.columns.kernel) for depth in self.depths)

    @property
    def tasks(self) -> int:
        return self.images * self.groups * self.panels * self.chunks

    @property
    def slices(self) -> Slices | None:
        ends = chunk_ends(self.cover, self.columns, self.chunk)
        # Weights of panels that are outside are too many to be read again for each chunk.
        if ends is None or self.panels_outside or not surely_equal(self.images, 1):
            return None
        panels = self.groups * self.panels
        return image_slices(
            self.source,
            self.rows,
            self.columns,
            ends,
            lambda chunk: [(chunk * panels, (chunk + 1) * panels)],
        )

    def program(self, kernel: Kernel) -> tuple[Stmt, ...]:
        return self._statements(kernel, Builder())

    def shared_program(self, kernel: Kernel, sizes: SizeArguments) -> tuple[Stmt, ...] | None:
        outputs = shared_outputs(self.outputs, sizes)
        if outputs is None or isinstance(self.cover, OpenCover):
            return None
        return replace(self, outputs=outputs)._statements(kernel, Builder(sizes=sizes))

    def _statements(self, kernel: Kernel, build: Builder) -> tuple[Stmt, ...]:
        with build.tasks(kernel.tasks) as task:
            _work_item(build, self, kernel, task)
        return build.finish()

    def device_program(self, kernel: Kernel) -> tuple[Stmt, ...]:
        return conv_on_device(self)


@dataclass(frozen=True, slots=True)
class _WorkItem:
    """What the parts of a work item share."""

    conv: Conv
    kernel: Kernel
    x: Pointer
    w: Pointer
    """The panel."""
    block: Count
    """The panel's first block of output channels."""
    ahead: Pointer | None
    """The weights to prefetch next."""
    reach: tuple[Count, Count] | None
    """The input channels that the panel depends on, where these are not all."""


def _work_item(build: Builder, conv: Conv, kernel: Kernel, task: Count) -> None:
    panels, chunks = conv.panels, conv.chunks
    rounds = conv.images * chunks
    if conv.panels_outside:
        group = build.count("group", task // build.size(panels * rounds))
        panel = build.count("panel", task // build.size(rounds) % build.size(panels))
        round_ = build.count("round", task % build.size(rounds))
    else:
        round_ = build.count("round", task // build.size(conv.groups * panels))
        group = build.count("group", task // build.size(panels) % build.size(conv.groups))
        panel = build.count("panel", task % build.size(panels))
    image = build.bind(IMAGE, round_ // build.size(chunks))
    first = build.count("first", round_ % build.size(chunks) * build.size(conv.chunk))
    last = build.count("last", least(first + build.size(conv.chunk), build.size(conv.cover.units)))
    group_width, width = conv.group_vectors * conv.lanes, conv.vectors * conv.lanes
    x = build.pointer(
        "x",
        build.buffer(conv.source),
        image * build.size(conv.image_stride) + group * build.size(conv.group_stride),
    )
    w = build.pointer(
        "w",
        build.buffer(conv.weights),
        group * build.size(group_width * conv.depth) + panel * build.size(width * conv.depth),
    )
    block = build.count(
        "block", group * build.size(group_width // conv.block) + panel * width // conv.block
    )
    reach = None
    if conv.reach:
        bounds = [bound for pair in conv.reach for bound in pair]
        table = build.constants("reach", bounds, DType.I32)
        reach = (
            build.count("reach_first", ValueCount(table[panel * 2])),
            build.count("reach_last", ValueCount(table[panel * 2 + 1])),
        )
    ahead = None
    if conv.ahead:
        size = width * conv.depth
        is_divided = conv.panels_outside and not surely_equal(rounds, 1)
        further = round_ * build.size(size // rounds) if is_divided else 0
        ahead = build.pointer("ahead", w, count(build.size(size)) + further, alone=False)
    item = _WorkItem(conv, kernel, x, w, block, ahead, reach)

    def whole_panel(vectors: int) -> None:
        if isinstance(conv.cover, OpenCover):
            each_open_tile(
                build,
                conv.cover,
                conv.rows,
                first,
                last,
                lambda tile: _tile(build, item, tile, vectors),
                lambda tile: _edge_tile(build, item, tile, vectors),
                _EDGE_COST if max(depth.lanes for depth in conv.depths) > 1 else _PLAIN_EDGE_COST,
            )
            return
        each_tile(
            build,
            conv.cover,
            conv.rows,
            first,
            last,
            lambda tile: _tile(build, item, tile, vectors),
        )

    rest = conv.group_vectors % conv.vectors
    if rest and panels > 1:
        with build.when(panel.equals(build.size(panels - 1))):
            whole_panel(rest)
        with build.otherwise():
            whole_panel(conv.vectors)
    else:
        whole_panel(rest or conv.vectors)


def _tile(build: Builder, item: _WorkItem, tile: TileAt, vectors: int) -> None:
    conv, pixels = item.conv, tile.shape.pixels
    row, column = conv.rows, conv.columns
    at = build.count(
        "at",
        (tile.row * row.stride - row.begin) * build.size(conv.row_stride)
        + (tile.column * column.stride - column.begin) * conv.pixel_stride,
    )
    sums = build.array("sum", pixels, vectors, lanes=conv.lanes)
    with build.unrolled(("i", pixels), ("j", vectors)) as (i, j):
        build.assign(sums[i, j], zeros(conv.lanes))
    place = build.count("place", tile.row * build.size(column.out) + tile.column)
    epilogue = Epilogue(conv.outputs, conv.lanes, conv.block, place, item.block)
    epilogue.prefetch(build, pixels, vectors)
    reads_all = all(len(read.pixels) == pixels for read in tile.shape.reads)
    if item.reach and not conv.ahead and row.kernel == column.kernel == 1 and reads_all:
        _channels_in_reach(build, item, tile, item.reach, vectors, sums, at)
    else:
        offset = done = 0
        for depth in conv.depths:
            _depth(build, item, tile, depth, vectors, sums, at, offset, done)
            done += depth.count * depth.lanes
            offset += depth.size(row.kernel * column.kernel) * vectors * conv.lanes
    epilogue.store(build, item.kernel, pixels, vectors, lambda i, j: sums[i, j])


def _channels_in_reach(
    build: Builder,
    item: _WorkItem,
    tile: TileAt,
    reach: tuple[Count, Count],
    vectors: int,
    sums: Memory,
    at: Count,
) -> None:
    """The channels that a panel depends on, of a kernel of one position, in one loop: loops over
    blocks and over what is in reach of each leave the compiler short of registers between them.
    """
    conv, (first, last) = item.conv, reach
    pixels, width = tile.shape.pixels, vectors * conv.lanes
    plane = build.size(conv.depths[0].stride)
    with build.loop("k", last, begin=first, unroll=_copies(pixels, vectors)) as k:
        source = build.count("from", at + k // conv.block * plane + k % conv.block)
        _products_of_channel(
            build, conv, tile, range(pixels), vectors, sums, item.x, source, item.w, k * width
        )


def _depth(
    build: Builder,
    item: _WorkItem,
    tile: TileAt,
    depth: Depth,
    vectors: int,
    sums: Memory,
    at: Count,
    offset: int,
    done: int,
) -> None:
    """The steps of a range of the sum, before which there are `done` channels; its weights begin at
    `offset` of the panel.
    """
    conv, width = item.conv, vectors * item.conv.lanes
    taps = conv.columns.kernel * depth.lanes * width
    first, last = _steps(build, item, depth, done)
    with build.loop("c", last, begin=first) as c:
        source = build.count("from", at + build.size(depth.start) + c * build.size(depth.stride))
        wc = build.pointer("wc", item.w, build.size(offset) + c * (conv.rows.kernel * taps))
        channels = _channels(build, item, depth, done, c)

        def read(kh: Count, row: int | None) -> None:
            for each in tile.shape.reads:
                if each.row == row:
                    with build.scope():
                        _read(
                            build, item, tile, depth, vectors, each, sums, source, wc, kh, channels
                        )

        each_kernel_row(build, conv.rows, tile, read)


def _edge_tile(build: Builder, item: _WorkItem, tile: EdgeAt, vectors: int) -> None:
    """A tile whose pixels read padding, or are of several rows, or not all there."""
    conv, pixels, width = item.conv, tile.pixels, vectors * item.conv.lanes
    at = edge_reads(build, tile, conv.rows, conv.columns, conv.row_stride, conv.pixel_stride)
    padding = build.constants(
        "padding", (0.0,) * max(depth.lanes for depth in conv.depths), DType.F32
    )
    sums = build.array("sum", pixels, vectors, lanes=conv.lanes)
    with build.unrolled(("i", pixels), ("j", vectors)) as (i, j):
        build.assign(sums[i, j], zeros(conv.lanes))
    taps, offset, done = conv.rows.kernel * conv.columns.kernel, 0, 0
    for depth in conv.depths:
        first, last = _steps(build, item, depth, done)
        with build.loop("c", last, begin=first) as c:
            source = build.count("from", depth.start + c * depth.stride)
            wc = build.pointer("wc", item.w, offset + c * (taps * depth.lanes * width))
            begin, end = _channels(build, item, depth, done, c)
            with build.loop("tap", taps) as tap:
                wk = build.pointer("wk", wc, tap * (depth.lanes * width))
                if item.ahead is not None:
                    _prefetch(build, item.ahead, conv.ahead)
                read: list[Pointer] = []
                for pixel in range(pixels):
                    place = build.count(f"at{pixel}", ValueCount(at[tap * pixels + pixel]))
                    read.append(
                        build.choose_pointer(
                            f"x{pixel}", place >= 0, item.x, source + place, padding.pointer
                        )
                    )
                with build.loop("k", end, begin=begin, unroll=_copies(pixels, vectors)) as k:
                    weights = [
                        build.let(f"w{v}", wk.vector(k * width + v * conv.lanes, conv.lanes))
                        for v in range(vectors)
                    ]
                    for pixel, pointer in enumerate(read):
                        with build.scope():
                            a = build.let("a", Splat(pointer[k], conv.lanes))
                            for v in range(vectors):
                                build.accumulate(sums[pixel, v], a * weights[v])
        done += depth.count * depth.lanes
        offset += depth.size(taps) * vectors * conv.lanes
    epilogue = Epilogue(conv.outputs, conv.lanes, conv.block, tile.place, item.block)
    epilogue.store(build, item.kernel, pixels, vectors, lambda i, j: sums[i, j], tile.have)


def _prefetch(build: Builder, ahead: Pointer, lines: int) -> None:
    """Prefetch so many cache lines of the weights, and go on by as many."""
    line = CACHE_LINE // 4
    floats = build.size(lines * line)
    with build.loop("j", floats, step=line, unroll=1) as j:
        build.prefetch(ahead, j)
    build.advance(ahead, floats)


def _copies(pixels: int, vectors: int) -> int:
    """Of the products of a step, to make the loop around them free."""
    return -(-_PRODUCTS // (pixels * vectors))


def _steps(build: Builder, item: _WorkItem, depth: Depth, done: int) -> tuple[Count, Count]:
    """From which to which step of a range of the sum the panel's outputs depend on it."""
    if item.reach is None:
        return count(0), count(build.size(depth.count))
    first, last = (bound - done for bound in item.reach)
    return (
        most(first, 0) // depth.lanes,
        least((last + (depth.lanes - 1)) // depth.lanes, depth.count),
    )


def _channels(
    build: Builder, item: _WorkItem, depth: Depth, done: int, step: Count
) -> tuple[Count, Count]:
    """From which to which channel of a step they do."""
    if item.reach is None:
        return count(0), count(depth.lanes)
    first, last = (bound - done - step * depth.lanes for bound in item.reach)
    return (
        build.count("k_first", most(first, 0)),
        build.count("k_last", least(last, depth.lanes)),
    )


def _read(
    build: Builder,
    item: _WorkItem,
    tile: TileAt,
    depth: Depth,
    vectors: int,
    read: Read,
    sums: Memory,
    source: Count,
    wc: Pointer,
    kh: Count,
    channels: tuple[Count, Count],
) -> None:
    """The products of some neighbouring kernel columns."""
    conv, width = item.conv, vectors * item.conv.lanes
    column_stride = conv.columns.dilation * conv.pixel_stride

    def products(kw: Count, columns: int) -> None:
        xk = build.pointer(
            "xk",
            item.x,
            source + kh * build.size(conv.rows.dilation * conv.row_stride) + kw * column_stride,
        )
        wk = build.pointer(
            "wk",
            wc,
            kh * (conv.columns.kernel * depth.lanes * width) + kw * (depth.lanes * width),
        )
        if item.ahead is not None:
            _prefetch(build, item.ahead, conv.ahead * columns)
        # Unrolled further, a loop over columns would keep input values for the next column in
        # registers that it lacks.
        copies = (
            min(conv.columns.stride, 2) if depth.lanes == 1 else _copies(len(read.pixels), vectors)
        )
        # Of columns and channels in one loop, each column has all channels.
        begin, end = channels if columns == 1 else (count(0), count(depth.lanes * columns))
        stride = column_stride if depth.lanes == 1 else 1
        with build.loop("k", end, begin=begin, unroll=max(copies, 1)) as k:
            _products_of_channel(
                build, conv, tile, read.pixels, vectors, sums, xk, k * stride, wk, k * width
            )

    # Where the channels of neighbouring columns follow each other in the input as they do in the
    # weights, columns and channels are one loop.
    if depth.lanes in {1, column_stride}:
        products(count(read.first), read.count)
    else:
        with build.loop("kw", read.first + read.count, begin=read.first) as kw:
            products(kw, 1)


def _products_of_channel(
    build: Builder,
    conv: Conv,
    tile: TileAt,
    pixels: Sequence[int],
    vectors: int,
    sums: Memory,
    x: Pointer,
    source: Count,
    w: Pointer,
    row: Count,
) -> None:
    """One input channel of each pixel times a row of the panel's weights."""
    weights = [
        build.let(f"w{j}", w.vector(row + j * conv.lanes, conv.lanes)) for j in range(vectors)
    ]
    for pixel in pixels:
        down, right = divmod(pixel, tile.shape.columns)
        offset = (
            down * conv.rows.stride * conv.row_stride
            + right * conv.columns.stride * conv.pixel_stride
        )
        with build.scope():
            a = build.let("a", Splat(x[source + offset], conv.lanes))
            for j in range(vectors):
                build.accumulate(sums[pixel, j], a * weights[j])
