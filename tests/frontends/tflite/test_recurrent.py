"""Recurrent layers, float and quantised, against LiteRT; Circle's GRU against its formula."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontends.tflite.making import Model, Quantised, check, read, run_whence

RNG = np.random.default_rng(9)
BATCH, TIME, WIDTH, UNITS, OUT = 2, 5, 3, 4, 3
ABSENT = -1
TANH = 4


def real(*shape: int) -> np.ndarray:
    return RNG.normal(0, 0.5, shape).astype(np.float32)


def lstm_inputs(
    model, *, coupled=False, peepholes=False, projection=False, units=UNITS, width=WIDTH
):
    """The weights of one direction, from the first input weight to the bias of the projection."""
    out = OUT if projection else units

    def gates(*shape):
        made = [model.const(real(*shape)) for _ in range(4)]
        return [ABSENT, *made[1:]] if coupled else made

    weights, recurrent = gates(units, width), gates(units, out)
    peeps = [
        model.const(real(units)) if peepholes and not (coupled and gate == 0) else ABSENT
        for gate in range(3)
    ]
    tail = (
        [model.const(real(out, units)), model.const(real(out))] if projection else [ABSENT, ABSENT]
    )
    return [*weights, *recurrent, *peeps, *gates(units), *tail]


@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize(
    ("parts", "options"),
    [
        ({}, {}),
        ({"coupled": True}, {}),
        ({"peepholes": True}, {}),
        ({"coupled": True, "peepholes": True}, {}),
        ({"projection": True}, {"proj_clip": 0.2}),
        ({}, {"cell_clip": 0.3}),
        ({}, {"fused_activation_function": 3}),
    ],
)
def test_lstm(parts, options, time_major):
    model = Model()
    shape = (TIME, BATCH, WIDTH) if time_major else (BATCH, TIME, WIDTH)
    out = OUT if parts.get("projection") else UNITS
    x = model.input(shape)
    states = [
        model.tensor((BATCH, out), variable=True),
        model.tensor((BATCH, UNITS), variable=True),
    ]
    inputs = [x, *lstm_inputs(model, **parts), *states]
    options = {"fused_activation_function": TANH, "time_major": time_major, **options}
    model.output(model.op("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, (*shape[:2], out), **options))
    check(model, [real(*shape)])


def test_lstm_with_normalised_gates():
    model = Model()
    x = model.input((BATCH, TIME, WIDTH))
    states = [model.tensor((BATCH, UNITS), variable=True) for _ in range(2)]
    norms = [model.const(1 + real(UNITS)) for _ in range(4)]
    inputs = [x, *lstm_inputs(model), *states, *norms]
    model.output(
        model.op(
            "UNIDIRECTIONAL_SEQUENCE_LSTM",
            inputs,
            (BATCH, TIME, UNITS),
            fused_activation_function=TANH,
        )
    )
    check(model, [real(BATCH, TIME, WIDTH)], relative=1e-4)


def test_a_plain_lstm_is_one_node_and_a_long_one_with_a_clipped_cell_is_a_scan():
    for time, clip, kind in ((5, 0.0, "LSTM"), (5, 0.3, "MatMul"), (100, 0.3, "Scan")):
        model = Model()
        x = model.input((1, time, WIDTH))
        states = [model.tensor((1, UNITS), variable=True) for _ in range(2)]
        inputs = [x, *lstm_inputs(model), *states]
        made = model.op(
            "UNIDIRECTIONAL_SEQUENCE_LSTM",
            inputs,
            (1, time, UNITS),
            fused_activation_function=TANH,
            cell_clip=clip,
        )
        model.output(made)
        assert any(node.op == kind for node in read(model.bytes()))
        check(model, [real(1, time, WIDTH)])


@pytest.mark.parametrize("merge", [False, True])
def test_lstm_both_ways(merge):
    model = Model()
    # With merged outputs LiteRT reads memory it never wrote from the second sample on.
    batch = 1 if merge else BATCH
    x = model.input((batch, TIME, WIDTH))
    weights = [*lstm_inputs(model), *lstm_inputs(model)]
    states = [model.tensor((batch, UNITS), variable=True) for _ in range(4)]
    shape = (batch, TIME, UNITS)
    outputs = (
        [model.tensor((batch, TIME, 2 * UNITS))]
        if merge
        else [model.tensor(shape), model.tensor(shape)]
    )
    inputs = [x, *weights, *states, *[ABSENT] * 9]
    model.op(
        "BIDIRECTIONAL_SEQUENCE_LSTM",
        inputs,
        outputs=outputs,
        fused_activation_function=TANH,
        merge_outputs=merge,
        time_major=False,
    )
    model.output(*outputs)
    check(model, [real(batch, TIME, WIDTH)])


def test_one_step_of_an_lstm():
    model = Model()
    x = model.input((BATCH, WIDTH))
    states = [model.tensor((BATCH, UNITS), variable=True) for _ in range(2)]
    inputs = [x, *lstm_inputs(model), *states]
    model.output(
        model.op(
            "LSTM", inputs, (BATCH, UNITS), options="LSTMOptions", fused_activation_function=TANH
        )
    )
    check(model, [real(BATCH, WIDTH)])


def test_the_short_form_of_an_lstm():
    model = Model()
    inputs = [
        model.input((BATCH, WIDTH)),
        model.input((BATCH, UNITS)),
        model.const(real(4 * UNITS, WIDTH + UNITS)),
        model.const(real(4 * UNITS)),
        model.input((BATCH, UNITS)),
    ]
    shapes = [(BATCH, UNITS), (BATCH, UNITS), (BATCH, WIDTH + UNITS), (BATCH, 4 * UNITS)]
    outputs = [model.tensor(shape) for shape in shapes]
    model.op(
        "LSTM",
        inputs,
        outputs=outputs,
        options="LSTMOptions",
        fused_activation_function=TANH,
        kernel_type=1,
        version=2,
    )
    model.output(*outputs[:2])
    check(model, [real(BATCH, WIDTH), real(BATCH, UNITS), real(BATCH, UNITS)])


def quantised_lstm(
    time: int, *, coupled: bool = False, clip: float = 0.0, peepholes: bool = False
) -> Model:
    """The form that post-training quantisation writes: int8 with 16 bits in the cell."""
    model = Model()
    given, hidden, cell = Quantised(1 / 64, 3), Quantised(1 / 127, -2), Quantised(2**-12)
    x = model.input((1, time, WIDTH), np.int8, given)

    def weight(*shape):
        return model.const(
            RNG.integers(-127, 128, shape).astype(np.int8), quantised=Quantised(1 / 100)
        )

    def peephole(gate):
        there = peepholes and not (coupled and gate == 0)
        return (
            model.const(
                RNG.integers(-9999, 9999, UNITS).astype(np.int16), quantised=Quantised(1 / 32768)
            )
            if there
            else ABSENT
        )

    biases = [
        model.const(RNG.integers(-999, 1000, UNITS).astype(np.int32), quantised=Quantised(1 / 6400))
        for _ in range(4)
    ]
    inputs = [
        x,
        *(weight(UNITS, WIDTH) for _ in range(4)),
        *(weight(UNITS, UNITS) for _ in range(4)),
        *map(peephole, range(3)),
        *biases,
    ]
    if coupled:
        inputs[1] = inputs[5] = inputs[12] = ABSENT
    states = [
        model.tensor((1, UNITS), np.int8, hidden, variable=True),
        model.tensor((1, UNITS), np.int16, cell, variable=True),
    ]
    middle = [model.tensor((), np.int16, Quantised(2**-12)) for _ in range(4)] + [
        model.tensor((), np.int8, hidden)
    ]
    model.output(
        model.op(
            "UNIDIRECTIONAL_SEQUENCE_LSTM",
            [*inputs, ABSENT, ABSENT, *states, *[ABSENT] * 4],
            (1, time, UNITS),
            np.int8,
            hidden,
            intermediates=middle,
            fused_activation_function=TANH,
            cell_clip=clip,
        )
    )
    return model


@pytest.mark.parametrize("time", [1, 7, 80])
@pytest.mark.parametrize("options", [{}, {"coupled": True}, {"clip": 0.4}])
def test_quantised_lstm_to_the_last_bit(time, options):
    codes = RNG.integers(-128, 128, (1, time, WIDTH)).astype(np.int8)
    check(quantised_lstm(time, **options), [codes], quanta=0)


def test_quantised_lstm_with_peepholes_is_close():
    codes = RNG.integers(-128, 128, (1, 7, WIDTH)).astype(np.int8)
    check(quantised_lstm(7, peepholes=True), [codes])


def test_a_quantised_lstm_is_computed_in_integers():
    graph = read(quantised_lstm(3).bytes())
    operators = {node.op for inner in graph.nested() for node in inner}
    assert {"MatMulInteger", "FixedPointScale", "LookUp"} <= operators
    assert "Sigmoid" not in operators


@pytest.mark.parametrize("activation", [0, 1, TANH])
def test_one_step_of_a_simple_layer(activation):
    model = Model()
    state = model.tensor((BATCH, UNITS), variable=True)
    inputs = [
        model.input((BATCH, WIDTH)),
        model.const(real(UNITS, WIDTH)),
        model.const(real(UNITS, UNITS)),
        model.const(real(UNITS)),
        state,
    ]
    model.output(model.op("RNN", inputs, (BATCH, UNITS), fused_activation_function=activation))
    check(model, [real(BATCH, WIDTH)])


@pytest.mark.parametrize("time_major", [False, True])
def test_a_simple_layer_over_a_sequence(time_major):
    model = Model()
    shape = (TIME, BATCH, WIDTH) if time_major else (BATCH, TIME, WIDTH)
    state = model.tensor((BATCH, UNITS), variable=True)
    inputs = [
        model.input(shape),
        model.const(real(UNITS, WIDTH)),
        model.const(real(UNITS, UNITS)),
        model.const(real(UNITS)),
        state,
    ]
    out = (*shape[:2], UNITS)
    model.output(
        model.op(
            "UNIDIRECTIONAL_SEQUENCE_RNN",
            inputs,
            out,
            fused_activation_function=TANH,
            time_major=time_major,
        )
    )
    check(model, [real(*shape)])


def test_a_simple_layer_both_ways():
    model = Model()

    def part():
        return [
            model.const(real(UNITS, WIDTH)),
            model.const(real(UNITS, UNITS)),
            model.const(real(UNITS)),
            model.tensor((BATCH, UNITS), variable=True),
        ]

    inputs = [model.input((BATCH, TIME, WIDTH)), *part(), *part(), ABSENT, ABSENT, ABSENT]
    outputs = [model.tensor((BATCH, TIME, UNITS)), model.tensor((BATCH, TIME, UNITS))]
    model.op(
        "BIDIRECTIONAL_SEQUENCE_RNN",
        inputs,
        outputs=outputs,
        fused_activation_function=TANH,
        time_major=False,
        merge_outputs=False,
    )
    model.output(*outputs)
    check(model, [real(BATCH, TIME, WIDTH)])


@pytest.mark.parametrize("rank", [1, 2])
def test_svdf(rank):
    model = Model()
    filters, memory = rank * UNITS, 6
    state = model.tensor((BATCH, filters * memory), variable=True)
    inputs = [
        model.input((BATCH, WIDTH)),
        model.const(real(filters, WIDTH)),
        model.const(real(filters, memory)),
        model.const(real(UNITS)),
        state,
    ]
    model.output(
        model.op(
            "SVDF",
            inputs,
            (BATCH, UNITS),
            options="SVDFOptions",
            rank=rank,
            fused_activation_function=1,
        )
    )
    check(model, [real(BATCH, WIDTH)])


@pytest.mark.parametrize("rank", [1, 2])
def test_quantised_svdf(rank):
    model = Model()
    filters, memory, width = rank * UNITS, 6, 12
    inputs = [
        model.input((BATCH, width), np.int8, Quantised(1 / 32, -3)),
        model.const(
            RNG.integers(-127, 128, (filters, width)).astype(np.int8), quantised=Quantised(1 / 128)
        ),
        model.const(
            RNG.integers(-32767, 32768, (filters, memory)).astype(np.int16),
            quantised=Quantised(1 / 32768),
        ),
        model.const(
            RNG.integers(-99999, 99999, UNITS).astype(np.int32), quantised=Quantised(2**-25)
        ),
        model.tensor((BATCH, filters * memory), np.int16, Quantised(1 / 1024), variable=True),
    ]
    made = model.op(
        "SVDF",
        inputs,
        (BATCH, UNITS),
        np.int8,
        Quantised(1 / 16, -128),
        options="SVDFOptions",
        rank=rank,
        fused_activation_function=1,
        version=3,
    )
    model.output(made)
    check(model, [RNG.integers(-128, 128, (BATCH, width)).astype(np.int8)])


def test_gru_of_circle():
    model = Model(circle=True)
    weights, recurrent, bias, recurrent_bias = (
        real(3 * UNITS, WIDTH),
        real(3 * UNITS, UNITS),
        real(3 * UNITS),
        real(3 * UNITS),
    )
    x, start = real(TIME, BATCH, WIDTH), real(BATCH, UNITS)
    inputs = [
        model.input(x.shape),
        *(model.const(each) for each in (recurrent, recurrent_bias, weights, bias, start)),
    ]
    model.output(
        model.op("GRU", inputs, (1, BATCH, UNITS), return_sequences=False, time_major=False)
    )
    state = start
    for row in x:
        z, r, h = np.split(row @ weights.T + bias, 3, axis=1)
        rz, rr, rh = np.split(state @ recurrent.T + recurrent_bias, 3, axis=1)
        z, r = 1 / (1 + np.exp(-z - rz)), 1 / (1 + np.exp(-r - rr))
        state = z * state + (1 - z) * np.tanh(h + r * rh)
    (made,) = run_whence(model, [x])
    np.testing.assert_allclose(made[0], state, rtol=1e-5, atol=1e-6)
