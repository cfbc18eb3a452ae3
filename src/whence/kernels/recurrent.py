"""Recurrent layers: the products with the input for many steps at once, then step by step the
products with the state.

Columns of the weights are packed so that a panel holds all gates of a few neighbouring units: when
a panel's sums are done, so are everything its units need. A work item is one direction of a few
sequences.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from whence.errors import UnsupportedError
from whence.graph import Node
from whence.kernels.group import Group, Packed
from whence.kernels.ir import Expr, Kernel, Name
from whence.kernels.recurrent_program import Recurrent
from whence.kernels.recurrent_unit import BEFORE, CELL, HIDDEN, NEW_CELL, RESET, Phase
from whence.kernels.rules.elementwise import activate, add, clip, like, mul, sub
from whence.kernels.tile import Tile
from whence.ops.attributes import get_float, get_floats, get_int, get_str, get_strs
from whence.ops.neural.activation import ACTIVATIONS
from whence.ops.neural.recurrent import CELLS
from whence.types import DType

RECURRENT_OPS = frozenset(CELLS)

# Sums that are needed to keep the arithmetic units busy.
_BUSY = 8
# Steps whose products with the input are made at once: enough to use each weight well, few enough
# to stay in cache.
_STEPS = 64
# Weights of the state from which on a step takes longer than it takes the workers to meet.
_GANG_WEIGHTS = 1 << 17


def lower_recurrent(group: Group, anchor: Node, tile: Tile) -> Kernel:
    """A kernel for a single-precision RNN, GRU or LSTM with constant weights."""
    x, w, r = (ref for ref in anchor.inputs[:3] if ref is not None)
    if (
        any(group.dtype(ref) is not DType.F32 for ref in (x, w, r))
        or group.graph.const_value(w) is None
        or group.graph.const_value(r) is None
    ):
        raise UnsupportedError(
            f"{anchor.op} '{anchor.name}' has weights that are not constants of single precision"
        )
    batch_first = bool(get_int(anchor.attrs, "layout", 0))
    time, batch, inputs = group.shape(x)
    if batch_first:
        time, batch = batch, time
    directions, _, hidden = group.shape(r)
    if 0 in (time, batch, inputs, hidden):
        raise UnsupportedError(f"{anchor.op} '{anchor.name}' of no elements")
    gates = CELLS[anchor.op].gates
    vectors = max(1, min(_BUSY // gates if batch < 4 else 1, -(-hidden // tile.lanes)))
    rows = next(
        count
        for count in range(min(batch, tile.rows_beside(gates * vectors)), 0, -1)
        if batch % count == 0
    )
    is_reverse = get_str(anchor.attrs, "direction", "forward") == "reverse"
    reverse = (False, True) if directions == 2 else (is_reverse,)
    peepholes = anchor.operand("P")
    phases = tuple(
        _phases(anchor, functions, peepholes is not None)
        for functions in _functions(anchor, directions)
    )
    late = 2 if anchor.op == "GRU" else None
    optional = (anchor.input(slot) for slot in (3, 4, 5, 6, 7))
    bias, lengths, start, start_cell, peeped = (
        None if ref is None else group.input_name(ref) for ref in optional
    )
    outputs = tuple(group.output_names(anchor, 3))
    gang = directions * (batch // rows) == 1 and gates * hidden * hidden >= _GANG_WEIGHTS
    micro = Recurrent(
        gates, directions, time, batch, inputs, hidden, rows, gang, tile, vectors, min(time, _STEPS), reverse, batch_first,
        late, phases, group.input_name(x), group.input_name(w), group.input_name(r), bias, lengths, start, start_cell, peeped, outputs,
    )  # fmt: skip
    packing = _Packing(gates, hidden, micro.units)
    panel = directions * micro.panels * micro.width
    packed = {ref: Packed(packing, panel * depth) for ref, depth in ((w, inputs), (r, hidden))}
    products, state = micro.scratch
    tasks = micro.panels if gang else directions * micro.blocks
    scratch = 4 * (products + 4 * state)
    kernel = group.kernel(tasks, micro, scratch_bytes=scratch, packed=packed)
    return replace(kernel, gang=gang)


# ---- what happens in a unit ----


_Function = Callable[[Expr], Expr]


def _function(
    name: str, alphas: Iterator[float], betas: Iterator[float], limit: float
) -> _Function:
    """An activation with its numbers, its argument clipped where the layer says so."""
    known = next((each for each in ACTIVATIONS if each.lower() == name.lower()), None)
    if known is None:
        raise UnsupportedError(f"a recurrent layer asks for the unknown activation {name!r}")
    usual = ACTIVATIONS[known]
    alpha = 0.0 if usual.alpha is None else next(alphas, usual.alpha)
    beta = 0.0 if usual.beta is None else next(betas, usual.beta)

    def function(x: Expr) -> Expr:
        return activate(known, clip(x, -limit, limit) if math.isfinite(limit) else x, alpha, beta)

    return function


def _functions(anchor: Node, directions: int) -> list[list[_Function]]:
    attrs = anchor.attrs
    defaults = CELLS[anchor.op].functions
    names = get_strs(attrs, "activations") or defaults * directions
    alphas, betas = (iter(get_floats(attrs, f"activation_{name}")) for name in ("alpha", "beta"))
    limit = get_float(attrs, "clip", math.inf)
    if len(names) < len(defaults) * directions:
        raise UnsupportedError(f"{anchor.op} '{anchor.name}' names too few activations")
    # The cell state on its way through the third function is not clipped.
    made = [
        _function(name, alphas, betas, limit if at % len(defaults) < 2 else math.inf)
        for at, name in enumerate(names)
    ]
    return [made[at * len(defaults) : (at + 1) * len(defaults)] for at in range(directions)]


def _sum(gate: int) -> Expr:
    return Name(f"x{gate}", DType.F32)


def _phases(anchor: Node, functions: Sequence[_Function], peepholes: bool) -> tuple[Phase, ...]:
    if anchor.op == "RNN":
        return (Phase((0,), False, ((HIDDEN, functions[0](_sum(0))),)),)
    if anchor.op == "LSTM":
        return (_lstm(functions, peepholes, bool(get_int(anchor.attrs, "input_forget", 0))),)
    return _gru(functions, bool(get_int(anchor.attrs, "linear_before_reset", 0)))


def _lstm(functions: Sequence[_Function], peepholes: bool, coupled: bool) -> Phase:
    f, g, h = functions

    def peeped(gate: int, peephole: int, cell: Expr) -> Expr:
        return (
            add(_sum(gate), mul(Name(f"p{peephole}", DType.F32), cell)) if peepholes else _sum(gate)
        )

    enter = Name("enter", DType.F32)
    forget = Name("forget", DType.F32)
    new_cell = Name(NEW_CELL, DType.F32)
    return Phase(
        (0, 1, 2, 3),
        False,
        (
            ("enter", f(peeped(0, 0, CELL))),
            ("forget", sub(like(1.0, enter), enter) if coupled else f(peeped(2, 2, CELL))),
            (NEW_CELL, add(mul(forget, CELL), mul(enter, g(_sum(3))))),
            (HIDDEN, mul(f(peeped(1, 1, new_cell)), h(new_cell))),
        ),
    )


def _gru(functions: Sequence[_Function], linear_before_reset: bool) -> tuple[Phase, ...]:
    f, g = functions
    update = Name("update", DType.F32)
    candidate = Name("candidate", DType.F32)
    late = Name("late", DType.F32)
    blend = add(mul(sub(like(1.0, update), update), candidate), mul(update, BEFORE))
    if linear_before_reset:
        return (
            Phase(
                (0, 1, 2),
                False,
                (
                    ("update", f(_sum(0))),
                    ("candidate", g(add(_sum(2), mul(f(_sum(1)), late)))),
                    (HIDDEN, blend),
                ),
            ),
        )
    return (
        Phase((0, 1), False, (("update", f(_sum(0))), (RESET, mul(f(_sum(1)), BEFORE)))),
        Phase((2,), True, (("candidate", g(add(_sum(2), late))), (HIDDEN, blend))),
    )


@dataclass(frozen=True, slots=True)
class _Packing:
    """Weights `[directions][gates · hidden][depth]` as `[directions][panels][depth][gates][units]`,
    missing units zero.
    """

    gates: int
    hidden: int
    units: int

    def __call__(self, weights: np.ndarray) -> np.ndarray:
        directions, _, depth = weights.shape
        panels = -(-self.hidden // self.units)
        padded = np.zeros((directions, self.gates, panels * self.units, depth), np.float32)
        padded[:, :, : self.hidden] = weights.reshape(directions, self.gates, self.hidden, depth)
        return np.ascontiguousarray(
            padded.reshape(directions, self.gates, panels, self.units, depth).transpose(
                0, 2, 4, 1, 3
            )
        )
