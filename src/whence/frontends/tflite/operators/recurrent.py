"""Recurrent layers over a sequence, in one direction or two, and their single step.

A plain LSTM is ONNX's. What that does not have (a projection, normalised gates, a clipped cell,
states that are rounded to codes) is written step by step in smaller operators.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from whence.frontends.tflite.mapping import FUNCTIONS, Mappings, OperatorCall
from whence.frontends.tflite.operators.lstm_integer import integer_layer, is_integer
from whence.frontends.tflite.operators.lstm_layer import (
    Layer,
    LayerOutputs,
    biases,
    clip_limit,
    keep_states,
    stack_inputs,
    start_of,
    stepwise,
)
from whence.graph.node import Ref
from whence.ops.definition import Attr


def _is_plain(layer: Layer) -> bool:
    call = layer.call
    return (
        not layer.has_projection
        and not layer.is_normalised
        and not clip_limit(call, "cell_clip")
        and layer.rounding(layer.hidden_state) is None
        and layer.rounding(layer.cell_state) is None
        and call.activation in FUNCTIONS
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
    weights = stack_inputs(call, [layer.input_weight(gate) for gate in order])
    recurrent = stack_inputs(call, [layer.recurrent_weight(gate) for gate in order])
    bias = biases(layer, order)
    peepholes = None
    if layer.has_peepholes:
        chosen = ("forget", "output", "forget") if coupled else ("input", "output", "forget")
        peepholes = stack_inputs(call, [layer.peephole(gate) for gate in chosen])
    hidden = call.shape(layer.recurrent_weight("output"))[-1]
    if coupled:
        signs = call.row([-1, 1, 1, 1], hidden)
        column = call.const(signs[:, None])
        weights, recurrent = (call.op("Mul", weights, column), call.op("Mul", recurrent, column))
        bias = None if bias is None else call.op("Mul", bias, call.const(signs))
        if peepholes is not None:
            peepholes = call.op("Mul", peepholes, call.const(signs[: 3 * hidden]))
    if bias is not None:
        bias = call.op("Concat", bias, call.const(call.row([0], 4 * hidden)), axis=0)
    front = call.ints(0)
    starts = [start_of(call, state) for state in (layer.hidden_state, layer.cell_state)]
    parts = [
        None if ref is None else call.op("Unsqueeze", ref, front)
        for ref in (weights, recurrent, bias, *starts, peepholes)
    ]
    inputs = [x, *parts[:3], None, *parts[3:]]
    function = FUNCTIONS[call.activation]
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


def _run_layer(layer: Layer, x: Ref) -> Ref:
    """(time, batch, input) → (time, batch, output). The states after it are kept."""
    return keep_states(layer, _plain(layer, x) if _is_plain(layer) else stepwise(layer, x))


def _over_time(call: OperatorCall, x: Ref, *runs: Callable[[Ref], Ref]) -> list[Ref]:
    """What each of `runs` makes of (time, batch, ...), where the operator's own values may have the
    batch first.
    """
    if call.flag("time_major"):
        return [run(x) for run in runs]
    x = call.op("Transpose", x, perm=(1, 0, 2))
    return [call.op("Transpose", run(x), perm=(1, 0, 2)) for run in runs]


def _both_ways(
    call: OperatorCall, auxiliary: range, forward: Callable[[Ref], Ref], back: Callable[[Ref], Ref]
) -> None:
    """The results of a layer in each direction, side by side or each by itself."""
    if any(map(call.has, auxiliary)):
        call.unsupported("its auxiliary input")
    made = _over_time(call, call.real(0), forward, back)
    if call.flag("merge_outputs"):
        made = [call.op("Concat", *made, axis=-1)]
    call.outputs(made)


def _one_step(call: OperatorCall, run: Callable[[Ref], Ref]) -> Ref:
    """What `run` makes of a sequence of one step, the input."""
    front = call.ints(0)
    return call.op("Squeeze", run(call.op("Unsqueeze", call.real(0), front)), front)


def _check_rank(call: OperatorCall) -> None:
    if call.rank(0) != 3:
        call.fail(f"its input has {call.rank(0)} dimensions, not 3")


def _sequence(call: OperatorCall) -> None:
    _check_rank(call)
    layer = Layer(call, 1, 18, 19, 20)
    if is_integer(layer):
        x = call.needed(0)
        made = _over_time(call, x, lambda x: keep_states(layer, integer_layer(layer, x)))
        call.output_codes(0, *made)
    else:
        call.output(0, *_over_time(call, call.real(0), partial(_run_layer, layer)))


def _bidirectional(call: OperatorCall) -> None:
    _check_rank(call)
    layers = (Layer(call, 1, 35, 36), Layer(call, 18, 37, 38, backwards=True))
    _both_ways(call, range(39, 48), *(partial(_run_layer, layer) for layer in layers))


def _single(call: OperatorCall) -> None:
    if call.integer("kernel_type"):
        _basic(call)
        return
    made = _one_step(call, partial(_run_layer, Layer(call, 1, 18, 19, 20)))
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
    call.outputs((shown, cell, joined, sums))


# ONNX's layer has no activation that does nothing, but one that is linear.
_WITHOUT_CELL = {**FUNCTIONS, "NONE": "Affine"}


def _rnn_layer(call: OperatorCall, x: Ref, first: int, *, backwards: bool = False) -> Ref:
    """(time, batch, input) → (time, batch, units), with weights, recurrent weights, bias and state
    from input `first` on.
    """
    function = _WITHOUT_CELL.get(call.activation)
    if function is None:
        call.unsupported(f"a recurrent layer with the activation {call.activation}")
    units = call.shape(first)[0]
    front = call.ints(0)
    bias = None
    if call.has(first + 2):
        bias = call.op("Concat", call.real(first + 2), call.const(call.row([0], units)), axis=0)
    parts = [
        None if ref is None else call.op("Unsqueeze", ref, front)
        for ref in (call.real(first), call.real(first + 1), bias, start_of(call, first + 3))
    ]
    attrs: dict[str, Attr] = {
        "hidden_size": units,
        "direction": "reverse" if backwards else "forward",
        "activations": (function,),
    }
    if function == "Affine":
        attrs |= {"activation_alpha": (1.0,), "activation_beta": (0.0,)}
    outputs = 2 if call.has_state(first + 3) else 1
    every, *ends = call.emit("RNN", [x, *parts[:3], None, parts[3]], attrs, outputs=outputs)
    for end in ends:
        call.assign_state(first + 3, call.op("Squeeze", end, front))
    return call.op("Squeeze", every, call.ints(1))


def _rnn(call: OperatorCall) -> None:
    call.output(0, _one_step(call, lambda x: _rnn_layer(call, x, 1)))


def _sequence_rnn(call: OperatorCall) -> None:
    call.output(0, *_over_time(call, call.real(0), lambda x: _rnn_layer(call, x, 1)))


def _bidirectional_rnn(call: OperatorCall) -> None:
    _both_ways(
        call,
        range(9, 12),
        lambda x: _rnn_layer(call, x, 1),
        lambda x: _rnn_layer(call, x, 5, backwards=True),
    )


def _gru(call: OperatorCall) -> None:
    """Circle's GRU: gates update, reset and new, the last with its recurrent product made before
    the reset, as ONNX's can.

    Its input is (time, batch, ...) whatever `time_major` says: the tool that writes it never sets
    that, and the runtime that runs it never looks.
    """
    _check_rank(call)
    units = call.shape(1)[-1]
    front = call.ints(0)
    biases = [
        call.real(index) if call.has(index) else call.const(call.row([0], 3 * units))
        for index in (4, 2)
    ]
    bias = call.emit(
        "Concat", [call.op("Reshape", ref, call.ints(-1)) for ref in biases], {"axis": 0}
    )
    weights, recurrent, bias = (
        call.op("Unsqueeze", ref, front) for ref in (call.real(3), call.real(1), bias)
    )
    start = call.op("Unsqueeze", call.real(5), front) if call.has(5) else None
    attrs: dict[str, Attr] = {"hidden_size": units, "linear_before_reset": 1}
    every, last = call.emit(
        "GRU", [call.real(0), weights, recurrent, bias, None, start], attrs, outputs=2
    )
    call.assign_state(5, last)
    call.output(
        0, call.op("Squeeze", every, call.ints(1)) if call.flag("return_sequences") else last
    )


MAPPINGS: Mappings = {
    "BIDIRECTIONAL_SEQUENCE_LSTM": _bidirectional,
    "BIDIRECTIONAL_SEQUENCE_RNN": _bidirectional_rnn,
    "GRU": _gru,
    "LSTM": _single,
    "RNN": _rnn,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _sequence,
    "UNIDIRECTIONAL_SEQUENCE_RNN": _sequence_rnn,
}
