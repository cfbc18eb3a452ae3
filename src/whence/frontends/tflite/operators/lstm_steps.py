"""An LSTM layer step by step, in small operators: for what ONNX's LSTM does not have.

The products with the input do not depend on the state, so they are made for all steps at once.
Short sequences are unrolled, long ones become a `Scan`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from whence.frontends.tflite.emitter import Emitter
from whence.frontends.tflite.mapping import OperatorCall, activated
from whence.frontends.tflite.operators.lstm_layer import (
    Layer,
    LayerOutputs,
    Rounding,
    biases,
    clip_limit,
    stack_inputs,
    start_of,
    stored_bias,
)
from whence.graph.node import Ref
from whence.ops.definition import Attr
from whence.types import TensorType

_LONGEST_UNROLLED = 64
_NORM_EPSILON = 1e-8


@dataclass(frozen=True, slots=True)
class LstmCell:
    """What a step works with besides the input's share of the gates and the state; values of the
    graph, or of the body of a `Scan`.
    """

    values: Mapping[str, Ref]
    gates: tuple[str, ...]
    activation: str
    cell_clip: float
    projection_clip: float
    hidden_rounding: Rounding | None
    cell_rounding: Rounding | None

    def with_values(self, values: Mapping[str, Ref]) -> LstmCell:
        return replace(self, values=values)

    def step(self, at: Emitter, share: Ref, hidden: Ref, cell: Ref) -> tuple[Ref, Ref]:
        """One step: the state after it. `share` has the gates of the input side by side."""
        sums = at.op("Add", share, at.op("MatMul", hidden, self.values["recurrent"]))
        parts = at.emit(
            "Split", [sums], {"axis": -1, "num_outputs": len(self.gates)}, outputs=len(self.gates)
        )
        gate = dict(zip(self.gates, parts, strict=True))
        forget = at.op("Sigmoid", self._gate(at, gate, "forget", cell))
        if "input" in gate:
            taken = at.op("Sigmoid", self._gate(at, gate, "input", cell))
        else:
            taken = at.op("Sub", at.const(np.ones((), np.float32)), forget)
        candidate = activated(at, self._gate(at, gate, "cell", None), self.activation)
        cell = at.op("Add", at.op("Mul", forget, cell), at.op("Mul", taken, candidate))
        if self.cell_clip:
            cell = at.clip(cell, -self.cell_clip, self.cell_clip)
        if self.cell_rounding is not None:
            cell = self.cell_rounding.apply(at, cell)
        shown = at.op("Sigmoid", self._gate(at, gate, "output", cell))
        hidden = at.op("Mul", shown, activated(at, cell, self.activation))
        if "projection" in self.values:
            hidden = at.op("MatMul", hidden, self.values["projection"])
            if "projection bias" in self.values:
                hidden = at.op("Add", hidden, self.values["projection bias"])
            if self.projection_clip:
                hidden = at.clip(hidden, -self.projection_clip, self.projection_clip)
        if self.hidden_rounding is not None:
            hidden = self.hidden_rounding.apply(at, hidden)
        return hidden, cell

    def _gate(self, at: Emitter, gates: Mapping[str, Ref], gate: str, cell: Ref | None) -> Ref:
        """The argument of a gate: peephole, then normalisation, then the bias behind it."""
        value = gates[gate]
        if cell is not None and f"peephole {gate}" in self.values:
            value = at.op("Add", value, at.op("Mul", cell, self.values[f"peephole {gate}"]))
        if f"norm {gate}" in self.values:
            attrs: dict[str, Attr] = {"axis": -1, "epsilon": _NORM_EPSILON}
            value = at.emit(
                "LayerNormalization",
                [value, self.values[f"norm {gate}"], self.values.get(f"bias {gate}")],
                attrs,
            )
        return value


def _transposed(call: OperatorCall, ref: Ref) -> Ref:
    known = call.scope.value_of(ref)
    if known is None:
        return call.op("Transpose", ref, perm=(1, 0))
    return call.const(np.ascontiguousarray(known.T))


def _cell(layer: Layer) -> LstmCell:
    call, values = layer.call, {}
    values["recurrent"] = _transposed(
        call, stack_inputs(call, [layer.recurrent_weight(gate) for gate in layer.gates])
    )
    for gate in layer.gates:
        if gate != "cell" and layer.has_peepholes:
            values[f"peephole {gate}"] = stack_inputs(call, [layer.peephole(gate)])
        if layer.is_normalised:
            values[f"norm {gate}"] = stack_inputs(call, [layer.norm(gate)])
            bias = biases(layer, [gate])
            if bias is not None:
                values[f"bias {gate}"] = bias
    if layer.has_projection:
        values["projection"] = _transposed(call, stack_inputs(call, [layer.first + 15]))
        if layer.has(16):
            known = stored_bias(call, layer.first + 16, np.ones(1, np.float32))
            values["projection bias"] = (
                call.real(layer.first + 16) if known is None else call.const(known)
            )
    # The integer kernels of LiteRT have tanh built in, whatever the option says.
    kind = "TANH" if layer.rounding(layer.cell_state) is not None else call.activation
    return LstmCell(
        values,
        layer.gates,
        kind,
        clip_limit(call, "cell_clip"),
        clip_limit(call, "proj_clip"),
        layer.rounding(layer.hidden_state),
        layer.rounding(layer.cell_state),
    )


def stepwise(layer: Layer, x: Ref) -> LayerOutputs:
    """(time, batch, input) → (time, batch, output), in small operators."""
    call = layer.call
    weights = _transposed(
        call, stack_inputs(call, [layer.input_weight(gate) for gate in layer.gates])
    )
    shares = call.op("MatMul", x, weights)
    bias = None if layer.is_normalised else biases(layer, layer.gates)
    if bias is not None:
        shares = call.op("Add", shares, bias)
    shape = call.tensor_type_of(shares).static_shape
    if shape is None:
        call.unsupported("the length of its sequence is not known")
    batch = shape[1]
    cell = _cell(layer)
    units = call.shape(layer.input_weight("output"))[0]
    width = call.shape(layer.first + 15)[0] if layer.has_projection else units
    starts = [start_of(call, state) for state in (layer.hidden_state, layer.cell_state)]
    zero: dict[str, Attr] = {"value": np.zeros(1, np.float32)}
    hidden, memory = (
        call.emit("ConstantOfShape", [call.ints(batch, size)], zero) if ref is None else ref
        for ref, size in zip(starts, (width, units), strict=True)
    )
    return run_steps(call, cell, shares, hidden, memory, backwards=layer.backwards)


class Steps(Protocol):
    """What is done at every step of a sequence."""

    @property
    def values(self) -> Mapping[str, Ref]:
        """The values that a step reads besides its input and the state."""

    def with_values(self, values: Mapping[str, Ref]) -> Steps:
        """The same on these values."""

    def step(self, at: Emitter, share: Ref, hidden: Ref, cell: Ref) -> tuple[Ref, Ref]: ...


def run_steps(
    call: OperatorCall, cell: Steps, shares: Ref, hidden: Ref, memory: Ref, *, backwards: bool
) -> LayerOutputs:
    """The hidden states after each step, from the input's share of the gates at each, and both
    states after the last.
    """
    shape = call.tensor_type_of(shares).static_shape
    if shape is None:
        call.unsupported("the length of its sequence is not known")
    time = shape[0]
    if time > _LONGEST_UNROLLED:
        return _scanned(call, cell, shares, hidden, memory, backwards=backwards)
    rows = (
        call.emit("Split", [shares], {"axis": 0, "num_outputs": time}, outputs=time)
        if time > 1
        else [shares]
    )
    made: list[Ref] = []
    for row in reversed(rows) if backwards else rows:
        share = call.op("Squeeze", row, call.ints(0))
        hidden, memory = cell.step(call, share, hidden, memory)
        made.append(call.op("Unsqueeze", hidden, call.ints(0)))
    if backwards:
        made.reverse()
    every = made[0] if len(made) == 1 else call.emit("Concat", made, {"axis": 0})
    return LayerOutputs(every, hidden, memory)


def _scanned(
    call: OperatorCall, cell: Steps, shares: Ref, hidden: Ref, memory: Ref, *, backwards: bool
) -> LayerOutputs:
    names, captured = list(cell.values), list(cell.values.values())
    rows = call.tensor_type_of(shares)
    assert rows.shape is not None
    kinds = [
        call.type_of(hidden),
        call.type_of(memory),
        TensorType(rows.dtype, rows.shape[1:]),
        *(call.type_of(ref) for ref in captured),
    ]

    def fill(body: Emitter, given: list[Ref]) -> list[Ref]:
        before, stored, share = given[:3]
        inner = cell.with_values(dict(zip(names, given[3:], strict=True)))
        after, kept = inner.step(body, share, before, stored)
        return [after, kept, body.op("Identity", after)]

    body = call.body("step", kinds, fill)
    state = call.tensor_type_of(hidden)
    assert state.shape is not None
    types = [state, call.type_of(memory), TensorType(state.dtype, (rows.shape[0], *state.shape))]
    way = (int(backwards),)
    attrs: dict[str, Attr] = {
        "num_scan_inputs": 1,
        "scan_input_directions": way,
        "scan_output_directions": way,
    }
    hidden, memory, every = call.emit_holder(
        "Scan", [hidden, memory, shares, *captured], {"body": body}, types, len(captured), attrs
    )
    return LayerOutputs(every, hidden, memory)
