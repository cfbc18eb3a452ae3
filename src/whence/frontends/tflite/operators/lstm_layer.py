"""One direction of an LSTM layer: its parts, where they stand among an operator's inputs and what
they are in real numbers, and the layer step by step, in small operators, for what ONNX's LSTM does
not have.

The products with the input do not depend on the state, so they are made for all steps at once.
Short sequences are unrolled, long ones become a `Scan`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from whence.frontends.tflite.emitter import Emitter
from whence.frontends.tflite.mapping import OperatorCall, activated
from whence.frontends.tflite.quantisation import parameters
from whence.graph.node import Ref
from whence.ops.definition import Attr
from whence.types import TensorType

_LONGEST_UNROLLED = 64
_NORM_EPSILON = 1e-8
GATES = ("input", "forget", "cell", "output")


@dataclass(frozen=True, slots=True)
class Rounding:
    """The codes that a state is kept in between steps."""

    scale: np.ndarray
    zero: np.ndarray

    def apply(self, at: Emitter, value: Ref) -> Ref:
        scale, zero = at.const(self.scale), at.const(self.zero)
        return at.op("DequantizeLinear", at.op("QuantizeLinear", value, scale, zero), scale, zero)


def rounding_of(call: OperatorCall, state: int) -> Rounding | None:
    """What a state is rounded to, if it is kept in codes of one scale."""
    found = call.quantisation(state)
    if found is None or len(found.scales) != 1:
        return None
    scale, zero, _ = parameters(call.tensor(state), found)
    return Rounding(scale, zero)


@dataclass(frozen=True, slots=True)
class Layer:
    """One direction of a layer: where its inputs stand in the operator's list."""

    call: OperatorCall
    first: int
    """The first input weight; recurrent weights, peepholes, biases and projection follow."""
    hidden_state: int
    cell_state: int
    norms: int | None = None
    """The first of the coefficients of normalised gates."""
    backwards: bool = False

    def has(self, offset: int) -> bool:
        return self.call.has(self.first + offset)

    @property
    def is_coupled(self) -> bool:
        """No input gate: what is not forgotten is taken in."""
        return not self.has(0)

    @property
    def gates(self) -> tuple[str, ...]:
        return GATES[1:] if self.is_coupled else GATES

    @property
    def is_normalised(self) -> bool:
        return self.norms is not None and any(
            self.call.has(self.norms + position) for position in range(4)
        )

    @property
    def has_projection(self) -> bool:
        return self.has(15)

    @property
    def has_peepholes(self) -> bool:
        return self.has(9)

    def input_weight(self, gate: str) -> int:
        return self.first + GATES.index(gate)

    def recurrent_weight(self, gate: str) -> int:
        return self.first + 4 + GATES.index(gate)

    def peephole(self, gate: str) -> int:
        return self.first + 8 + ("input", "forget", "output").index(gate)

    def bias(self, gate: str) -> int:
        return self.first + 11 + GATES.index(gate)

    def norm(self, gate: str) -> int:
        assert self.norms is not None
        return self.norms + GATES.index(gate)

    def rounding(self, state: int) -> Rounding | None:
        return rounding_of(self.call, state)

    def bias_scale(self, gate: str) -> np.ndarray:
        """What a whole number in a gate's bias stands for, unless the bias says so itself."""
        if self.is_normalised and (found := self.call.quantisation(self.norm(gate))) is not None:
            return found.scales / np.float32(1024)
        given, weights = self.call.quantisation(0), self.call.quantisation(self.input_weight(gate))
        if given is None or weights is None:
            return np.ones(1, np.float32)
        return np.asarray(given.scales * weights.scales)


def stack_inputs(
    call: OperatorCall, indices: Sequence[int], values: Sequence[np.ndarray | None] | None = None
) -> Ref:
    """Matrices or vectors under each other; one constant where all of them are stored. `values` are
    what they are, if not what the file says of them.
    """
    values = [call.constant(index) for index in indices] if values is None else values
    known = [value for value in values if value is not None]
    if len(known) == len(values):
        return call.const(np.ascontiguousarray(np.concatenate(known, axis=0)))
    return call.emit("Concat", [call.real(index) for index in indices], {"axis": 0})


