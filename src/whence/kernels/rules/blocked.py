"""Element rules of the conversions between the plain and the channel-blocked layout: index
arithmetic, like every other move.
"""

from __future__ import annotations

from collections.abc import Mapping

from whence.graph import Node
from whence.kernels.elements import Elements, Indices, Rule
from whence.kernels.expressions import below, number, select
from whence.kernels.index import of
from whence.kernels.ir import Expr


def _to_blocked(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    source = node.first_input
    image, outer, row, column, lane = index
    shape = elements.shape(source)
    channel = outer * elements.shape(node.ref())[4] + lane
    rows = (row,) if len(shape) == 4 else ()
    value = elements.value(source, (image, channel, *rows, column))
    # What lies behind the last channel is zero.
    return select(below(channel, shape[1]), value, number(0, value.dtype))


def _from_blocked(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    source = node.first_input
    image, channel, *rows, column = index
    block = elements.shape(source)[4]
    return elements.value(
        source, (image, channel // block, rows[0] if rows else of(0), column, channel % block)
    )


RULES: Mapping[str, Rule] = {"ToBlocked": _to_blocked, "FromBlocked": _from_blocked}
