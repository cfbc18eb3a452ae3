"""Products and depthwise convolutions of bytes on a device: zero points are subtracted where values
are read, and sums are those of int32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whence.kernels.builder import Builder, Pointer
from whence.kernels.device.conv import on_the_image, position_of
from whence.kernels.device.tiled import TiledProduct
from whence.kernels.expressions import cast
from whence.kernels.integer.byte_vectors import words
from whence.kernels.integer.epilogue import ACCUMULATOR, BATCH, COLUMN, ROW
from whence.kernels.ir import Count, Countable, Counter, Expr, Literal, Name, Stmt, chosen, count
from whence.types import DType

if TYPE_CHECKING:
    from whence.kernels.integer.depthwise_program import IntegerSlide
    from whence.kernels.integer.product_program import IntegerProduct

_ITEMS = 32


def integer_product_on_device(it: IntegerProduct) -> tuple[Stmt, ...]:
    build, shape = Builder(), it.shape
    sizes = (shape.rows, shape.columns, shape.depth, shape.batch)
    tiled = TiledProduct(build, *sizes, DType.I32)
    build.bind(BATCH, tiled.group)
    x = build.pointer("codes", build.buffer(it.source, it.source_type), it.base)
    x_zero = build.let("x_zero", it.x_zero)

    def left(value: Name, m: Count, k: Count) -> None:
        gather = it.gather
        if gather is None:
            build.assign(value, cast(x[m * it.row_stride + k], DType.I32) - x_zero)
            return
        rows, columns = gather.rows, gather.columns
        tap, pixel = build.count("tap", k // gather.taken), m % (rows.out * columns.out)
        kh, kw = tap // columns.kernel, tap % columns.kernel
        row, column = position_of(build, rows, columns, pixel, kh, kw)
        # Padding is the zero point, of which nothing is left.
        with on_the_image(build, rows, row, columns, column):
            image = m // (rows.out * columns.out)
            place = (image * rows.size + row) * columns.size + column
            code = x[place * gather.channels + k % gather.taken]
            build.assign(value, cast(code, DType.I32) - x_zero)

    def right(value: Name, k: Count, n: Count) -> None:
        if it.packing is not None:
            build.assign(value, _packed(build, it, k, n))
            return
        b = build.buffer(it.weights, it.weights_type)
        build.bind(COLUMN, n)
        code = cast(b[count(it.weights_base) + k * shape.columns + n], DType.I32)
        build.assign(value, code if it.w_zero is None else code - it.w_zero)

    def store(m: Count, n: Count) -> None:
        build.bind(ROW, m)
        build.bind(COLUMN, n)
        build.add(*it.outputs)

    tiled.run(left, right, store)
    return build.finish()


def integer_slide_on_device(it: IntegerSlide) -> tuple[Stmt, ...]:
    """A work item for each element, neighbours in a group are neighbouring channels."""
    build, rows, columns = Builder(), it.rows, it.columns
    groups = (-(-it.channels // _ITEMS), rows.out * columns.out, it.images)
    (block, pixel, image), (item, _, _) = build.grid(groups, (_ITEMS, 1, 1))
    channel = build.count("channel", block * _ITEMS + item)
    with build.when(channel < it.channels):
        x = build.buffer(it.source, it.source_type)
        w = build.buffer(it.weights, DType.I8)
        x_zero = build.let("x_zero", it.x_zero)
        vector, lane = _vector(channel, it.channels, it.lanes)
        row_bytes = it.lanes * 4
        base = build.count("base", vector * it.packing.vector_bytes + lane * 4)
        factor = build.let("factor", _factor(w, base + row_bytes, it.packing.zeros.has_sums))
        total = build.variable("total", Literal(0, DType.I32))
        with build.loop("kh", rows.kernel) as kh, build.loop("kw", columns.kernel) as kw:
            y, z = position_of(build, rows, columns, pixel, kh, kw, "yz")
            with on_the_image(build, rows, y, columns, z):
                code = x[((image * rows.size + y) * columns.size + z) * it.channels + channel]
                number = 1 + it.packing.zeros.has_sums + kw * it.quads + kh // 4
                weight = cast(w[base + number * row_bytes + kh % 4], DType.I32) + factor
                build.accumulate(total, (cast(code, DType.I32) - x_zero) * weight)
        build.bind(ROW, image * (rows.out * columns.out) + pixel)
        build.bind(COLUMN, channel)
        build.bind_value(ACCUMULATOR.name, total)
        build.add(*it.outputs)
    return build.finish()


def _vector(column: Count, columns: int, lanes: int) -> tuple[Count, Count]:
    """The vector that holds a column, and its lane there; the last one begins early."""
    vector, lane = column // lanes, column % lanes
    if columns > lanes and columns % lanes:
        lane = chosen(vector.equals(columns // lanes), column - (columns - lanes), lane)
    return vector, lane


def _factor(w: Pointer, place: Count, has_sums: bool) -> Expr:
    """What was left of a column's zero point, negated."""
    return words(w.vector(place, 4)) if has_sums else Literal(0, DType.I32)


def _packed(build: Builder, it: IntegerProduct, k: Count, n: Count) -> Expr:
    """A weight less its zero point, from the panels of `PackBytes`."""
    shape, packing = it.shape, it.packing
    assert packing is not None
    row_bytes = shape.lanes * 4
    vector, lane = _vector(n, shape.columns, shape.lanes)
    small = shape.panels[-1]
    larger = sum(panel > small for panel in shape.panels)
    split = larger * (small + 1)
    size: Countable = small
    within_panel = (vector - split) % small
    if larger:
        size = chosen(vector < split, small + 1, small)
        within_panel = chosen(vector < split, vector % (small + 1), within_panel)
    j = build.count("j", within_panel)
    first = (
        Counter(BATCH) * (sum(shape.panels) * packing.vector_bytes)
        + (vector - j) * packing.vector_bytes
    )
    base = build.count("base", first + lane * 4)
    w = build.buffer(it.weights, DType.I8)
    head = (1 + packing.zeros.has_sums) * (count(size) * row_bytes)
    weight = cast(w[base + head + (k // 4 * size + j) * row_bytes + k % 4], DType.I32)
    if not packing.zeros.has_sums:
        return weight
    return weight + _factor(w, base + (count(size) + j) * row_bytes, True)