def biases(layer: Layer, gates: Sequence[str]) -> Ref | None:
    call, indices = layer.call, [layer.bias(gate) for gate in gates]
    present = [index for index in indices if call.has(index)]
    if not present:
        return None
    if len(present) != len(gates):
        call.fail("some of its gates have a bias and some have none")
    scales = [layer.bias_scale(gate) for gate in gates]
    values = [stored_bias(call, *each) for each in zip(indices, scales, strict=True)]
    return stack_inputs(call, indices, values)


def stored_bias(call: OperatorCall, index: int, scale: np.ndarray) -> np.ndarray | None:
    """A bias that is stored, in real numbers: whole numbers are multiples of `scale`, unless the
    file says of what.
    """
    known = call.constant_codes(index)
    if known is None or known.dtype.kind != "i" or call.quantisation(index) is not None:
        return call.constant(index)
    own = call.tensor(index).quantisation
    unit = scale if own is None else own.scales
    return np.asarray(known.astype(np.float64) * unit, np.float32)


def clip_limit(call: OperatorCall, option: str) -> float:
    limit = call.number(option)
    return limit if np.isfinite(limit) and limit > 0 else 0.0


@dataclass(frozen=True, slots=True)
class LayerOutputs:
    """What a layer gives."""

    every: Ref
    """The results of all steps, (time, batch, ...)."""
    hidden: Ref
    """The states after the last step, (batch, ...)."""
    cell: Ref


def start_of(call: OperatorCall, state: int) -> Ref | None:
    """The state before the first step; `None` when it is zero."""
    if not call.has(state):
        return None
    known = call.constant(state)
    return None if known is not None and not np.any(known) else call.real(state)


def keep_states(layer: Layer, made: LayerOutputs) -> Ref:
    """Hand the states after the last step to the next run; the results of all steps."""
    layer.call.assign_state(layer.hidden_state, made.hidden)
    layer.call.assign_state(layer.cell_state, made.cell)
    return made.every


# ---- step by step ----


Step: TypeAlias = Callable[[Emitter, Mapping[str, Ref], Ref, Ref, Ref], tuple[Ref, Ref]]
"""Makes one step of a layer, in the graph or in the body of a `Scan`: both states after it, from
values that are the same at every step, the input's share of the gates side by side, and both states
before it.
"""


def _step(
    layer: Layer, at: Emitter, values: Mapping[str, Ref], share: Ref, hidden: Ref, cell: Ref
) -> tuple[Ref, Ref]:
    """A `Step` in real numbers."""
    call = layer.call
    rounding = layer.rounding(layer.cell_state)
    # The integer kernels of LiteRT have tanh built in, whatever the option says.
    activation = "TANH" if rounding is not None else call.activation
    sums = at.op("Add", share, at.op("MatMul", hidden, values["recurrent"]))
    gate = split_gates(layer, at, sums)
    forget = at.op("Sigmoid", _argument(at, values, gate, "forget", cell))
    if "input" in gate:
        taken = at.op("Sigmoid", _argument(at, values, gate, "input", cell))
    else:
        taken = at.op("Sub", at.const(np.ones((), np.float32)), forget)
    candidate = activated(at, _argument(at, values, gate, "cell", None), activation)
    cell = at.op("Add", at.op("Mul", forget, cell), at.op("Mul", taken, candidate))
    if limit := clip_limit(call, "cell_clip"):
        cell = at.clip(cell, -limit, limit)
    if rounding is not None:
        cell = rounding.apply(at, cell)
    shown = at.op("Sigmoid", _argument(at, values, gate, "output", cell))
    hidden = at.op("Mul", shown, activated(at, cell, activation))
    if "projection" in values:
        hidden = at.op("MatMul", hidden, values["projection"])
        if "projection bias" in values:
            hidden = at.op("Add", hidden, values["projection bias"])
        if limit := clip_limit(call, "proj_clip"):
            hidden = at.clip(hidden, -limit, limit)
    if (rounding := layer.rounding(layer.hidden_state)) is not None:
        hidden = rounding.apply(at, hidden)
    return hidden, cell


