"""Appending to a cache of keys or values (CacheAppend).

Where the result lies in the memory of what it is made from, only the new rows are written.
Otherwise what stands before them is copied, and zeros are put behind.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from whence.errors import UnsupportedError
from whence.graph import Node
from whence.kernels.builder import Builder
from whence.kernels.expressions import apply, cast, number
from whence.kernels.group import Group
from whence.kernels.index import Var, of, ravel
from whence.kernels.ir import (
    Expr,
    Fn,
    Kernel,
    Literal,
    Micro,
    Not,
    SameAddress,
    Stmt,
    Store,
    ValueCount,
    least,
)
from whence.kernels.tile import Tile
from whence.types import DType

_TEXT, _HEAD, _FIRST, _ROW, _COLUMN = "text", "head", "first", "row", "column"


@dataclass(frozen=True, slots=True)
class Append(Micro):
    """Work item t is one head of one text."""

    heads: int
    past_rows: int
    rows: int
    new_rows: int
    columns: int
    dtype: DType
    past: str
    first: Expr
    """Where the new rows begin, from the variables `text`, inside the cache."""
    output: Store
    """An element of the new rows, from the variables `text`, `head`, `row`, `column`, and where it
    lies, from `first` too.
    """

    def program(self, kernel: Kernel) -> tuple[Stmt, ...]:
        build = Builder()
        nothing = number(0, self.dtype)
        with build.tasks(kernel.tasks) as task:
            build.bind(_TEXT, task // self.heads)
            build.bind(_HEAD, task % self.heads)
            first = build.bind(_FIRST, ValueCount(self.first))
            with build.when(Not(SameAddress(self.past, self.output.buffer))):
                past = build.pointer(
                    "before",
                    build.buffer(self.past, self.dtype),
                    task * (self.past_rows * self.columns),
                    alone=False,
                )
                to = build.pointer(
                    "to",
                    build.buffer(self.output.buffer, self.dtype),
                    task * (self.rows * self.columns),
                    written=True,
                    alone=False,
                )
                known = build.count("known", least(first, self.past_rows) * self.columns)
                with build.loop("i", known, vectorise=True) as i:
                    build.assign(to[i], past[i])
                end = self.rows * self.columns
                with build.loop("i", first * self.columns, begin=known) as i:
                    build.assign(to[i], nothing)
                behind = (first + self.new_rows) * self.columns
                with build.loop("i", end, begin=behind, vectorise=True) as i:
                    build.assign(to[i], nothing)
            with build.loop(_ROW, self.new_rows), build.loop(_COLUMN, self.columns, vectorise=True):
                build.add(self.output)
        return build.finish()


def lower_append(group: Group, anchor: Node, tile: Tile) -> Kernel:
    names = ("past", "update", "write_indices")
    past, update, places = (anchor.required(name) for name in names)
    if group.outputs != (anchor.ref(),):
        raise UnsupportedError(f"group '{group.name}' does more than its {anchor.op}")
    batch, heads, past_rows, columns = group.shape(past)
    rows, new_rows = group.shape(anchor.ref())[2], group.shape(update)[2]
    elements = group.elements()
    text, head = Var(_TEXT, batch), Var(_HEAD, heads)
    row, column = Var(_ROW, new_rows), Var(_COLUMN, columns)
    # As many places to begin at as leave room for the new rows.
    room = Literal(rows - new_rows + 1, DType.I64)
    begin = cast(elements.value(places, (of(text),)), DType.I64)
    first = apply(Fn.CHECKED, begin, room)
    place = of(Var(_FIRST, rows - new_rows + 1)) + of(row)
    out_index = ravel((of(text), of(head), place, of(column)), (batch, heads, rows, columns))
    value = elements.value(update, (of(text), of(head), of(row), of(column)))
    position = group.inputs.index(past)
    micro = Append(
        heads,
        past_rows,
        rows,
        new_rows,
        columns,
        group.dtype(past),
        f"in{position}",
        first,
        Store("out0", out_index, value),
    )
    in_place = ((len(group.inputs), position),) if rows == past_rows else ()
    return replace(group.kernel(batch * heads, micro), in_place=in_place)
