"""Loops over tiles of an image in C."""

from __future__ import annotations

from collections.abc import Callable

from whence.codegen.render_c import CWriter
from whence.kernels.conv.tiles import Axis, Cover, Field, Run, Shape


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
