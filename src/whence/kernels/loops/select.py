"""Where the largest or smallest element of a row is (ArgMax, ArgMin), and running sums and products
along an axis (CumSum, CumProd).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from whence.errors import UnsupportedError
from whence.extent import is_symbolic
from whence.graph import Node
from whence.kernels.cost import largest_divisor
from whence.kernels.elements import Indices
from whence.kernels.expressions import apply, cast, compute_type, identity, position, select
from whence.kernels.group import Group
from whence.kernels.index import Var, of, unravel
from whence.kernels.ir import (
    TASK,
    Accumulate,
    Accumulator,
    Expr,
    Fn,
    Kernel,
    Literal,
    Loop,
    LoopKind,
    Stmt,
    Store,
)
from whence.kernels.loops.row_nest import RowNest
from whence.ops.attributes import get_int
from whence.types import DType

_ARGS: Mapping[str, Fn] = {"ArgMax": Fn.MAX, "ArgMin": Fn.MIN}
ARG_OPS = frozenset(_ARGS)
_RUNNING: Mapping[str, Fn] = {"CumSum": Fn.ADD, "CumProd": Fn.MUL}
"""What each place holds of the elements up to it."""
RUNNING_OPS = frozenset(_RUNNING)

_LANES = 256
_BEYOND = 2**62


def lower_arg(group: Group, anchor: Node) -> Kernel:
    """The place of the largest or smallest element: first its value, then the first (or last) place
    that has it.
    """
    source = anchor.first_input
    shape = group.shape(source)
    if 0 in shape or group.outputs != (anchor.ref(),):
        raise UnsupportedError(
            f"{anchor.op} '{anchor.name}' of no elements, or with more fused to it"
        )
    axis = get_int(anchor.attrs, "axis", 0) % max(len(shape), 1)
    row = RowNest(group, anchor, shape or (1,), [axis])
    fn = _ARGS[anchor.op]
    best = row.fold("best", fn, identity(fn, row.dtype).value, row.x)
    last = bool(get_int(anchor.attrs, "select_last_index", 0))
    # Beyond every place, whatever the size.
    beyond = _BEYOND if is_symbolic(row.count) else row.count
    nowhere = Literal(-1 if last else beyond, DType.I64)

    def place(index: Indices) -> Expr:
        x = row.x(index)
        hit = apply(Fn.EQ, x, best)
        if x.dtype.is_float:
            # The first NaN is the largest and the smallest.
            hit = apply(Fn.OR, hit, apply(Fn.ISNAN, x))
        return select(hit, position(index[axis]), nowhere)

    found = row.fold("found", Fn.MAX if last else Fn.MIN, int(nowhere.value), place, DType.I64)
    return row.finish_numbers((Store("out0", row.row_number, found),))


def lower_running(group: Group, anchor: Node) -> Kernel:
    """A running sum or product: one step after the other along the axis, neighbours across it side
    by side.
    """
    source = anchor.first_input
    shape = group.shape(source)
    given = group.graph.const_value(anchor.operand("axis"))
    if given is None or 0 in shape or group.outputs != (anchor.ref(),):
        raise UnsupportedError(
            f"{anchor.op} '{anchor.name}' has an axis known only at run time, or no elements"
        )
    axis = int(given.reshape(-1)[0]) % len(shape)
    outer, length, inner = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    lanes = largest_divisor(inner, _LANES)
    task, step, lane = Var(TASK, outer * (inner // lanes)), Var("step", length), Var("lane", lanes)
    front, chunk = unravel(of(task), (outer, inner // lanes))
    along = of(step) * -1 + (length - 1) if get_int(anchor.attrs, "reverse", 0) else of(step)
    flat = (front * length + along) * inner + chunk * lanes + of(lane)
    dtype = compute_type(group.dtype(source))
    fn = _RUNNING[anchor.op]
    value = cast(group.elements().value(source, unravel(flat, shape)), dtype)
    total = Accumulator("total", identity(fn, dtype), lane)
    advance: Stmt = Accumulate(total.name, fn, value, lane)
    store: Stmt = Store("out0", flat, total.value)
    order = (store, advance) if get_int(anchor.attrs, "exclusive", 0) else (advance, store)
    body = (total, Loop(step, (Loop(lane, order, LoopKind.VECTOR),)))
    return group.kernel(task.extent, Loop(task, body))
