"""Every output pixel lies in one tile, and every tile reads exactly the taps that lie on the
input.
"""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whence.kernels.conv.tiles import Axis, Cover, Field, TileShape, cover, open_cover


@st.composite
def _fields(draw: st.DrawFn) -> Field:
    kernel, stride, dilation = (
        draw(st.integers(1, 5)),
        draw(st.integers(1, 3)),
        draw(st.integers(1, 4)),
    )
    begin, end, size = draw(st.integers(0, 6)), draw(st.integers(0, 6)), draw(st.integers(1, 40))
    room = size + begin + end - (kernel - 1) * dilation - 1
    return Field(size + max(-room, 0), max(room, 0) // stride + 1, kernel, stride, dilation, begin)


def _products(tiles: Cover, rows: Field, columns: Field) -> Counter[tuple[int, int, int, int]]:
    """How often each (row, column, kernel row, kernel column) is computed."""
    found: Counter[tuple[int, int, int, int]] = Counter()
    bands = range(rows.out) if tiles.axis is Axis.ROWS else range(1)
    for band in bands:
        for run in tiles.runs:
            for number in range(run.count):
                start = run.start + number * run.step
                top, left = (start, 0) if tiles.axis is Axis.BANDS else (band, start)
                for read in run.shape.reads:
                    in_reach = [
                        tap
                        for tap in range(rows.kernel)
                        if run.shape.rows > 1 or rows.reaches(top, tap)
                    ]
                    for tap in in_reach if read.row is None else [read.row]:
                        for pixel in read.pixels:
                            down, right = divmod(pixel, run.shape.columns)
                            found.update(
                                (top + down, left + right, tap, column)
                                for column in range(read.first, read.first + read.count)
                            )
    return found


@given(_fields(), _fields(), st.integers(1, 20))
def test_each_product_is_computed_once(rows: Field, columns: Field, pixels: int) -> None:
    tiles = cover(rows, columns, pixels)
    expected = {
        (row, column, down, right): 1
        for row in range(rows.out)
        for column in range(columns.out)
        for down in range(rows.kernel)
        for right in range(columns.kernel)
        if rows.reaches(row, down) and columns.reaches(column, right)
    }
    assert dict(_products(tiles, rows, columns)) == expected
    assert tiles.largest <= pixels
    last = tiles.runs[-1]
    assert tiles.units == (rows.out if tiles.axis is Axis.ROWS else last.first + last.count)


def test_tiles_are_even() -> None:
    def heights(out: int, pixels: int) -> list[int]:
        one_row, columns = Field(1, 1, 1, 1, 1, 0), Field(out, out, 1, 1, 1, 0)
        return [
            run.shape.pixels
            for run in cover(one_row, columns, pixels).runs
            for _ in range(run.count)
        ]

    assert heights(32, 14) == [11, 11, 10]
    assert heights(49, 14) == [13, 12, 12, 12]
    assert heights(14, 14) == [14]
    assert heights(40, 14) == [10, 10, 10, 10]


def test_short_rows_share_a_tile() -> None:
    tiles = cover(Field(7, 7, 3, 1, 1, 1), Field(7, 7, 3, 1, 1, 1), 14)
    assert tiles.axis is Axis.BANDS
    assert [(run.count, run.shape.rows) for run in tiles.runs] == [(1, 2), (2, 2), (1, 1)]


def _taps(shape: TileShape) -> set[tuple[int, int]]:
    """Which (pixel, kernel column) a tile reads."""
    return {
        (pixel, read.first + tap)
        for read in shape.reads
        for tap in range(read.count)
        for pixel in read.pixels
    }


@given(
    st.integers(1, 7), st.integers(1, 3), st.integers(1, 3), st.integers(0, 3), st.integers(0, 3),
    st.integers(1, 80),
)  # fmt: skip
def test_border_tiles_of_open_rows_read_what_is_there(
    kernel: int, stride: int, dilation: int, begin: int, end: int, size: int
) -> None:
    """Where rows are so long that both fit, whatever their length is, and however wide tiles are."""
    room = size + begin + end - (kernel - 1) * dilation - 1
    if room < 0:
        return
    columns = Field(size, room // stride + 1, kernel, stride, dilation, begin, end)
    widest = open_cover(Field(9, 9, 1, 1, 1, 0, 0), columns, 6, 3)
    assert (widest.narrower is None) == (widest.largest == 3)
    for tiles in filter(None, (widest, widest.narrower)):
        pixels = tiles.largest
        if columns.all_inside < pixels or columns.out - pixels < -(-begin // stride):
            continue
        for shape, start in ((tiles.left, 0), (tiles.right, columns.out - pixels)):
            if shape is not None:
                assert _taps(shape) == {
                    (pixel, tap)
                    for pixel in range(pixels)
                    for tap in range(kernel)
                    if columns.reaches(start + pixel, tap)
                }
        assert (tiles.left is None) == (begin == 0)
        assert (tiles.right is None) == (end == 0 or stride > 1)
        assert not tiles.knows_ends or (end == 0 or stride == 1)


@given(_fields(), st.integers(1, 20))
def test_tiles_along_a_row_are_those_found_one_by_one(columns: Field, pixels: int) -> None:
    runs = cover(Field(1, 1, 1, 1, 1, 0), columns, pixels).runs
    assert [run.first for run in runs] == list(
        itertools.accumulate((run.count for run in runs[:-1]), initial=0)
    )
    assert all(one.shape != two.shape for one, two in itertools.pairwise(runs))
    for run in runs:
        for start in range(run.start, run.start + run.count * run.step, run.step):
            taps = [
                tuple(pixel for pixel in range(run.step) if columns.reaches(start + pixel, tap))
                for tap in range(columns.kernel)
            ]
            read = {
                tap: each.pixels
                for each in run.shape.reads
                for tap in range(each.first, each.first + each.count)
            }
            assert [read.get(tap, ()) for tap in range(columns.kernel)] == taps


def test_tiles_inside_the_input_are_not_looked_at_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    reaches = Field.reaches

    def counted(field: Field, position: int, tap: int) -> bool:
        asked.append(position)
        return reaches(field, position, tap)

    monkeypatch.setattr(Field, "reaches", counted)
    long = Field(100_000, 100_000, 3, 1, 1, 1)
    tiles = cover(Field(1, 1, 1, 1, 1, 0), long, 6)
    assert sum(run.count for run in tiles.runs) == 100_000 // 5
    assert len(asked) < 100
