"""RNN, GRU and LSTM in every direction, layout and variation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import Cases
from whence.building.native_code import GANG
from whence.building.program import Segment

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def _layer(
    cases: Cases, op: str, time: int, batch: int, inputs: int, hidden: int, *, bias: bool = True, lengths: Any = None, states: bool = False,
    peepholes: bool = False, **attrs: Any,
) -> None:  # fmt: skip
    gates, directions = _GATES[op], 2 if attrs.get("direction") == "bidirectional" else 1
    first, second = (batch, time) if attrs.get("layout") else (time, batch)
    x = cases.normal(first, second, inputs)
    w, r = (
        cases.const(
            (
                cases.rng.standard_normal((directions, gates * hidden, size)) * 0.6 / size**0.5
            ).astype(np.float32)
        )
        for size in (inputs, hidden)
    )
    b = cases.weights(directions, 2 * gates * hidden) if bias else None
    n = None if lengths is None else cases.feed(np.array(lengths, np.int32))
    shape = (batch, directions, hidden) if attrs.get("layout") else (directions, batch, hidden)
    starts = [cases.normal(*shape) if states else None for _ in range(2 if op == "LSTM" else 1)]
    more = [cases.weights(directions, 3 * hidden)] if peepholes else []
    n_outputs = 3 if op == "LSTM" else 2
    y = cases.build.op(
        op, x, w, r, b, n, *starts, *more, n_outputs=n_outputs, hidden_size=hidden, **attrs
    )
    for index in range(n_outputs):
        cases.expect(y[index], f"{op}_{time}_{batch}_{hidden}_{attrs}_{index}", 1e-5)


@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
def test_sizes_and_directions(op: str):
    cases = Cases()
    _layer(cases, op, 5, 1, 7, 16)
    _layer(cases, op, 70, 1, 3, 40, direction="reverse")
    _layer(cases, op, 3, 2, 20, 5, direction="bidirectional", states=True)
    _layer(cases, op, 4, 6, 8, 33, bias=False)
    _layer(cases, op, 1, 5, 4, 64, direction="bidirectional")
    _layer(cases, op, 9, 4, 6, 10, lengths=[9, 1, 4, 7], direction="bidirectional", states=True)
    cases.check()


@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
def test_batch_first(op: str):
    cases = Cases()
    _layer(cases, op, 5, 3, 7, 16, layout=1, direction="bidirectional", states=True)
    cases.check(peer=False)


def test_variations():
    cases = Cases()
    _layer(cases, "GRU", 6, 2, 5, 20, linear_before_reset=1)
    _layer(cases, "GRU", 6, 1, 5, 20, linear_before_reset=1, bias=False, direction="bidirectional")
    _layer(cases, "GRU", 6, 3, 5, 20, linear_before_reset=1, lengths=[2, 6, 3], clip=0.5)
    _layer(cases, "LSTM", 6, 2, 5, 20, peepholes=True, states=True)
    _layer(cases, "LSTM", 6, 2, 5, 20, clip=0.7)
    _layer(cases, "LSTM", 6, 2, 5, 20, activations=("HardSigmoid", "Softsign", "Relu"))
    _layer(
        cases,
        "RNN",
        6,
        2,
        5,
        20,
        activations=("Relu", "Affine"),
        activation_alpha=(0.3,),
        activation_beta=(0.1,),
        direction="bidirectional",
    )
    cases.check()


def test_coupled_gates():
    cases = Cases()
    _layer(cases, "LSTM", 6, 2, 5, 20, input_forget=1)
    cases.check(peer=False)


@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
def test_large_layers_of_one_sequence_are_done_together(op: str):
    cases = Cases()
    size = {"RNN": 365, "GRU": 211, "LSTM": 190}[op]
    _layer(cases, op, 70, 1, 9, size, states=True)
    _layer(cases, op, 3, 1, 40, size, direction="reverse", bias=False)
    if op == "GRU":
        _layer(cases, op, 4, 1, 5, size, linear_before_reset=1, lengths=[3])
    program = cases.check()
    grains = [
        action.plan.steps[number].grain
        for action in program.actions
        if isinstance(action, Segment)
        for number in range(action.plan.n_steps)
    ]
    assert GANG in grains
