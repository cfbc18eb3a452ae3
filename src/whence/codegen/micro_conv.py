"""Convolution in C: the sums of a tile in vector registers, one input value times a row of a
panel's weights a step.
"""

from __future__ import annotations

from collections.abc import Callable

from whence.codegen.epilogue import Epilogue, vector_typedef
from whence.codegen.render_c import CWriter
from whence.kernels.conv.direct import IMAGE, Conv, Depth
from whence.kernels.conv.tiles import Axis, Cover, Field, Read, Run, Shape
from whence.kernels.ir import Micro
from whence.machine import CACHE_LINE

# As many products in a row as it takes to make the loop around them free.
_PRODUCTS = 24


def write_conv(writer: CWriter, micro: Micro) -> None:
    assert isinstance(micro, Conv)
    conv, line = micro, writer.line
    line(vector_typedef(conv.lanes))
    writer.open("for (int64_t task = begin; task < end; task++)")
    panels, chunks = conv.panels, conv.chunks
    rounds = conv.images * chunks
    if conv.panels_outside:
        line(
            f"const int64_t group = task / {panels * rounds}, panel = task / {rounds} % {panels},"
            f" round = task % {rounds};"
        )
    else:
        line(
            f"const int64_t round = task / {conv.groups * panels}, group = task / {panels} %"
            f" {conv.groups}, panel = task % {panels};"
        )
    line(f"const int64_t {IMAGE} = round / {chunks}, chunk = round % {chunks};")
    line(
        f"const int64_t first = chunk * {conv.chunk}, last = first + {conv.chunk} <"
        f" {conv.cover.units} ? first + {conv.chunk} : {conv.cover.units};"
    )
    line(
        f"const float *restrict x = {conv.source} + {IMAGE} * {conv.image_stride} + group *"
        f" {conv.group_stride};"
    )
    line(
        f"const float *restrict w = {conv.weights} + group *"
        f" {conv.group_vectors * conv.lanes * conv.depth} + panel *"
        f" {conv.vectors * conv.lanes * conv.depth};"
    )
    line(
        f"const int64_t block = group * {conv.group_vectors * conv.lanes // conv.block} + panel *"
        f" {conv.vectors * conv.lanes // conv.block};"
    )
    if conv.reach:
        line(
            "static const int16_t reach[][2] = {"
            + ", ".join(f"{{{first}, {last}}}" for first, last in conv.reach)
            + "};"
        )
        line("const int64_t reach_first = reach[panel][0], reach_last = reach[panel][1];")
    if conv.ahead:
        panel = conv.vectors * conv.lanes * conv.depth
        line(
            "const float *ahead = w +"
            f" {panel}{f' + round * {panel // rounds}' if conv.panels_outside and rounds > 1 else ''};"
        )
    rest = conv.group_vectors % conv.vectors
    if rest:
        writer.open(f"if (panel == {panels - 1})")
        _panel(writer, conv, rest)
        line("continue;")
        writer.close()
    if panels > 1 or not rest:
        _panel(writer, conv, conv.vectors)
    writer.close()


def _panel(writer: CWriter, conv: Conv, vectors: int) -> None:
    """All tiles of a work item, for a panel of so many vectors."""
    write_tiles(writer, conv.cover, conv.rows, lambda shape: _tile(writer, conv, shape, vectors))


def write_tiles(
    writer: CWriter, tiles: Cover, rows: Field, write_tile: Callable[[Shape], None]
) -> None:
    """The loops over the units `first` to `last` of a cover.

    Inside them `row` and `column` say where a tile begins, and for a tile one row high `kh_first`
    and `kh_last` say which kernel rows lie on the input, unless all of them do.
    """
    if tiles.axis is Axis.ROWS:
        writer.open("for (int64_t row = first; row < last; row++)")
        _kernel_rows(writer, rows)
        for run in tiles.runs:
            writer.open(
                f"for (int64_t column = {run.start}; column < {run.start + run.count * run.step};"
                f" column += {run.step})"
            )
            write_tile(run.shape)
            writer.close()
        writer.close()
        return
    for run in tiles.runs:
        unit, other = ("column", "row") if tiles.axis is Axis.TILES else ("row", "column")
        _clipped(writer, run)
        writer.line(
            f"const int64_t {unit} = {run.start - run.first * run.step} + unit * {run.step},"
            f" {other} = 0;"
        )
        if run.shape.rows == 1:
            _kernel_rows(writer, rows)
        write_tile(run.shape)
        writer.close()


def write_kernel_rows(
    writer: CWriter, rows: Field, shape: Shape, write_row: Callable[[int | None], None]
) -> None:
    """The loops over the kernel rows that a tile reads, with `kh` as the row; `write_row` is given
    a row of the tile's reads.
    """
    found = {read.row for read in shape.reads}
    for row in sorted(found, key=lambda row: -1 if row is None else row):
        if row is None and (rows.kernel > 1 or not rows.is_inside):
            clipped = shape.rows == 1 and not rows.is_inside
            first, last = ("kh_first", "kh_last") if clipped else ("0", str(rows.kernel))
            writer.open(f"for (int64_t kh = {first}; kh < {last}; kh++)")
        else:
            writer.open("")
            writer.line(f"const int64_t kh = {row or 0};")
        write_row(row)
        writer.close()


def _clipped(writer: CWriter, run: Run) -> None:
    """The loop over those units of the run that belong to the work item."""
    end = run.first + run.count
    begin = f"first > {run.first} ? first : {run.first}" if run.first else "first"
    writer.open(f"for (int64_t unit = {begin}; unit < last && unit < {end}; unit++)")


