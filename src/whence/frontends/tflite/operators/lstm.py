"""LSTM layers over a sequence, in one direction or two, and their single step.

A plain layer is ONNX's LSTM. What that does not have (a projection, normalised gates, a clipped
cell, states that are rounded to codes) is written step by step in smaller operators.
"""

from __future__ import annotations

import numpy as np

from whence.frontends.tflite.mapping import Mappings, OperatorCall
from whence.frontends.tflite.operators.lstm_integer import integer_layer, is_integer
from whence.frontends.tflite.operators.lstm_layer import (
    Layer,
    LayerOutputs,
    biases,
    clip_limit,
    keep_states,
    stack_inputs,
    start_of,
)
from whence.frontends.tflite.operators.lstm_steps import stepwise
from whence.graph.node import Ref
from whence.ops.definition import Attr

_PLAIN = {"TANH": "Tanh", "RELU": "Relu"}


def _is_plain(layer: Layer) -> bool:
    call = layer.call
    return (
        not layer.has_projection
        and not layer.is_normalised
        and not clip_limit(call, "cell_clip")
        and layer.rounding(layer.hidden_state) is None
        and layer.rounding(layer.cell_state) is None
        and call.activation in _PLAIN
    )


def _plain(layer: Layer, x: Ref) -> LayerOutputs:
    """ONNX's LSTM on (time, batch, input); (time, batch, hidden)."""
    call = layer.call
    coupled = layer.is_coupled
    # i = 1 - f = σ(-z_f): with the sign of its forget gate flipped, a layer that couples by
    # forgetting is one that couples by taking in.
    order = (
        ("forget", "output", "forget", "cell") if coupled else ("input", "output", "forget", "cell")
    )
    sign = np.array([-1, 1, 1, 1] if coupled else [1, 1, 1, 1], np.float32)
    weights = stack_inputs(call, [layer.input_weight(gate) for gate in order])
    recurrent = stack_inputs(call, [layer.recurrent_weight(gate) for gate in order])
    bias = biases(layer, order)
    peepholes = None
    if layer.has_peepholes:
        chosen = ("forget", "output", "forget") if coupled else ("input", "output", "forget")
        peepholes = stack_inputs(call, [layer.peephole(gate) for gate in chosen])
    hidden = call.shape(layer.recurrent_weight("output"))[-1]
    if coupled:
        flipped = call.const(np.repeat(sign, hidden))
        column = call.const(np.repeat(sign, hidden)[:, None])
        weights, recurrent = (call.op("Mul", weights, column), call.op("Mul", recurrent, column))
        bias = None if bias is None else call.op("Mul", bias, flipped)
        peepholes = (
            None
            if peepholes is None
            else call.op("Mul", peepholes, call.const(np.repeat(sign[:3], hidden)))
        )
    if bias is not None:
        bias = call.op("Concat", bias, call.const(np.zeros(4 * hidden, np.float32)), axis=0)
    front = call.ints(0)
    starts = [start_of(call, state) for state in (layer.hidden_state, layer.cell_state)]
    inputs = [x] + [
        None if ref is None else call.op("Unsqueeze", ref, front)
        for ref in (weights, recurrent, bias)
    ]
    inputs += [
        None,
        *(
            None if ref is None else call.op("Unsqueeze", ref, front)
            for ref in (*starts, peepholes)
        ),
    ]
    function = _PLAIN[call.activation]
    attrs: dict[str, Attr] = {
        "hidden_size": hidden,
        "direction": "reverse" if layer.backwards else "forward",
        "activations": ("Sigmoid", function, function),
    }
    if coupled:
        attrs["input_forget"] = 1
    # A layer that keeps no state is asked for none.
    outputs = 3 if call.has_state(layer.hidden_state) or call.has_state(layer.cell_state) else 1
    made = call.emit("LSTM", inputs, attrs, outputs=outputs)
    every = call.op("Squeeze", made[0], call.ints(1))
    ends = [call.op("Squeeze", ref, front) for ref in made[1:]] or [every, every]
    return LayerOutputs(every, *ends)


def run_layer(layer: Layer, x: Ref) -> Ref:
    """(time, batch, input) → (time, batch, output). The states after it are kept."""
    return keep_states(layer, _plain(layer, x) if _is_plain(layer) else stepwise(layer, x))


def transposed(call: OperatorCall, x: Ref, *, is_transposed: bool) -> Ref:
    """Between (batch, time, ...) and (time, batch, ...)."""
    return call.op("Transpose", x, perm=(1, 0, 2)) if is_transposed else x


def _sequence(call: OperatorCall) -> None:
    swap = not call.flag("time_major")
    if call.rank(0) != 3:
        call.fail(f"its input has {call.rank(0)} dimensions, not 3")
    layer = Layer(call, 1, 18, 19, 20)
    if is_integer(layer):
        made = transposed(
            call,
            keep_states(
                layer,
                integer_layer(layer, transposed(call, call.needed(0), is_transposed=swap)),
            ),
            is_transposed=swap,
        )
        call.output_codes(0, made)
    else:
        made = transposed(
            call,
            run_layer(layer, transposed(call, call.real(0), is_transposed=swap)),
            is_transposed=swap,
        )
        call.output(0, made)


def _bidirectional(call: OperatorCall) -> None:
    if any(call.has(index) for index in range(39, 48)):
        call.unsupported("its auxiliary input")
    if call.rank(0) != 3:
        call.fail(f"its input has {call.rank(0)} dimensions, not 3")
    swap = not call.flag("time_major")
    x = transposed(call, call.real(0), is_transposed=swap)
    forward = transposed(call, run_layer(Layer(call, 1, 35, 36), x), is_transposed=swap)
    backward = transposed(
        call, run_layer(Layer(call, 18, 37, 38, backwards=True), x), is_transposed=swap
    )
    if call.flag("merge_outputs"):
        call.output(0, call.op("Concat", forward, backward, axis=-1))
    else:
        call.output(0, forward)
        call.output(1, backward)


def _single(call: OperatorCall) -> None:
    if call.integer("kernel_type"):
        _basic(call)
        return
    front = call.ints(0)
    layer = Layer(call, 1, 18, 19, 20)
    made = call.op("Squeeze", run_layer(layer, call.op("Unsqueeze", call.real(0), front)), front)
    if call.n_outputs != 1:
        call.unsupported(
            f"its {call.n_outputs} outputs, a form that converters have not written since 2018"
        )
    call.output(0, made)


def _basic(call: OperatorCall) -> None:
    """The short form: input and output before are side by side, and one matrix makes the gates
    input, cell, forget, output of both.
    """
    joined = call.op("Concat", call.real(0), call.real(1), axis=-1)
    bias = call.bias(3)
    sums = call.op("MatMul", joined, call.op("Transpose", call.real(2), perm=(1, 0)))
    sums = sums if bias is None else call.op("Add", sums, bias)
    i, c, f, o = call.emit("Split", [sums], {"axis": -1, "num_outputs": 4}, outputs=4)
    taken = call.op("Mul", call.op("Sigmoid", i), call.op("Tanh", c))
    cell = call.op("Add", call.op("Mul", call.op("Sigmoid", f), call.real(4)), taken)
    shown = call.op("Mul", call.op("Sigmoid", o), call.op("Tanh", cell))
    for index, ref in enumerate((shown, cell, joined, sums)):
        call.output(index, ref)


MAPPINGS: Mappings = {
    "BIDIRECTIONAL_SEQUENCE_LSTM": _bidirectional,
    "LSTM": _single,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _sequence,
}
