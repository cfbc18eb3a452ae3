"""Convolution as a program: the sums of a tile in vector registers, one input value times a row of
a panel's weights a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from whence.extent import surely_equal
from whence.kernels.builder import Builder, Memory, Pointer
from whence.kernels.conv.epilogue import IMAGE, Epilogue, shared_outputs
from whence.kernels.conv.slices import chunk_ends, image_slices
from whence.kernels.conv.tile_loops import (
    EdgeAt,
    TileAt,
    add_products,
    copies,
    each_kernel_row,
    each_tile,
    edge_reads,
)
from whence.kernels.conv.tiles import Cover, Field, OpenCover, Read
from whence.kernels.device.conv import conv_on_device
from whence.kernels.ir import (
    Count,
    Countable,
    Expr,
    Kernel,
    Micro,
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
        if self.panels_outside:
            # Their weights are too many to be read again for each chunk.
            return None
        return image_slices(self, chunk_ends(self))

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
class _Panel:
    """What the tiles of a work item share."""

    conv: Conv
    kernel: Kernel
    vectors: int
    """Of the panel: the last one has what is left."""
    x: Pointer
    w: Pointer
    block: Count
    """The panel's first block of output channels."""
    ahead: Pointer | None
    """The weights to prefetch next."""
    reach: tuple[Count, Count] | None
    """The input channels that the panel depends on, where these are not all."""

    @property
    def width(self) -> int:
        return self.vectors * self.conv.lanes


@dataclass(frozen=True, slots=True)
class _Step:
    """Of a sum, at every position of the kernel."""

    depth: Depth
    source: Count
    """Where it begins in the input."""
    w: Pointer
    channels: tuple[Count, Count]
    """From which to which of its channels the panel's outputs depend on it."""


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
    edge_cost = _EDGE_COST if max(depth.lanes for depth in conv.depths) > 1 else _PLAIN_EDGE_COST

    def whole_panel(vectors: int) -> None:
        item = _Panel(conv, kernel, vectors, x, w, block, ahead, reach)
        tile, edge_tile = partial(_tile, build, item), partial(_edge_tile, build, item)
        each_tile(build, conv.cover, conv.rows, first, last, tile, edge_tile, edge_cost)

    rest = conv.group_vectors % conv.vectors
    if rest and panels > 1:
        with build.when(panel.equals(build.size(panels - 1))):
            whole_panel(rest)
        with build.otherwise():
            whole_panel(conv.vectors)
    else:
        whole_panel(rest or conv.vectors)


def _tile(build: Builder, panel: _Panel, tile: TileAt) -> None:
    conv, pixels, vectors = panel.conv, tile.shape.pixels, panel.vectors
    row, column = conv.rows, conv.columns
    at = build.count(
        "at",
        (tile.row * row.stride - row.begin) * build.size(conv.row_stride)
        + (tile.column * column.stride - column.begin) * conv.pixel_stride,
    )
    sums = build.sums(pixels, vectors, lanes=conv.lanes)
    place = build.count("place", tile.row * build.size(column.out) + tile.column)
    epilogue = Epilogue(conv.outputs, conv.lanes, conv.block, place, panel.block)
    epilogue.prefetch(build, pixels, vectors)

    def add_step(step: _Step) -> None:
        def add_row(kh: Count, reads: list[Read]) -> None:
            for read in reads:
                with build.scope():
                    _add_columns(build, panel, tile, sums, step, kh, read)

        each_kernel_row(build, row, tile, add_row)

    reads_all = all(len(read.pixels) == pixels for read in tile.shape.reads)
    if panel.reach and not conv.ahead and row.kernel == column.kernel == 1 and reads_all:
        _channels_in_reach(build, panel, tile, sums, at)
    else:
        _each_step(build, panel, at, add_step)
    epilogue.store(build, panel.kernel, pixels, vectors, lambda i, j: sums[i, j])


