"""TFLite models with state: resource variables, and tensors that operators keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.frontends.tflite.making import Model, Quantised, Subgraph
from tests.frontends.tflite.test_recurrent import (
    BATCH,
    TANH,
    TIME,
    UNITS,
    WIDTH,
    lstm_inputs,
    quantised_lstm,
    real,
)

ABSENT = -1


def handle(graph: Subgraph, name: str) -> int:
    return graph.op(
        "VAR_HANDLE",
        [],
        (),
        options="VarHandleOptions",
        shared_name=name,
        outputs=[graph.tensor((), type_name="RESOURCE")],
    )


def initialise(model: Model, **values: Any) -> None:
    """Give variables their initial values."""
    once, graph = model.subgraph("init")
    for name, value in values.items():
        graph.op("ASSIGN_VARIABLE", [handle(graph, name), graph.const(value)], outputs=[])
    model.op("CALL_ONCE", [], outputs=[], init_subgraph_index=once)


def assign(graph: Subgraph, name: str, value: int) -> None:
    graph.op("ASSIGN_VARIABLE", [handle(graph, name), value], outputs=[])


def resources() -> Model:
    """Two variables: a sum of what came, and what came last; both are read before and after."""
    model = Model()
    x = model.input((2, 3))
    initialise(model, total=np.full((2, 3), 5, np.float32), last=real(2, 3))
    total, last = (
        model.op("READ_VARIABLE", [handle(model, name)], (2, 3)) for name in ("total", "last")
    )
    after = model.op("ADD", [x, total], (2, 3))
    assign(model, "total", after)
    assign(model, "last", x)
    again = model.op("READ_VARIABLE", [handle(model, "total")], (2, 3))
    model.output(model.op("MUL", [again, last], (2, 3)), total)
    return model


def streaming() -> Model:
    """A quantised convolution over the last five inputs, as wake word models have it."""
    model = Model()
    # Scales whose ratio is no power of two: LiteRT's two sets of kernels round halves differently.
    codes = Quantised(0.0613, -3)
    rng = np.random.default_rng(5)
    x = model.input((1, 1, 1, 8), np.int8, codes)
    once, graph = model.subgraph("init")
    zeros = graph.const(np.full((1, 4, 1, 8), -3, np.int8), quantised=codes)
    graph.op("ASSIGN_VARIABLE", [handle(graph, "past"), zeros], outputs=[])
    model.op("CALL_ONCE", [], outputs=[], init_subgraph_index=once)
    past = model.op("READ_VARIABLE", [handle(model, "past")], (1, 4, 1, 8), np.int8, codes)
    whole = model.op("CONCATENATION", [past, x], (1, 5, 1, 8), np.int8, codes, axis=1)
    begin, end, step = (
        model.const(np.array(each, np.int32)) for each in ((0, 1, 0, 0), (1, 5, 1, 8), (1, 1, 1, 1))
    )
    kept = model.op("STRIDED_SLICE", [whole, begin, end, step], (1, 4, 1, 8), np.int8, codes)
    assign(model, "past", kept)
    weights = model.const(
        rng.integers(-127, 128, (4, 5, 1, 8)).astype(np.int8), quantised=Quantised(0.0157)
    )
    bias = model.const(
        rng.integers(-500, 500, 4).astype(np.int32), quantised=Quantised(0.0613 * 0.0157)
    )
    made = model.op(
        "CONV_2D",
        [whole, weights, bias],
        (1, 1, 1, 4),
        np.int8,
        Quantised(0.251, 5),
        padding=1,
        stride_h=1,
        stride_w=1,
        dilation_h_factor=1,
        dilation_w_factor=1,
    )
    model.output(made)
    return model


def lstm(**parts: Any) -> Model:
    model = Model()
    x = model.input((BATCH, TIME, WIDTH))
    states = [model.tensor((BATCH, UNITS), variable=True) for _ in range(2)]
    clip = parts.pop("clip", 0.0)
    inputs = [x, *lstm_inputs(model, **parts), *states]
    options: dict[str, Any] = {"fused_activation_function": TANH, "cell_clip": clip}
    model.output(model.op("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, (BATCH, TIME, UNITS), **options))
    return model


def lstm_both_ways() -> Model:
    model = Model()
    x = model.input((BATCH, TIME, WIDTH))
    weights = [*lstm_inputs(model), *lstm_inputs(model)]
    states = [model.tensor((BATCH, UNITS), variable=True) for _ in range(4)]
    outputs = [model.tensor((BATCH, TIME, UNITS)) for _ in range(2)]
    model.op(
        "BIDIRECTIONAL_SEQUENCE_LSTM",
        [x, *weights, *states, *[ABSENT] * 9],
        outputs=outputs,
        fused_activation_function=TANH,
        merge_outputs=False,
        time_major=False,
    )
    model.output(*outputs)
    return model


def rnn() -> Model:
    model = Model()
    x = model.input((BATCH, WIDTH))
    inputs = [x, model.const(real(UNITS, WIDTH)), model.const(real(UNITS, UNITS) / 2)]
    inputs += [model.const(real(UNITS)), model.tensor((BATCH, UNITS), variable=True)]
    model.output(model.op("RNN", inputs, (BATCH, UNITS), fused_activation_function=TANH))
    return model


def svdf() -> Model:
    model = Model()
    rank, memory = 2, 6
    filters = rank * UNITS
    inputs = [
        model.input((BATCH, WIDTH)),
        model.const(real(filters, WIDTH)),
        model.const(real(filters, memory)),
        model.const(real(UNITS)),
        model.tensor((BATCH, filters * memory), variable=True),
    ]
    options: dict[str, Any] = {
        "options": "SVDFOptions",
        "rank": rank,
        "fused_activation_function": 1,
    }
    model.output(model.op("SVDF", inputs, (BATCH, UNITS), **options))
    return model


def quantised_svdf() -> Model:
    model = Model()
    rank, memory, width = 2, 6, 12
    rng = np.random.default_rng(5)
    filters = rank * UNITS

    def whole(shape: tuple[int, ...], dtype: Any, scale: float, most: int) -> int:
        return model.const(
            rng.integers(-most, most, shape).astype(dtype), quantised=Quantised(scale)
        )

    inputs = [
        model.input((BATCH, width), np.int8, Quantised(0.031, -3)),
        whole((filters, width), np.int8, 0.0079, 127),
        whole((filters, memory), np.int16, 1 / 32768, 32767),
        whole((UNITS,), np.int32, 2**-25, 99999),
        model.tensor((BATCH, filters * memory), np.int16, Quantised(1 / 1024), variable=True),
    ]
    options: dict[str, Any] = {"rank": rank, "fused_activation_function": 1, "version": 3}
    options["options"] = "SVDFOptions"
    model.output(
        model.op("SVDF", inputs, (BATCH, UNITS), np.int8, Quantised(0.0617, -128), **options)
    )
    return model


def branches() -> Model:
    """What is assigned depends on the input: above zero it is added, else all begins again."""
    model = Model()
    x = model.input((2,))
    initialise(model, v=np.array([1, 2], np.float32), w=np.array([3, 4], np.float32))
    then, adding = model.subgraph("then")
    given = adding.input((2,))
    after = adding.op("ADD", [adding.op("READ_VARIABLE", [handle(adding, "v")], (2,)), given], (2,))
    assign(adding, "v", after)
    # The other branch leaves this one alone.
    assign(adding, "w", given)
    adding.output(after)
    otherwise, clearing = model.subgraph("else")
    given = clearing.input((2,))
    assign(clearing, "v", clearing.op("NEG", [given], (2,)))
    clearing.output(clearing.op("ABS", [given], (2,)))
    axis = model.const(np.array([0], np.int32))
    total = model.op("SUM", [x, axis], (), options="ReducerOptions", keep_dims=False)
    asked = model.op("GREATER", [total, model.const(0.0)], (), np.bool_)
    made = model.op("IF", [asked, x], (2,), then_subgraph_index=then, else_subgraph_index=otherwise)
    both = [model.op("READ_VARIABLE", [handle(model, name)], (2,)) for name in "vw"]
    model.output(made, *both)
    return model


def iterations() -> Model:
    """A loop whose iterations count in a variable that no iteration hands on."""
    model = Model()
    x = model.input((2,))
    initialise(model, n=np.array([0, 0], np.float32))
    condition, asking = model.subgraph("cond")
    number = asking.input((), np.int32)
    asking.input((2,))
    asking.output(asking.op("LESS", [number, asking.const(3, np.int32)], (), np.bool_))
    body, iteration = model.subgraph("body")
    number, value = iteration.input((), np.int32), iteration.input((2,))
    count = iteration.op("READ_VARIABLE", [handle(iteration, "n")], (2,))
    count = iteration.op("ADD", [count, iteration.const([1.0, 2.0])], (2,))
    assign(iteration, "n", count)
    iteration.output(iteration.op("ADD", [number, iteration.const(1, np.int32)], (), np.int32))
    iteration.output(iteration.op("ADD", [value, count], (2,)))
    outputs = [model.tensor((), np.int32), model.tensor((2,))]
    model.op(
        "WHILE",
        [model.const(0, np.int32), x],
        outputs=outputs,
        cond_subgraph_index=condition,
        body_subgraph_index=body,
    )
    model.output(outputs[1], model.op("READ_VARIABLE", [handle(model, "n")], (2,)))
    return model


MODELS: dict[str, Callable[[], Model]] = {
    "resources": resources,
    "streaming": streaming,
    "lstm": lstm,
    "lstm with peepholes": lambda: lstm(peepholes=True),
    "lstm with a clipped cell": lambda: lstm(clip=0.3),
    "lstm both ways": lstm_both_ways,
    "quantised lstm": lambda: quantised_lstm(3),
    "rnn": rnn,
    "svdf": svdf,
    "quantised svdf": quantised_svdf,
    "branches": branches,
    "iterations": iterations,
}
