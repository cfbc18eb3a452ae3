"""Recurrent layers without a cell: over a sequence, for one step, and Circle's GRU."""

from __future__ import annotations

from whence.frontends.tflite.mapping import Mappings, OperatorCall
from whence.frontends.tflite.operators.lstm import both_ways, over_time
from whence.frontends.tflite.operators.lstm_layer import start_of
from whence.graph.node import Ref
from whence.ops.definition import Attr

# ONNX's layer has no activation that does nothing, but one that is linear.
_FUNCTIONS = {"TANH": "Tanh", "RELU": "Relu", "NONE": "Affine"}


def _rnn_layer(call: OperatorCall, x: Ref, first: int, *, backwards: bool = False) -> Ref:
    """(time, batch, input) → (time, batch, units), with weights, recurrent weights, bias and state
    from input `first` on.
    """
    function = _FUNCTIONS.get(call.activation)
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
    front = call.ints(0)
    made = call.op("Squeeze", _rnn_layer(call, call.op("Unsqueeze", call.real(0), front), 1), front)
    call.output(0, made)


def _sequence_rnn(call: OperatorCall) -> None:
    call.output(0, *over_time(call, call.real(0), lambda x: _rnn_layer(call, x, 1)))


def _bidirectional_rnn(call: OperatorCall) -> None:
    if any(call.has(index) for index in range(9, 12)):
        call.unsupported("its auxiliary input")
    both_ways(
        call,
        lambda x: _rnn_layer(call, x, 1),
        lambda x: _rnn_layer(call, x, 5, backwards=True),
    )


def _gru(call: OperatorCall) -> None:
    """Circle's GRU: gates update, reset and new, the last with its recurrent product made before
    the reset, as ONNX's can.

    Its input is (time, batch, ...) whatever `time_major` says: the tool that writes it never sets
    that, and the runtime that runs it never looks.
    """
    if call.rank(0) != 3:
        call.fail(f"its input has {call.rank(0)} dimensions, not 3")
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
    "BIDIRECTIONAL_SEQUENCE_RNN": _bidirectional_rnn,
    "GRU": _gru,
    "RNN": _rnn,
    "UNIDIRECTIONAL_SEQUENCE_RNN": _sequence_rnn,
}