def _channels_in_reach(
    build: Builder, panel: _Panel, tile: TileAt, sums: Memory, at: Count
) -> None:
    """The channels that a panel depends on, of a kernel of one position, in one loop: loops over
    blocks and over what is in reach of each leave the compiler short of registers between them.
    """
    assert panel.reach is not None
    conv, vectors, (first, last) = panel.conv, panel.vectors, panel.reach
    plane, pixels = build.size(conv.depths[0].stride), range(tile.shape.pixels)
    with build.loop("k", last, begin=first, unroll=copies(len(pixels), vectors)) as k:
        source = build.count("from", at + k // conv.block * plane + k % conv.block)
        values = _values(conv, tile, pixels, panel.x, source)
        add_products(build, sums, vectors, panel.w, k * panel.width, values)


def _each_step(build: Builder, panel: _Panel, at: Countable, step: Callable[[_Step], None]) -> None:
    """The steps of all ranges of the sum, of a tile that reads the input from `at` on."""
    conv, offset, done = panel.conv, 0, 0
    taps = conv.rows.kernel * conv.columns.kernel
    for depth in conv.depths:
        first, last = _steps(build, panel, depth, done)
        with build.loop("c", last, begin=first) as c:
            start = at + build.size(depth.start)
            source = build.count("from", start + c * build.size(depth.stride))
            skipped = build.size(offset) + c * (taps * depth.lanes * panel.width)
            w = build.pointer("wc", panel.w, skipped)
            step(_Step(depth, source, w, _channels(build, panel, depth, done, c)))
        done += depth.count * depth.lanes
        offset += depth.size(taps) * panel.width


def _edge_tile(build: Builder, panel: _Panel, tile: EdgeAt) -> None:
    """A tile whose pixels read padding, or are of several rows, or not all there."""
    conv, pixels, vectors = panel.conv, tile.pixels, panel.vectors
    at = edge_reads(build, tile, conv.rows, conv.columns, conv.row_stride, conv.pixel_stride)
    padding = build.constants(
        "padding", (0.0,) * max(depth.lanes for depth in conv.depths), DType.F32
    )
    sums = build.sums(pixels, vectors, lanes=conv.lanes)

    def add_step(step: _Step) -> None:
        begin, end = step.channels
        with build.loop("tap", conv.rows.kernel * conv.columns.kernel) as tap:
            wk = build.pointer("wk", step.w, tap * (step.depth.lanes * panel.width))
            if panel.ahead is not None:
                _prefetch(build, panel.ahead, conv.ahead)
            read: list[Pointer] = []
            for pixel in range(pixels):
                place = build.count(f"at{pixel}", ValueCount(at[tap * pixels + pixel]))
                inside = (place >= 0, panel.x, step.source + place)
                read.append(build.choose_pointer(f"x{pixel}", *inside, padding.pointer))
            with build.loop("k", end, begin=begin, unroll=copies(pixels, vectors)) as k:
                values = [(pixel, pointer[k]) for pixel, pointer in enumerate(read)]
                add_products(build, sums, vectors, wk, k * panel.width, values)

    _each_step(build, panel, 0, add_step)
    epilogue = Epilogue(conv.outputs, conv.lanes, conv.block, tile.place, panel.block)
    epilogue.store(build, panel.kernel, pixels, vectors, lambda i, j: sums[i, j], tile.have)


def _prefetch(build: Builder, ahead: Pointer, lines: int) -> None:
    """Prefetch so many cache lines of the weights, and go on by as many."""
    line = CACHE_LINE // 4
    floats = build.size(lines * line)
    with build.loop("j", floats, step=line, unroll=1) as j:
        build.prefetch(ahead, j)
    build.advance(ahead, floats)


def _steps(build: Builder, panel: _Panel, depth: Depth, done: int) -> tuple[Count, Count]:
    """From which to which step of a range of the sum, before which there are `done` channels, the
    panel's outputs depend on it.
    """
    if panel.reach is None:
        return count(0), count(build.size(depth.count))
    first, last = (bound - done for bound in panel.reach)
    return (
        most(first, 0) // depth.lanes,
        least((last + (depth.lanes - 1)) // depth.lanes, depth.count),
    )


def _channels(
    build: Builder, panel: _Panel, depth: Depth, done: int, step: Count
) -> tuple[Count, Count]:
    """From which to which channel of a step they do."""
    if panel.reach is None:
        return count(0), count(depth.lanes)
    first, last = (bound - done - step * depth.lanes for bound in panel.reach)
    return (
        build.count("k_first", most(first, 0)),
        build.count("k_last", least(last, depth.lanes)),
    )


def _add_columns(
    build: Builder, panel: _Panel, tile: TileAt, sums: Memory, step: _Step, kh: Count, read: Read
) -> None:
    """The products of some neighbouring kernel columns."""
    conv, lanes = panel.conv, step.depth.lanes
    column_stride = conv.columns.dilation * conv.pixel_stride
    row_stride, row_width = conv.rows.dilation * conv.row_stride, lanes * panel.width

    def add(kw: Count, columns: int) -> None:
        place = step.source + kh * build.size(row_stride) + kw * column_stride
        xk = build.pointer("xk", panel.x, place)
        skipped = kh * (conv.columns.kernel * row_width) + kw * row_width
        wk = build.pointer("wk", step.w, skipped)
        if panel.ahead is not None:
            _prefetch(build, panel.ahead, conv.ahead * columns)
        # Unrolled further, a loop over columns would keep input values for the next column in
        # registers that it lacks.
        unroll = (
            min(conv.columns.stride, 2) if lanes == 1 else copies(len(read.pixels), panel.vectors)
        )
        # Of columns and channels in one loop, each column has all channels.
        begin, end = step.channels if columns == 1 else (count(0), count(lanes * columns))
        stride = column_stride if lanes == 1 else 1
        with build.loop("k", end, begin=begin, unroll=unroll) as k:
            values = _values(conv, tile, read.pixels, xk, k * stride)
            add_products(build, sums, panel.vectors, wk, k * panel.width, values)

    # Where the channels of neighbouring columns follow each other in the input as they do in the
    # weights, columns and channels are one loop.
    if lanes in {1, column_stride}:
        add(count(read.first), read.count)
    else:
        with build.loop("kw", read.first + read.count, begin=read.first) as kw:
            add(kw, 1)


def _values(
    conv: Conv, tile: TileAt, pixels: Iterable[int], x: Pointer, source: Count
) -> Iterator[tuple[int, Expr]]:
    """An input channel of each pixel."""
    for pixel in pixels:
        down, right = divmod(pixel, tile.shape.columns)
        offset = (
            down * conv.rows.stride * conv.row_stride
            + right * conv.columns.stride * conv.pixel_stride
        )
        yield pixel, x[source + offset]
