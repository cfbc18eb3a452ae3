"""What the taps of a window read: convolutions and pools as loop nests, whichever way channels lie.
An index has one entry for each spatial axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from whence.graph import Node
from whence.kernels.elements import Indices
from whence.kernels.expressions import all_of, apply, both, position, within
from whence.kernels.index import Var, of
from whence.kernels.ir import Expr, Fn, Literal
from whence.ops.attributes import get_int
from whence.ops.neural.window import Transposition, Window
from whence.types import DType

Limits = tuple[int, int]
"""From where to where along an axis."""


def read_places(window: Window, out: Indices, taps: Sequence[Var]) -> Indices:
    """Where in the input an output position reads by these taps."""
    return tuple(
        place * stride + of(tap) * dilation - begin
        for place, stride, tap, dilation, begin in zip(
            out, window.strides, taps, window.dilations, window.begins, strict=True
        )
    )


def are_within(places: Indices, limits: Iterable[Limits]) -> Expr:
    return all_of(
        within(place, low, high) for place, (low, high) in zip(places, limits, strict=True)
    )


def counted_limits(anchor: Node, window: Window, sizes: Sequence[int]) -> list[Limits]:
    """The positions that count in an average; what `ceil_mode` adds past the given padding never
    does.
    """
    if not get_int(anchor.attrs, "count_include_pad", 0):
        return [(0, size) for size in sizes]
    return [
        (-begin, size + end)
        for begin, size, end in zip(window.begins, sizes, window.ends, strict=True)
    ]


def collected_places(
    geometry: Transposition, out: Indices, taps: Sequence[Var], sizes: Sequence[int]
) -> tuple[Expr, Indices]:
    """Of a transposed convolution: output position p collects input position
    q = (p + begin - tap·dilation) / stride where that is whole and exists.
    """
    window, places = geometry.window, []
    inside: Expr = Literal(True, DType.BOOL)
    for place, stride, tap, dilation, begin, size in zip(
        out, window.strides, taps, window.dilations, geometry.begins, sizes, strict=True
    ):
        spread = place + begin - of(tap) * dilation
        whole = (
            Literal(True, DType.BOOL)
            if stride == 1
            else apply(Fn.EQ, position(spread % stride), Literal(0, DType.I64))
        )
        places.append(spread // stride)
        inside = both(inside, both(whole, within(spread // stride, 0, size)))
    return inside, tuple(places)
