"""Recurrent layers: an LSTM as one operator for each direction, and the GRU that only Circle has.
Others are written step by step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whence.frontends.tflite.export.call import ExportCall, Exports
from whence.frontends.tflite.export.recurrent_steps import Steps, gru_steps, lstm_steps
from whence.frontends.tflite.export.state import readers
from whence.frontends.tflite.schema import Option
from whence.graph.node import Node
from whence.ops.attributes import get_strs
from whence.types import DType, TensorType

_TANH = 4
_LSTM_GATES = {"input": 0, "forget": 2, "cell": 3, "output": 1}
"""The position of each gate in the graph's weights, in the order of the file's operator."""


@dataclass(frozen=True, slots=True)
class _Layer:
    """The constants of all directions of a layer."""

    weights: np.ndarray
    recurrence: np.ndarray
    bias: np.ndarray | None
    directions: tuple[str, ...]

    @property
    def hidden(self) -> int:
        return int(self.recurrence.shape[2])

    @property
    def biases(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the first direction: what is added to the product with the input, and with the state;
        zeros where there are none.
        """
        count = self.recurrence.shape[1]
        both = np.zeros(2 * count, np.float32) if self.bias is None else self.bias[0]
        return both[:count], both[count:]


def _layer(call: ExportCall, gates: int, functions: tuple[str, ...]) -> _Layer:
    weights, recurrence = call.value(1), call.value(2)
    bias = call.value(3)
    if weights is None or recurrence is None or (call.has(3) and bias is None):
        call.unsupported("its weights are computed while the model runs")
    if call.has(4):
        call.unsupported("sequences of different lengths")
    direction = call.text("direction", "forward")
    directions = ("forward", "reverse") if direction == "bidirectional" else (direction,)
    asked = tuple(name.lower() for name in get_strs(call.node.attrs, "activations"))
    if asked and asked != functions * len(directions):
        call.unsupported(f"activations {', '.join(asked)}")
    if call.integer("layout") or call.number("clip", 0.0):
        call.unsupported("another layout, or limits inside")
    assert recurrence.shape[1] == gates * recurrence.shape[2]
    return _Layer(weights, recurrence, bias, directions)


def _lstm(call: ExportCall) -> None:
    layer = _layer(call, 4, ("sigmoid", "tanh", "tanh"))
    states = call.writer.state.of_layer.get(call.node.id)
    if (call.has(7) and states is None) or call.integer("input_forget"):
        call.unsupported("peepholes, or gates that are coupled")
    # The file's operator keeps its states from one run to the next. It is the one to write for a
    # layer that does so, too; a layer that begins anew in every run it would make wrong from the
    # second run on.
    if states is None or len(layer.directions) != 1:
        cells = _by_steps(call, layer, lstm_steps)
        if call.is_used(2):
            # (direction, batch, hidden)
            options = {"values_count": len(cells), "axis": 0}
            call.emit("PACK", cells, options, outputs=[call.output(2)])
        return
    _outputs(call, layer, [_one_direction(call, layer, states)])


def _by_steps(call: ExportCall, layer: _Layer, write: Steps) -> list[int]:
    """Every step in operators of its own. Returns the last cell state of each direction."""
    made, cells = [], []
    for number, direction in enumerate(layer.directions):
        bias = None if layer.bias is None else layer.bias[number]
        every, cell = write(
            call,
            (layer.weights[number], layer.recurrence[number], bias),
            number,
            direction == "reverse",
        )
        made.append(every)
        cells.append(cell)
    _outputs(call, layer, made)
    return cells


