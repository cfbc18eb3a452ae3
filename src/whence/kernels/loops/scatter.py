"""Writing at computed places (ScatterND, ScatterElements), and the element rules of operators that
read at computed places.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from whence.errors import UnsupportedError
from whence.extent import is_symbolic, same_shape
from whence.graph import Node, Ref
from whence.kernels.cost import largest_divisor
from whence.kernels.elements import Elements, Indices, Rule
from whence.kernels.expressions import apply, cast, load, position, select
from whence.kernels.index import Index, LoadedIndex, Var, of, ravel, unravel
from whence.kernels.ir import (
    TASK,
    Expr,
    Fn,
    If,
    Kernel,
    Loop,
    LoopKind,
    Not,
    SameAddress,
    Stmt,
    Store,
    count,
    least,
    nested,
)
from whence.kernels.rules.movement import looked_up, read_at
from whence.ops.attributes import get_int, get_str
from whence.ops.registry import operators
from whence.ops.traits import Trait
from whence.types import DType

if TYPE_CHECKING:
    from whence.kernels.group import Group

SCATTER_OPS = operators(Trait.SCATTERS)

# Columns a work item writes: whole vectors, and enough work items for a few threads.
_COLUMNS = 64
_REDUCTIONS: Mapping[str, Fn | None] = {
    "none": None,
    "add": Fn.ADD,
    "mul": Fn.MUL,
    "max": Fn.MAX,
    "min": Fn.MIN,
}


def lower_scatter(group: Group, anchor: Node) -> Kernel:
    """A kernel that copies the data and then writes the updates in their order, so that of two for
    one place the later wins.

    A work item owns a range of columns: the dimensions that updates do not choose among. So work
    items never write to the same place.
    """
    data, indices, updates = (ref for ref in anchor.inputs[:3] if ref is not None)
    if group.outputs != (anchor.ref(),):
        raise UnsupportedError(f"group '{group.name}' does more than its {anchor.op}")
    shape = group.shape(data)
    if 0 in shape or 0 in group.shape(indices) or 0 in group.shape(updates):
        raise UnsupportedError(f"{anchor.op} '{anchor.name}' has an empty operand")
    outer, rows, columns = _division(anchor, shape, group.shape(indices))
    # Every work item has equally many, unless the number is open.
    chunk = _COLUMNS if is_symbolic(columns) else largest_divisor(columns, _COLUMNS)
    chunks = -(-columns // chunk)
    task = Var(TASK, outer * chunks)
    place, column = unravel(of(task), (outer, chunks))
    lane = Var("lane", chunk)
    end = least(chunk, columns - count(column * chunk)) if is_symbolic(columns) else None
    first = column * chunk + of(lane)

    elements = group.elements()
    row = Var("row", rows)
    whole = place * (rows * columns) + of(row) * columns + first
    copied = Store("out0", whole, elements.value(data, unravel(whole, shape)))
    copy: Stmt = Loop(lane, (copied,), LoopKind.VECTOR, end=end)
    steps, store = _update(group, anchor, elements, (data, indices, updates), place, first)
    whole_copy: Stmt = Loop(row, (copy,))
    in_place: tuple[tuple[int, int], ...] = ()
    if _is_state(group, anchor, data):
        position = group.inputs.index(data)
        in_place = ((len(group.inputs), position),)
        whole_copy = If(Not(SameAddress(f"in{position}", "out0")), (whole_copy,))
    update = Loop(lane, (store,), LoopKind.VECTOR, end=end)
    body = (whole_copy, *nested(steps, (update,)))
    return replace(group.kernel(task.extent, Loop(task, body)), in_place=in_place)


def _is_state(group: Group, anchor: Node, data: Ref) -> bool:
    """Is it a variable that nothing else in the group reads? Its next value may lie where it does,
    and then only the updates are written.
    """
    return (
        data in group.inputs
        and group.graph[data.node].op == "Variable"
        and not any(data in node.inputs for node in group.members if node is not anchor)
        and list(anchor.inputs).count(data) == 1
    )


def _division(anchor: Node, shape: Sequence[int], indices: Sequence[int]) -> tuple[int, int, int]:
    """The data as outer × rows × columns: updates choose a row, and keep to their own outer place
    and column.
    """
    if anchor.op == "ScatterND":
        depth = int(indices[-1])
        return 1, math.prod(shape[:depth]), math.prod(shape[depth:])
    axis = _axis(anchor, len(shape))
    # Dimensions that the updates cover only in part must be walked, not divided among work items.
    outer = math.prod(shape[:axis]) if same_shape(shape[:axis], indices[:axis]) else 1
    columns = (
        math.prod(shape[axis + 1 :]) if same_shape(shape[axis + 1 :], indices[axis + 1 :]) else 1
    )
    return outer, math.prod(shape) // (outer * columns), columns


def _update(
    group: Group,
    anchor: Node,
    elements: Elements,
    refs: tuple[Ref, Ref, Ref],
    outer: Index,
    column: Index,
) -> tuple[Sequence[Var], Store]:
    """The loops over all updates, and what is stored for one."""
    data, indices, updates = refs
    shape, index_shape = group.shape(data), group.shape(indices)
    if anchor.op == "ScatterND":
        depth = int(index_shape[-1])
        step = Var("update", math.prod(index_shape[:-1]))
        tuples = unravel(of(step), index_shape[:-1])
        places = [
            looked_up(elements, indices, (*tuples, of(axis)), shape[axis]) for axis in range(depth)
        ]
        target = (*places, *unravel(column, shape[depth:]))
        steps, source = [step], (*tuples, *unravel(column, shape[depth:]))
    else:
        axis = _axis(anchor, len(shape))
        outer_whole = same_shape(shape[:axis], index_shape[:axis])
        inner_whole = same_shape(shape[axis + 1 :], index_shape[axis + 1 :])
        front = [] if outer_whole else [Var(f"u{at}", index_shape[at]) for at in range(axis)]
        back = []
        if not inner_whole:
            back = [Var(f"u{at}", index_shape[at]) for at in range(axis + 1, len(shape))]
        along = Var("update", index_shape[axis])
        before = unravel(outer, shape[:axis]) if outer_whole else tuple(of(var) for var in front)
        after = (
            unravel(column, shape[axis + 1 :]) if inner_whole else tuple(of(var) for var in back)
        )
        source = (*before, of(along), *after)
        target = (*before, looked_up(elements, indices, source, shape[axis]), *after)
        steps = [*front, along, *back]
    fn = _REDUCTIONS[get_str(anchor.attrs, "reduction", "none")]
    flat = ravel(target, shape)
    value = elements.value(updates, source)
    if fn is not None:
        value = apply(fn, load("out0", flat, group.dtype(anchor.ref())), value)
    return steps, Store("out0", flat, value)


def _axis(node: Node, rank: int) -> int:
    return get_int(node.attrs, "axis", 0) % rank


# ---- reading ----


def _gather_nd(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    data, indices = node.first_input, node.required("indices")
    batch = get_int(node.attrs, "batch_dims", 0)
    shape, index_shape = elements.shape(data), elements.shape(indices)
    prefix, depth = index[: len(index_shape) - 1], index_shape[-1]
    places = [
        looked_up(elements, indices, (*prefix, of(at)), shape[batch + at]) for at in range(depth)
    ]
    return read_at(elements, data, (*index[:batch], *places, *index[len(index_shape) - 1 :]))


def _reverse_sequence(elements: Elements, node: Node, output: int, index: Indices) -> Expr:
    data, lengths = node.first_input, node.required("sequence_lens")
    time, batch = get_int(node.attrs, "time_axis", 0), get_int(node.attrs, "batch_axis", 1)
    extent = elements.shape(data)[time]
    length = cast(elements.value(lengths, (index[batch],)), DType.I64)
    here = position(index[time])
    back = apply(Fn.SUB, apply(Fn.SUB, length, here), position(of(1)))
    at = select(apply(Fn.LT, here, length), back, here)
    # A negative length is none, as one beyond the axis.
    at = select(apply(Fn.LT, length, position(of(0))), position(of(extent)), at)
    safe = apply(Fn.CHECKED, at, position(of(extent)))
    return read_at(
        elements, data, (*index[:time], of(LoadedIndex(safe, extent)), *index[time + 1 :])
    )


RULES: Mapping[str, Rule] = {"GatherND": _gather_nd, "ReverseSequence": _reverse_sequence}
