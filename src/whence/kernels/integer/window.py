"""The spatial axes of integer convolutions."""

from __future__ import annotations

from whence.extent import same_shape
from whence.graph import Node
from whence.kernels.conv.tiles import Field
from whence.ops.neural.window import make_window

_ONE = Field(1, 1, 1, 1, 1, 0)
_NARROW = (1, 1, 1, 0)


def fields(anchor: Node, spatial: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[Field, Field]:
    """The two spatial axes of a convolution. An image of one axis, or one pixel wide, is one row:
    tiles lie along rows.
    """
    window = make_window(anchor.op, anchor.attrs, spatial, kernel)
    axes = (spatial, window.output, window.kernel, window.strides, window.dilations)
    found = [Field(*axis) for axis in zip(*axes, window.begins, window.ends, strict=True)]
    if len(found) == 1:
        return _ONE, found[0]
    rows, columns = found
    is_narrow = same_shape((columns.size, columns.out, columns.kernel, columns.begin), _NARROW)
    return (columns, rows) if is_narrow else (rows, columns)
