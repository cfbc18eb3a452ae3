"""Recurrent layers: RNN, GRU and LSTM in every direction and layout.

Each direction is one scan over time. The products with the input are made for the whole sequence at
once; only the products with the state are made step by step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np

from whence.errors import ModelError
from whence.ops.attributes import get_float, get_floats, get_int, get_str, get_strs
from whence.ops.definition import Call, OpClass, OpDef, TypeQuery, Value, count, sizes
from whence.ops.neural.activation import ACTIVATIONS, Activation
from whence.ops.neural.matmul import multiply
from whence.ops.operand import named
from whence.ops.operands.checks import demand, demand_lengths, demand_rank, shape_of
from whence.ops.precision import narrow, optional_tensor, tensor, widen
from whence.ops.traits import Trait
from whence.types import Dim, ValueType

_Function: TypeAlias = Callable[[np.ndarray], np.ndarray]
_State: TypeAlias = tuple[np.ndarray, ...]


class RecurrentCell(NamedTuple):
    """What one step of a layer has: how many gates, and the functions it applies if not told."""

    gates: int
    functions: tuple[str, ...]


CELLS: Mapping[str, RecurrentCell] = {
    "RNN": RecurrentCell(1, ("Tanh",)),
    "GRU": RecurrentCell(3, ("Sigmoid", "Tanh")),
    "LSTM": RecurrentCell(4, ("Sigmoid", "Tanh", "Tanh")),
}

_RECURRENT_ACTIVATIONS = frozenset(
    {
        "Relu",
        "Tanh",
        "Sigmoid",
        "Affine",
        "LeakyRelu",
        "ThresholdedRelu",
        "ScaledTanh",
        "HardSigmoid",
        "Elu",
        "Softsign",
        "Softplus",
    }
)


@dataclass(frozen=True, slots=True)
class _Direction:
    """One direction of a layer, in the working type; each matrix has `gates` gates."""

    inputs: np.ndarray
    """(time, batch, gates · hidden): the input's share of every gate, biases included where they
    may be added early.
    """
    recurrence: np.ndarray
    """(hidden, gates · hidden)"""
    recurrence_bias: np.ndarray
    """(gates · hidden)"""
    peepholes: np.ndarray | None
    """(3 · hidden) for input, output and forget gate."""
    functions: tuple[_Function, ...]


_Step: TypeAlias = Callable[[_Direction, np.ndarray, _State], _State]
"""The input's share of the gates and the state before → the state after, output first."""


def _activation(
    name: str, alphas: Iterator[float], betas: Iterator[float], limit: float
) -> _Function:
    """A named function with its numbers, taken from the model's lists in order; its argument is
    clipped to ±`limit` when that is given.
    """
    title = next((known for known in _RECURRENT_ACTIVATIONS if known.lower() == name.lower()), None)
    if title is None:
        raise ModelError(f"a recurrent layer asks for the unknown activation {name!r}")
    known: Activation = ACTIVATIONS[title]
    alpha = None if known.alpha is None else next(alphas, None)
    beta = None if known.beta is None else next(betas, None)

    def function(x: np.ndarray) -> np.ndarray:
        return known(np.clip(x, -limit, limit) if math.isfinite(limit) else x, alpha, beta)

    return function


def _run(call: Call, step: _Step, early_bias: int, n_states: int = 1) -> tuple[Value, ...]:
    """All directions of a layer. `early_bias` gates take their recurrence bias together with the
    input's; the rest keep it apart.
    """
    gates, defaults = CELLS[call.op]
    x, w, r = widen(tensor(call, 0)), widen(tensor(call, 1)), widen(tensor(call, 2))
    bias = optional_tensor(call, 3)
    lengths = optional_tensor(call, 4)
    peepholes = optional_tensor(call, 7)
    dtype, batch_first = tensor(call, 0).dtype, bool(get_int(call.attrs, "layout", 0))
    x = x.swapaxes(0, 1) if batch_first else x
    time, batch = x.shape[:2]
    directions, hidden = r.shape[0], r.shape[2]
    way = get_str(call.attrs, "direction", "forward")
    if directions != (2 if way == "bidirectional" else 1):
        raise ModelError(f"direction {way!r} does not fit weights for {directions} directions")
    limit = get_float(call.attrs, "clip", math.inf)
    names = get_strs(call.attrs, "activations") or tuple(defaults) * directions
    alphas = iter(get_floats(call.attrs, "activation_alpha"))
    betas = iter(get_floats(call.attrs, "activation_beta"))
    # Gates are clipped; the cell state on its way through h is not, as in ONNX Runtime.
    functions = [
        _activation(name, alphas, betas, limit if at % len(defaults) < 2 else math.inf)
        for at, name in enumerate(names)
    ]
    if len(functions) < len(defaults) * directions:
        raise ModelError(f"{len(functions)} activations are too few for {directions} directions")
    starts = [optional_tensor(call, 5 + index) for index in range(n_states)]
    states = [
        np.zeros((directions, batch, hidden), x.dtype)
        if s is None
        else widen(s.swapaxes(0, 1) if batch_first else s)
        for s in starts
    ]
    ends = np.full(batch, time) if lengths is None else lengths
    if ends.size and not 0 <= ends.min() <= ends.max() <= time:
        raise ModelError(f"sequence_lens {ends.tolist()} are not lengths of an axis of {time}")
    y = np.zeros((time, directions, batch, hidden), x.dtype)
    last = [np.empty((directions, batch, hidden), x.dtype) for _ in range(n_states)]
    for d in range(directions):
        both = (
            np.zeros((2, gates * hidden), x.dtype)
            if bias is None
            else widen(bias[d]).reshape(2, gates * hidden)
        )
        added, late = both[0].copy(), both[1]
        added[: early_bias * hidden] += late[: early_bias * hidden]
        inputs = multiply(x, w[d].T) + added
        chosen = tuple(functions[d * len(defaults) : (d + 1) * len(defaults)])
        direction = _Direction(
            inputs, r[d].T, late, None if peepholes is None else widen(peepholes[d]), chosen
        )
        state: _State = tuple(start[d] for start in states)
        times = range(time)
        for at in times[::-1] if way == "reverse" or d == 1 else times:
            new = step(direction, inputs[at], state)
            # A sequence that is shorter than the longest keeps its state and puts out zeros past
            # its end.
            alive = (at < ends)[:, np.newaxis]
            state = (
                new
                if alive.all()
                else tuple(
                    np.where(alive, after, before) for after, before in zip(new, state, strict=True)
                )
            )
            y[at, d] = np.where(alive, new[0], 0)
        for index in range(n_states):
            last[index][d] = state[index]
    if batch_first:
        y, last = y.transpose(2, 0, 1, 3), [state.swapaxes(0, 1) for state in last]
    return tuple(narrow(np.ascontiguousarray(value), dtype) for value in (y, *last))