def split_gates(layer: Layer, at: Emitter, sums: Ref) -> dict[str, Ref]:
    """By gate, its part of what has them side by side."""
    count = len(layer.gates)
    parts = at.emit("Split", [sums], {"axis": -1, "num_outputs": count}, outputs=count)
    return dict(zip(layer.gates, parts, strict=True))


def _argument(
    at: Emitter, values: Mapping[str, Ref], gates: Mapping[str, Ref], gate: str, cell: Ref | None
) -> Ref:
    """The argument of a gate: peephole, then normalisation, then the bias behind it."""
    value = gates[gate]
    if cell is not None and f"peephole {gate}" in values:
        value = at.op("Add", value, at.op("Mul", cell, values[f"peephole {gate}"]))
    if f"norm {gate}" in values:
        inputs = [value, values[f"norm {gate}"], values.get(f"bias {gate}")]
        value = at.op("LayerNormalization", *inputs, axis=-1, epsilon=_NORM_EPSILON)
    return value


def _transposed(call: OperatorCall, ref: Ref) -> Ref:
    known = call.value_of(ref)
    if known is None:
        return call.op("Transpose", ref, perm=(1, 0))
    return call.const(np.ascontiguousarray(known.T))


def _step_values(layer: Layer) -> dict[str, Ref]:
    """What a step works with besides the input's share of the gates and the state."""
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
    return values


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
    values = _step_values(layer)
    units = call.shape(layer.input_weight("output"))[0]
    width = call.shape(layer.first + 15)[0] if layer.has_projection else units
    starts = [start_of(call, state) for state in (layer.hidden_state, layer.cell_state)]
    zero: dict[str, Attr] = {"value": np.zeros(1, np.float32)}
    hidden, memory = (
        call.emit("ConstantOfShape", [call.ints(batch, size)], zero) if ref is None else ref
        for ref, size in zip(starts, (width, units), strict=True)
    )
    return run_steps(layer, partial(_step, layer), values, shares, hidden, memory)


def run_steps(
    layer: Layer, step: Step, values: Mapping[str, Ref], shares: Ref, hidden: Ref, memory: Ref
) -> LayerOutputs:
    """The hidden states after each step, from the input's share of the gates at each, and both
    states after the last.
    """
    call = layer.call
    shape = call.tensor_type_of(shares).static_shape
    if shape is None:
        call.unsupported("the length of its sequence is not known")
    time = shape[0]
    if time > _LONGEST_UNROLLED:
        return _scanned(layer, step, values, shares, hidden, memory)
    rows = (
        call.emit("Split", [shares], {"axis": 0, "num_outputs": time}, outputs=time)
        if time > 1
        else [shares]
    )
    made: list[Ref] = []
    for row in reversed(rows) if layer.backwards else rows:
        share = call.op("Squeeze", row, call.ints(0))
        hidden, memory = step(call, values, share, hidden, memory)
        made.append(call.op("Unsqueeze", hidden, call.ints(0)))
    if layer.backwards:
        made.reverse()
    every = made[0] if len(made) == 1 else call.emit("Concat", made, {"axis": 0})
    return LayerOutputs(every, hidden, memory)


def _scanned(
    layer: Layer, step: Step, values: Mapping[str, Ref], shares: Ref, hidden: Ref, memory: Ref
) -> LayerOutputs:
    call, captured = layer.call, list(values.values())
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
        inner = dict(zip(values, given[3:], strict=True))
        after, kept = step(body, inner, share, before, stored)
        return [after, kept, body.op("Identity", after)]

    body = call.body("step", kinds, fill)
    state = call.tensor_type_of(hidden)
    assert state.shape is not None
    types = [state, call.type_of(memory), TensorType(state.dtype, (rows.shape[0], *state.shape))]
    way = (int(layer.backwards),)
    attrs: dict[str, Attr] = {
        "num_scan_inputs": 1,
        "scan_input_directions": way,
        "scan_output_directions": way,
    }
    hidden, memory, every = call.emit_holder(
        "Scan", [hidden, memory, shares, *captured], {"body": body}, types, len(captured), attrs
    )
    return LayerOutputs(every, hidden, memory)
