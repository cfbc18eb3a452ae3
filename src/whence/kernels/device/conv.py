"""Convolutions and windows on channel-blocked tensors on a device."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from whence.kernels.builder import Builder
from whence.kernels.conv.epilogue import CHANNELS, IMAGE, LANE, PIXEL
from whence.kernels.conv.tiles import Field
from whence.kernels.device.tiled import TiledProduct
from whence.kernels.ir import Count, Expr, Fn, Literal, Name, Stmt, chosen, count, lanewise
from whence.types import DType

if TYPE_CHECKING:
    from whence.kernels.conv.depthwise_program import Slide
    from whence.kernels.conv.direct_program import Conv


@contextmanager
def on_the_image(
    build: Builder, rows: Field, row: Count, columns: Field, column: Count
) -> Iterator[None]:
    """What happens where a position lies on the image; an axis that is never left is not asked."""
    axes = [(field, at) for field, at in ((rows, row), (columns, column)) if not field.is_inside]
    asked = [each for field, at in axes for each in (at >= 0, at < field.size)]
    if not asked:
        yield
        return
    with build.when(functools.reduce(operator.and_, asked)):
        yield


def conv_on_device(conv: Conv) -> tuple[Stmt, ...]:
    """A product of pixels and output channels, the left operand read through the window."""
    build, rows, columns = Builder(), conv.rows, conv.columns
    taps, channels = rows.kernel * columns.kernel, conv.group_vectors * conv.lanes
    pixels = rows.out * columns.out
    tiled = TiledProduct(build, pixels, channels, conv.depth, conv.images * conv.groups)
    group = build.count("group", tiled.group % conv.groups)
    image = build.bind(IMAGE, tiled.group // conv.groups)
    base = build.count("base", image * conv.image_stride + group * conv.group_stride)
    x, w = build.buffer(conv.source), build.buffer(conv.weights)

    def left(value: Name, m: Count, k: Count) -> None:
        tap, source = count(0), count(0)
        begin = conv.depth
        for depth in reversed(conv.depths):
            end, begin = begin, begin - depth.size(taps)
            at = k - begin
            own = at // (taps * depth.lanes) * depth.stride + at % depth.lanes + depth.start
            is_last = end == conv.depth
            tap = (
                at // depth.lanes % taps
                if is_last
                else chosen(k < end, at // depth.lanes % taps, tap)
            )
            source = own if is_last else chosen(k < end, own, source)
        tap, source = build.count("tap", tap), build.count("from", source)
        kh, kw = tap // columns.kernel, tap % columns.kernel
        row, column = position_of(build, rows, columns, m, kh, kw)
        with on_the_image(build, rows, row, columns, column):
            place = row * conv.row_stride + column * conv.pixel_stride
            build.assign(value, x[base + source + place])

    def right(value: Name, k: Count, n: Count) -> None:
        width, rest = conv.vectors * conv.lanes, conv.group_vectors % conv.vectors * conv.lanes
        own: Count | int = width
        if rest:
            own = chosen((n // width).equals(conv.panels - 1), rest, width)
        begin = (group * channels + n // width * width) * conv.depth
        build.assign(value, w[begin + k * own + n % width])

    def store(m: Count, n: Count) -> None:
        build.bind(PIXEL, m)
        channel = build.count("channel", group * channels + n)
        build.bind(CHANNELS, channel // conv.block)
        build.bind(LANE, channel % conv.block)
        build.add(*conv.outputs)

    tiled.run(left, right, store)
    return build.finish()


def position_of(
    build: Builder,
    rows: Field,
    columns: Field,
    pixel: Count,
    kh: Count,
    kw: Count,
    names: str = "yx",
) -> tuple[Count, Count]:
    """Where a tap of a pixel's window lies."""
    row = pixel // columns.out * rows.stride + kh * rows.dilation - rows.begin
    column = pixel % columns.out * columns.stride + kw * columns.dilation - columns.begin
    return build.count(names[0], row), build.count(names[1], column)


def slide_on_device(slide: Slide) -> tuple[Stmt, ...]:
    """A work item for each element, neighbours in a group are neighbouring channels."""
    build, rows, columns = Builder(), slide.rows, slide.columns
    shares = [
        build.constants(name, values, DType.F32) if len(set(values)) > 1 else None
        for name, values in zip(("row_share", "column_share"), slide.shares, strict=False)
    ]
    pixels = rows.out * columns.out
    (_, pixel, place), (lane, _, _) = build.grid(
        (1, pixels, slide.images * slide.blocks), (slide.block, 1, 1)
    )
    build.bind(LANE, lane)
    build.bind(PIXEL, pixel)
    build.bind(IMAGE, place // slide.blocks)
    block = build.bind(CHANNELS, place % slide.blocks)
    start = 0.0 if slide.fn is Fn.ADD else -math.inf
    total = build.variable("total", Literal(start, DType.F32))
    with build.loop("kh", rows.kernel) as kh, build.loop("kw", columns.kernel) as kw:
        y, x = position_of(build, rows, columns, pixel, kh, kw)
        with on_the_image(build, rows, y, columns, x):
            at = ((place * rows.size + y) * columns.size + x) * slide.block + lane
            value: Expr = build.buffer(slide.source)[at]
            if slide.weights is not None:
                tap = (block * rows.kernel + kh) * columns.kernel + kw
                value = value * build.buffer(slide.weights)[tap * slide.block + lane]
            build.assign(total, lanewise(slide.fn, total, value))
    acc: Expr = total
    places = (pixel // columns.out, pixel % columns.out)
    for table, values, at in zip(shares, slide.shares, places, strict=False):
        acc = acc * (Literal(values[0], DType.F32) if table is None else table[at])
    build.bind_value("acc", acc)
    build.add(*slide.outputs)
    return build.finish()