def _rnn_step(direction: _Direction, gates: np.ndarray, state: _State) -> _State:
    (f,) = direction.functions
    return (f(gates + state[0] @ direction.recurrence),)


def _gru_step(direction: _Direction, gates: np.ndarray, state: _State, *, linear: bool) -> _State:
    """`linear`: the product with the state comes before the reset."""
    f, g = direction.functions
    (before,), first = state, 2 * state[0].shape[1]
    weights, late = direction.recurrence, direction.recurrence_bias[first:]
    z, r = np.split(f(gates[:, :first] + before @ weights[:, :first]), 2, axis=1)
    kept = (
        r * (before @ weights[:, first:] + late)
        if linear
        else (r * before) @ weights[:, first:] + late
    )
    return ((1 - z) * g(gates[:, first:] + kept) + z * before,)


def _lstm_step(direction: _Direction, gates: np.ndarray, state: _State, *, coupled: bool) -> _State:
    f, g, h = direction.functions
    before, cell = state
    i, o, forget, c = np.split(gates + before @ direction.recurrence, 4, axis=1)
    peep_i = peep_o = peep_f = None
    if direction.peepholes is not None:
        peep_i, peep_o, peep_f = np.split(direction.peepholes, 3)
    i = f(i if peep_i is None else i + peep_i * cell)
    forget = 1 - i if coupled else f(forget if peep_f is None else forget + peep_f * cell)
    after = forget * cell + i * g(c)
    o = f(o if peep_o is None else o + peep_o * after)
    return o * h(after), after


def _gru(call: Call) -> tuple[Value, ...]:
    linear = bool(get_int(call.attrs, "linear_before_reset", 0))
    return _run(call, partial(_gru_step, linear=linear), early_bias=2)


def _lstm(call: Call) -> tuple[Value, ...]:
    coupled = bool(get_int(call.attrs, "input_forget", 0))
    return _run(call, partial(_lstm_step, coupled=coupled), early_bias=4, n_states=2)


def _recurrent_flops(query: TypeQuery, outputs: Sequence[ValueType]) -> int:
    """Two operations per multiply-add of both matrices, for every time and sample."""
    x, w, r = query.types[:3]
    return 2 * math.prod(sizes(x)[:2]) * (count(w) + count(r))


def _check_recurrent(query: TypeQuery) -> None:
    gates = CELLS[query.op].gates
    x, w = shape_of(query, 0), shape_of(query, 1)
    direction = get_str(query.attrs, "direction", "forward")
    demand_rank(query, 0, 3, 3)
    directions = 2 if direction == "bidirectional" else 1
    hidden: Dim = get_int(query.attrs, "hidden_size", 0) or None
    if hidden is None and w is not None and len(w) == 3 and isinstance(w[1], int):
        hidden = w[1] // gates
    if not isinstance(hidden, int) or x is None:
        return
    by_batch = bool(get_int(query.attrs, "layout", 0))
    batch = x[0 if by_batch else 1]
    state = (batch, directions, hidden) if by_batch else (directions, batch, hidden)
    demand(query, 1, (directions, gates * hidden, x[2]), "W")
    demand(query, 2, (directions, gates * hidden, hidden), "R")
    demand(query, 3, (directions, 2 * gates * hidden), "B")
    demand(query, 4, (batch,), "sequence_lens")
    demand_lengths(query, 4, x[1 if by_batch else 0])
    demand(query, 5, state, "initial_h")
    if gates == 4:
        demand(query, 6, state, "initial_c")
        demand(query, 7, (directions, 3 * hidden), "P")


_recurrent = partial(
    OpDef,
    classes=OpClass.RECURRENT,
    flops=_recurrent_flops,
    traits=Trait.CHECKS_INDICES,
    operands=named("X", "W", "R", "B", "sequence_lens", "initial_h"),
    check=_check_recurrent,
)
OPS: tuple[OpDef, ...] = (
    _recurrent("RNN", reference=lambda call: _run(call, _rnn_step, early_bias=1)),
    _recurrent("GRU", reference=_gru),
    _recurrent(
        "LSTM",
        reference=_lstm,
        operands=named("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P"),
    ),
)
