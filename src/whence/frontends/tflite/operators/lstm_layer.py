"""The parts of one direction of an LSTM layer: where they stand among an operator's inputs, and
what they are in real numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whence.frontends.tflite.emitter import Emitter
from whence.frontends.tflite.mapping import OperatorCall
from whence.frontends.tflite.quantisation import parameters
from whence.graph.node import Ref

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