def _one_direction(call: ExportCall, layer: _Layer, states: Sequence[Node]) -> int:
    """The results of all steps, (time, batch, hidden), in the order of time."""
    time, batch, _ = call.shape(0)
    hidden = layer.hidden
    x = _in_order(call, layer, call.input(0), call.type(0))

    def gate(matrix: np.ndarray, name: str) -> np.ndarray:
        first = _LSTM_GATES[name] * hidden
        return matrix[first : first + hidden]

    both = np.add(*layer.biases)
    weights = [call.const(gate(layer.weights[0], name)) for name in _LSTM_GATES]
    recurrence = [call.const(gate(layer.recurrence[0], name)) for name in _LSTM_GATES]
    biases = [call.const(gate(both, name)) for name in _LSTM_GATES]
    state = [call.writer.subgraph.variable(each.name, (batch, hidden)) for each in states]
    inputs = [x, *weights, *recurrence, *_peepholes(call, hidden), *biases, None, None, *state]
    options: dict[str, Option] = {
        "fused_activation_function": _TANH,
        "cell_clip": 0.0,
        "proj_clip": 0.0,
        "time_major": True,
    }
    kind = TensorType(DType.F32, (time, batch, hidden))
    made = call.step("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, kind, options)
    return _in_order(call, layer, made, kind)


def _in_order(call: ExportCall, layer: _Layer, tensor: int, kind: TensorType) -> int:
    """The steps in the order in which the layer takes them, or back in the order of time."""
    if layer.directions != ("reverse",):
        return tensor
    return call.step("REVERSE_V2", [tensor, call.ints([0])], kind)


def _peepholes(call: ExportCall, hidden: int) -> Sequence[int | None]:
    """Of the gates input, forget and output; the graph has them as input, output, forget."""
    if not call.has(7):
        return (None, None, None)
    value = call.value(7)
    if value is None:
        call.unsupported("its peepholes are computed while the model runs")
    parts = np.asarray(value)[0].reshape(3, hidden)
    return [call.const(parts[index]) for index in (0, 2, 1)]


_ACTIVATIONS = {"tanh": _TANH, "relu": 1, "affine": 0}


def _rnn(call: ExportCall) -> None:
    """A layer that keeps its state; the file's operator has no other."""
    states = call.writer.state.of_layer.get(call.node.id)
    function = (get_strs(call.node.attrs, "activations") or ("Tanh",))[0].lower()
    if function not in _ACTIVATIONS or call.has_attr("activation_alpha") != (function == "affine"):
        call.unsupported(f"the activation {function}")
    layer = _layer(call, 1, (function,))
    if states is None or len(layer.directions) != 1:
        call.unsupported("a layer that begins anew in every run")
    time, batch, _ = call.shape(0)
    hidden = layer.hidden
    constants = [layer.weights[0], layer.recurrence[0], np.add(*layer.biases)]
    inputs = [
        _in_order(call, layer, call.input(0), call.type(0)),
        *(call.const(each) for each in constants),
        *(call.writer.subgraph.variable(each.name, (batch, hidden)) for each in states),
    ]
    options: dict[str, Option] = {
        "fused_activation_function": _ACTIVATIONS[function],
        "time_major": True,
    }
    kind = TensorType(DType.F32, (time, batch, hidden))
    made = call.step("UNIDIRECTIONAL_SEQUENCE_RNN", inputs, kind, options)
    _outputs(call, layer, [_in_order(call, layer, made, kind)])


def _outputs(call: ExportCall, layer: _Layer, made: list[int]) -> None:
    """(time, direction, batch, hidden) of all steps, and (direction, batch, hidden) of the last."""
    time, batch, _ = call.shape(0)
    hidden, count = layer.hidden, len(made)
    if call.is_used(0):
        every = (time, count, batch, hidden)
        if count == 1:
            call.emit_reshape(made[0], every, call.output(0))
        else:
            call.emit("PACK", made, {"values_count": count, "axis": 1}, outputs=[call.output(0)])
    if _gives_last(call):
        ends = []
        for number, tensor in enumerate(made):
            at = 0 if layer.directions[number] == "reverse" else time - 1
            sizes = (1, batch, hidden)
            ends.append(
                call.step(
                    "SLICE",
                    [tensor, call.ints((at, 0, 0)), call.ints(sizes)],
                    TensorType(DType.F32, sizes),
                )
            )
        if count == 1:
            call.emit_reshape(ends[0], (1, batch, hidden), call.output(1))
        else:
            call.emit("CONCATENATION", ends, {"axis": 0}, outputs=[call.output(1)])


def _gives_last(call: ExportCall) -> bool:
    """Does anybody but the operator itself need the state after the last step?"""
    if len(call.node.outputs) < 2:
        return False
    state = call.writer.state
    return any(not state.is_end(user) for user, _ in readers(call.graph, call.node.ref(1))) or (
        call.node.id not in state.of_layer and call.is_used(1)
    )


def _gru(call: ExportCall) -> None:
    """Circle's, where the first file had it: the reset comes after the product with the state, and
    it gives the last step's result or all.
    """
    layer = _layer(call, 3, ("sigmoid", "tanh"))
    # ONNX calls its own layer so, too.
    if not call.is_circle or not call.was("GRU") or "circle.version" not in call.graph.metadata:
        _by_steps(call, layer, gru_steps)
        return
    if layer.directions != ("forward",) or not call.integer("linear_before_reset"):
        call.unsupported("a layer that runs backwards, or resets before the product")
    time, batch, _ = call.shape(0)
    hidden = layer.hidden
    of_input, of_state = layer.biases
    state = call.value(5) if call.has(5) else np.zeros((1, batch, hidden), np.float32)
    if state is None:
        call.unsupported("a state to begin with that is computed while the model runs")
    every = call.is_used(0)
    if every and call.is_used(1):
        call.unsupported("the results of all steps and of the last")
    constants = [layer.recurrence[0], of_state, layer.weights[0], of_input, state[0]]
    inputs = [call.input(0), *(call.const(each) for each in constants)]
    options: dict[str, Option] = {
        "fused_activation_function": _TANH,
        "return_sequences": every,
        "time_major": False,
    }
    shape = (time, batch, hidden) if every else (batch, hidden)
    made = call.step("GRU", inputs, TensorType(DType.F32, shape), options)
    index = 0 if every else 1
    wanted = call.output_shape(index)
    call.emit_reshape(made, wanted, call.output(index))


EXPORTS: Exports = {"GRU": _gru, "LSTM": _lstm, "RNN": _rnn}
