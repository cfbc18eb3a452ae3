"""Recurrent layers step by step, for those that no operator of the file can say.

The products with the input are made for all steps at once; what is left for each step are the
products with the state, and the gates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from whence.frontends.tflite.export.call import ExportCall
from whence.types import DType, TensorType

_MOST_STEPS = 256
Constants: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray | None]
"""Of one direction: weights (gates · hidden, input), recurrent weights (gates · hidden, hidden),
biases of both (2 · gates · hidden).
"""
Steps: TypeAlias = Callable[[ExportCall, Constants, int, bool], tuple[int, int]]
"""Writes a direction by its number and whether it runs backwards: all results (time, batch,
hidden), and the last state of its cells.
"""


def lstm_steps(
    call: ExportCall, constants: Constants, number: int, backwards: bool
) -> tuple[int, int]:
    # i, o, f, c = gates(x·W + h·R + b); c' = σ(f)·c + σ(i)·tanh(c); h' = σ(o)·tanh(c')
    weights, recurrence, bias = constants
    hidden = recurrence.shape[1]
    both = None if bias is None else bias[: 4 * hidden] + bias[4 * hidden :]
    inputs = _products_with_input(call, weights, both)
    batch = call.shape(0)[1]
    kind = TensorType(DType.F32, (batch, hidden))
    wide = TensorType(DType.F32, (batch, 4 * hidden))
    h, c = _state(call, 5, number, kind), _state(call, 6, number, kind)
    matrix, made = call.const(recurrence), []
    for x in reversed(inputs) if backwards else inputs:
        total = call.step("ADD", [x, _connected(call, h, batch, matrix, None)], wide)
        i, o, f, g = _gates(call, total, kind, 4)
        i, o, f = (call.step("LOGISTIC", [gate], kind) for gate in (i, o, f))
        kept = call.step("MUL", [f, c], kind)
        taken = call.step("MUL", [i, call.step("TANH", [g], kind)], kind)
        c = call.step("ADD", [kept, taken], kind)
        h = call.step("MUL", [o, call.step("TANH", [c], kind)], kind)
        made.append(h)
    return _together(call, made, backwards, kind), c


def gru_steps(
    call: ExportCall, constants: Constants, number: int, backwards: bool
) -> tuple[int, int]:
    # z, r = σ(x·W + h·R + b); n = tanh(x·W + r·(h·R + b)) or tanh(x·W + (r·h)·R + b); h' = n + z·(h
    # - n)
    weights, recurrence, bias = constants
    hidden = recurrence.shape[1]
    bias = np.zeros(6 * hidden, np.float32) if bias is None else bias
    inputs = _products_with_input(call, weights, bias[: 3 * hidden])
    batch = call.shape(0)[1]
    kind = TensorType(DType.F32, (batch, hidden))
    late = bool(call.integer("linear_before_reset"))
    h, made = _state(call, 5, number, kind), []
    first = call.const(recurrence if late else recurrence[: 2 * hidden])
    second = call.const(recurrence[2 * hidden :])
    biases = bias[3 * hidden :]
    for x in reversed(inputs) if backwards else inputs:
        xz, xr, xn = _gates(call, x, kind, 3)
        product = _connected(call, h, batch, first, biases if late else biases[: 2 * hidden])
        hz, hr, *rest = _gates(call, product, kind, 3 if late else 2)
        z, r = (
            call.step("LOGISTIC", [call.step("ADD", each, kind)], kind)
            for each in ([xz, hz], [xr, hr])
        )
        if late:
            reset = call.step("MUL", [r, rest[0]], kind)
        else:
            kept = call.step("MUL", [r, h], kind)
            reset = _connected(call, kept, batch, second, biases[2 * hidden :])
        n = call.step("TANH", [call.step("ADD", [xn, reset], kind)], kind)
        away = call.step("MUL", [z, call.step("SUB", [h, n], kind)], kind)
        h = call.step("ADD", [n, away], kind)
        made.append(h)
    return _together(call, made, backwards, kind), h


def _products_with_input(
    call: ExportCall, weights: np.ndarray, bias: np.ndarray | None
) -> list[int]:
    """The input's share of the gates, for each step."""
    time, batch, _ = call.shape(0)
    if time > _MOST_STEPS:
        call.unsupported(
            f"{time} steps in operators of their own; at most {_MOST_STEPS} are written so"
        )
    width = weights.shape[0]
    flat = call.reshaped(call.input(0), (time * batch, weights.shape[1]))
    made_flat = _connected(call, flat, time * batch, call.const(weights), bias)
    every = call.reshaped(made_flat, (time, batch, width))
    made = [call.between(TensorType(DType.F32, (batch, width))) for _ in range(time)]
    call.emit("UNPACK", [every], {"num": time, "axis": 0}, outputs=made)
    return made


def _connected(
    call: ExportCall, tensor: int, rows: int, matrix: int, bias: np.ndarray | None
) -> int:
    """x · Wᵀ + b of so many rows."""
    count = call.writer.subgraph.tensors[matrix].shape[0]
    inputs = [tensor, matrix, call.const(np.zeros(count, np.float32) if bias is None else bias)]
    kind = TensorType(DType.F32, (rows, count))
    return call.step("FULLY_CONNECTED", inputs, kind, {"weights_format": 0})


def _gates(call: ExportCall, tensor: int, kind: TensorType, count: int) -> list[int]:
    made = [call.between(kind) for _ in range(count)]
    call.emit("SPLIT", [call.ints(1), tensor], {"num_splits": count}, outputs=made)
    return made


def _state(call: ExportCall, index: int, number: int, kind: TensorType) -> int:
    """What a direction begins with: its part of (direction, batch, hidden), or zeros."""
    batch, hidden = kind.static_shape or (0, 0)
    if not call.has(index):
        return call.const(np.zeros((batch, hidden), np.float32))
    part = call.step(
        "SLICE",
        [call.input(index), call.ints((number, 0, 0)), call.ints((1, batch, hidden))],
        TensorType(DType.F32, (1, batch, hidden)),
    )
    return call.reshaped(part, (batch, hidden))


def _together(call: ExportCall, made: list[int], backwards: bool, kind: TensorType) -> int:
    """The results in the order of time."""
    batch, hidden = kind.static_shape or (0, 0)
    ordered = made[::-1] if backwards else made
    return call.step(
        "PACK",
        ordered,
        TensorType(DType.F32, (len(made), batch, hidden)),
        {"values_count": len(made), "axis": 0},
    )
