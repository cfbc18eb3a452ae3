"""Recurrent layers: an LSTM as one operator for each direction, and the GRU that only Circle has.
Others are written step by step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whence.frontends.tflite.export.call import ExportCall, Exports
from whence.frontends.tflite.export.recurrent_steps import Steps, gru_steps, lstm_steps
from whence.frontends.tflite.schema import Option
from whence.ops.attributes import get_strs
from whence.types import DType, TensorType

_TANH = 4
_LSTM_GATES = {"input": 0, "forget": 2, "cell": 3, "output": 1}
"""Where the graph's weights have each gate, in the order in which the file's operator takes
them.
"""


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


def _layer(call: ExportCall, gates: int, functions: tuple[str, ...]) -> _Layer:
    weights, recurrence = call.value(1), call.value(2)
    bias = call.value(3) if call.has(3) else None
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


def _begins_with_zeros(call: ExportCall, *inputs: int) -> bool:
    return all(
        not call.has(index) or ((value := call.value(index)) is not None and not np.any(value))
        for index in inputs
    )


def _lstm(call: ExportCall) -> None:
    layer = _layer(call, 4, ("sigmoid", "tanh", "tanh"))
    if call.has(7) or call.integer("input_forget"):
        call.unsupported("peepholes, or gates that are coupled")
    time, batch, _ = call.shape(0)
    kind = TensorType(DType.F32, (time, batch, layer.hidden))
    # The file's operator begins with zeros, and keeps the state of its cells to itself.
    keeps_cells = len(call.node.outputs) > 2 and bool(call.graph.uses(call.node.ref(2)))
    # onert has the operator, too, but not for states that are variables.
    if call.is_circle or keeps_cells or not _begins_with_zeros(call, 5, 6):
        cells = _by_steps(call, layer, lstm_steps)
        if keeps_cells:
            _stacked(call, cells, 2)
        return
    _outputs(
        call,
        layer,
        [_one_direction(call, layer, number) for number in range(len(layer.directions))],
        kind,
    )


def _by_steps(call: ExportCall, layer: _Layer, write: Steps) -> list[int]:
    """Every step in operators of its own. Returns what each direction has in its cells at the
    end.
    """
    time, batch, _ = call.shape(0)
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
    _outputs(call, layer, made, TensorType(DType.F32, (time, batch, layer.hidden)))
    return cells


def _stacked(call: ExportCall, tensors: list[int], index: int) -> None:
    """(direction, batch, hidden) of one tensor for each direction."""
    call.emit(
        "PACK", tensors, {"values_count": len(tensors), "axis": 0}, outputs=[call.output(index)]
    )


def _one_direction(call: ExportCall, layer: _Layer, number: int) -> int:
    """The results of all steps, (time, batch, hidden), in the order of time."""
    time, batch, _ = call.shape(0)
    hidden = layer.hidden
    backwards = layer.directions[number] == "reverse"
    x = call.input(0)
    if backwards:
        x = call.step("REVERSE_V2", [x, call.ints([0])], call.type(0))

    def gate(matrix: np.ndarray, name: str) -> np.ndarray:
        first = _LSTM_GATES[name] * hidden
        return np.ascontiguousarray(matrix[first : first + hidden])

    bias = np.zeros(8 * hidden, np.float32) if layer.bias is None else layer.bias[number]
    both = bias[: 4 * hidden] + bias[4 * hidden :]
    weights = [call.const(gate(layer.weights[number], name)) for name in _LSTM_GATES]
    recurrence = [call.const(gate(layer.recurrence[number], name)) for name in _LSTM_GATES]
    biases = [call.const(gate(both, name)) for name in _LSTM_GATES]
    state = [
        call.writer.subgraph.variable(f"{call.node.name}/{name}_{number}", (batch, hidden))
        for name in ("hidden", "cell")
    ]
    inputs = [x, *weights, *recurrence, None, None, None, *biases, None, None, *state]
    options: dict[str, Option] = {
        "fused_activation_function": _TANH,
        "cell_clip": 0.0,
        "proj_clip": 0.0,
        "time_major": True,
    }
    kind = TensorType(DType.F32, (time, batch, hidden))
    made = call.step("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, kind, options)
    return call.step("REVERSE_V2", [made, call.ints([0])], kind) if backwards else made


def _outputs(call: ExportCall, layer: _Layer, made: list[int], kind: TensorType) -> None:
    """(time, direction, batch, hidden) of all steps, and (direction, batch, hidden) of the last."""
    time, batch, hidden = kind.static_shape or (0, 0, 0)
    count = len(made)
    if call.graph.uses(call.node.ref(0)):
        every = (time, count, batch, hidden)
        if count == 1:
            call.emit(
                "RESHAPE",
                [made[0], call.ints(every)],
                {"new_shape": every},
                outputs=[call.output(0)],
            )
        else:
            call.emit("PACK", made, {"values_count": count, "axis": 1}, outputs=[call.output(0)])
    if len(call.node.outputs) > 1 and call.graph.uses(call.node.ref(1)):
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
            call.emit(
                "RESHAPE",
                [ends[0], call.ints((1, batch, hidden))],
                {"new_shape": (1, batch, hidden)},
                outputs=[call.output(1)],
            )
        else:
            call.emit(
                "CONCATENATION",
                ends,
                {"axis": 0, "fused_activation_function": 0},
                outputs=[call.output(1)],
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
    bias = np.zeros(6 * hidden, np.float32) if layer.bias is None else layer.bias[0]
    state = call.value(5) if call.has(5) else np.zeros((1, batch, hidden), np.float32)
    if state is None:
        call.unsupported("a state to begin with that is computed while the model runs")
    used = [bool(call.graph.uses(call.node.ref(index))) for index in range(len(call.node.outputs))]
    if used[0] and any(used[1:]):
        call.unsupported("the results of all steps and of the last")
    constants = [
        layer.recurrence[0],
        bias[3 * hidden :],
        layer.weights[0],
        bias[: 3 * hidden],
        state[0],
    ]
    inputs = [call.input(0), *(call.const(np.ascontiguousarray(each)) for each in constants)]
    options: dict[str, Option] = {
        "fused_activation_function": _TANH,
        "return_sequences": used[0],
        "time_major": False,
    }
    shape = (time, batch, hidden) if used[0] else (batch, hidden)
    made = call.step("GRU", inputs, TensorType(DType.F32, shape), options)
    index = 0 if used[0] else 1
    wanted = call.output_shape(index)
    call.emit(
        "RESHAPE", [made, call.ints(wanted)], {"new_shape": wanted}, outputs=[call.output(index)]
    )


EXPORTS: Exports = {"GRU": _gru, "LSTM": _lstm}