def _kernel_rows(writer: CWriter, rows: Field) -> None:
    """The kernel rows that lie on the input when the output row is `row`."""
    if rows.is_inside:
        return
    line, taps, dilation = writer.line, rows.kernel, rows.dilation
    line(f"const int64_t above = {rows.begin} - row * {rows.stride}, below = above + {rows.size};")
    line(f"const int64_t kh_first = above <= 0 ? 0 : (above + {dilation - 1}) / {dilation};")
    line(
        f"const int64_t kh_last = below <= 0 ? 0 : below > {(taps - 1) * dilation} ? {taps} :"
        f" (below + {dilation - 1}) / {dilation};"
    )


def _tile(writer: CWriter, conv: Conv, shape: Shape, vectors: int) -> None:
    line = writer.line
    epilogue = Epilogue(conv.outputs, conv.lanes, conv.block)
    pixels = shape.pixels
    row, column = conv.rows, conv.columns
    at = (
        f"(row * {row.stride} - {row.begin}) * {conv.row_stride} + (column * {column.stride} -"
        f" {column.begin}) * {conv.pixel_stride}"
    )
    line(f"const int64_t at = {at};")
    line(f"vec sum[{pixels}][{vectors}];")
    line("#pragma clang loop unroll(full)")
    line(
        f"for (int i = 0; i < {pixels}; i++) for (int j = 0; j < {vectors}; j++) sum[i][j] ="
        " (vec)(0.0f);"
    )
    line(f"const int64_t place = row * {column.out} + column;")
    epilogue.prefetch(writer, pixels, vectors)
    offset = done = 0
    for depth in conv.depths:
        _depth(writer, conv, shape, depth, offset, vectors, done)
        done += depth.count
        offset += depth.size(row.kernel * column.kernel) * vectors * conv.lanes
    epilogue.store(writer, pixels, vectors)


def _depth(
    writer: CWriter,
    conv: Conv,
    shape: Shape,
    depth: Depth,
    offset: int,
    vectors: int,
    done: int,
) -> None:
    """The steps of a stretch of the sum, before which there are `done` others."""
    line, width = writer.line, vectors * conv.lanes
    taps = conv.columns.kernel * depth.lanes * width
    first, last = "0", str(depth.count)
    if conv.reach:
        end = done + depth.count
        first = f"(reach_first > {done} ? reach_first - {done} : 0)" if done else "reach_first"
        last = f"(reach_last < {end} ? reach_last : {end}) - {done}"
    writer.open(f"for (int64_t c = {first}; c < {last}; c++)")
    line(f"const int64_t from = at + {depth.start} + c * {depth.stride};")
    line(f"const float *restrict wc = w + {offset} + c * {conv.rows.kernel * taps};")

    def write_row(row: int | None) -> None:
        for read in shape.reads:
            if read.row == row:
                writer.open("")
                _read(writer, conv, shape, depth, read, vectors)
                writer.close()

    write_kernel_rows(writer, conv.rows, shape, write_row)
    writer.close()


def _read(
    writer: CWriter, conv: Conv, shape: Shape, depth: Depth, read: Read, vectors: int
) -> None:
    """The products of some neighbouring kernel columns."""
    line, width = writer.line, vectors * conv.lanes
    apart = conv.columns.dilation * conv.pixel_stride
    # Where the channels of neighbouring columns follow each other in the input as they do in the
    # weights, columns and channels are one loop.
    joined = depth.lanes in {1, apart}
    first = str(read.first) if joined else "kw"
    if not joined:
        writer.open(f"for (int64_t kw = {read.first}; kw < {read.first + read.count}; kw++)")
    line(
        f"const float *restrict xk = x + from + kh * {conv.rows.dilation * conv.row_stride} +"
        f" {first} * {apart};"
    )
    line(
        f"const float *restrict wk = wc + kh * {conv.columns.kernel * depth.lanes * width} +"
        f" {first} * {depth.lanes * width};"
    )
    if conv.ahead:
        lines = conv.ahead * (read.count if joined else 1)
        line(
            f"for (int j = 0; j < {lines}; j++) __builtin_prefetch(ahead + j * {CACHE_LINE // 4},"
            " 0, 2);"
        )
        line(f"ahead += {lines * CACHE_LINE // 4};")
    # Unrolled further, a loop over columns would keep input values for the next column in registers
    # that it lacks.
    copies = (
        min(conv.columns.stride, 2)
        if depth.lanes == 1
        else -(-_PRODUCTS // (len(read.pixels) * vectors))
    )
    line(
        f"#pragma clang loop unroll_count({copies})"
        if copies > 1
        else "#pragma clang loop unroll(disable)"
    )
    writer.open(f"for (int64_t k = 0; k < {depth.lanes * (read.count if joined else 1)}; k++)")
    for j in range(vectors):
        line(f"const vec w{j} = *(const vec *)(wk + k * {width} + {j * conv.lanes});")
    for pixel in read.pixels:
        down, right = divmod(pixel, shape.columns)
        offset = (
            down * conv.rows.stride * conv.row_stride
            + right * conv.columns.stride * conv.pixel_stride
        )
        products = " ".join(f"sum[{pixel}][{j}] += a * w{j};" for j in range(vectors))
        line(
            f"{{ const vec a = (vec)(xk[{offset} + k * {apart if depth.lanes == 1 else 1}]);"
            f" {products} }}"
        )
    writer.close()
    if not joined:
        writer.close()
