"""Slices of convolutions and pools: chunks of the output's rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from whence.extent import is_symbolic, surely_equal
from whence.kernels.conv.tiles import Axis, Cover, Field, OpenCover
from whence.kernels.ir.slices import Slice, Slices
from whence.kernels.tile import Tile

if TYPE_CHECKING:
    from whence.kernels.conv.bf16x2_program import Bf16x2Conv
    from whence.kernels.conv.depthwise_program import Slide
    from whence.kernels.conv.direct_program import Conv


def least_slices(tile: Tile, images: int, image_bytes: int, weight_bytes: int = 0) -> int:
    """Into how many slices, at least, a kernel is divided whose source and results take so many
    bytes. Each slice reads all weights again.
    """
    if (
        not tile.interleaved
        or is_symbolic(image_bytes)
        or not surely_equal(images, 1)
        or not tile.is_large(image_bytes)
        or weight_bytes > tile.slice_bytes
    ):
        return 1
    return -(-image_bytes // tile.slice_bytes)


def image_slices(
    micro: Conv | Bf16x2Conv | Slide, ends: Sequence[int] | None, *, chunks_inside: bool = False
) -> Slices | None:
    """Slices that end behind so many pixels of the output, each with its work items, which are
    numbered chunk by chunk unless chunks are inside; `None` for several images, and where only run
    time can tell.
    """
    if ends is None or not surely_equal(micro.images, 1):
        return None
    found, of_chunk = [], micro.tasks // len(ends)
    for number, end in enumerate(ends):
        tasks = range(number * of_chunk, (number + 1) * of_chunk)
        if chunks_inside:
            tasks = range(number, micro.tasks, len(ends))
        found.append(Slice(_joined(tasks), _read(micro.rows, micro.columns, end), end))
    return Slices(micro.source, tuple(found))


def chunk_ends(micro: Conv | Slide) -> list[int] | None:
    """Pixels of the output before the end of each chunk; `None` where only run time can tell."""
    cover = micro.cover
    if isinstance(cover, OpenCover):
        return None
    return [
        _unit_end(cover, micro.columns, min(first + micro.chunk, cover.units) - 1)
        for first in range(0, cover.units, micro.chunk)
    ]


def _unit_end(cover: Cover, columns: Field, unit: int) -> int:
    if cover.axis is Axis.ROWS:
        return (unit + 1) * columns.out
    run = next(run for run in cover.runs if run.first <= unit < run.first + run.count)
    start = run.start + (unit - run.first) * run.step
    if cover.axis is Axis.TILES:
        return start + run.shape.columns
    return (start + run.shape.rows) * columns.out


def _read(rows: Field, columns: Field, end: int) -> int:
    """Pixels of the source up to the last one that so many pixels of the output are made of."""
    if rows.size == 1:
        return _reach(columns, end)
    return _reach(rows, -(-end // columns.out)) * columns.size


def _reach(field: Field, end: int) -> int:
    last = (end - 1) * field.stride + (field.kernel - 1) * field.dilation - field.begin
    return max(0, min(last + 1, field.size))


def _joined(tasks: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """From where to where work items follow each other."""
    found: list[tuple[int, int]] = []
    for task in tasks:
        if found and found[-1][1] == task:
            found[-1] = (found[-1][0], task + 1)
        else:
            found.append((task, task + 1))
    return tuple(found)
