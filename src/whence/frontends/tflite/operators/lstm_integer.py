"""A quantised LSTM layer in the integers of LiteRT's own arithmetic, to the last bit.

Gates have 16 bits with 3 before the point, their functions are tables, the cell has 16 bits with as
many before the point as its scale says. Layers with more than that (peepholes, normalised gates, a
projection) are read in real numbers that are rounded between steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from whence.errors import ModelError
from whence.frontends.tflite.emitter import Emitter
from whence.frontends.tflite.mapping import OperatorCall
from whence.frontends.tflite.operators.gate_tables import sigmoid_table, tanh_table
from whence.frontends.tflite.operators.lstm_layer import (
    Layer,
    LayerOutputs,
    clip_limit,
    run_steps,
    split_gates,
)
from whence.graph.node import Ref
from whence.types import DType

_GATE_STEP = 2.0**-12
_HALF = 1 << 30
_LARGEST_SHIFT = 30


def is_integer(layer: Layer) -> bool:
    """Is this a layer that LiteRT computes in integers and nothing here lacks?"""
    call = layer.call
    if (
        layer.has_peepholes
        or layer.is_normalised
        or layer.has_projection
        or _cell_bits(layer) is None
    ):
        return False
    weights = [
        index(gate)
        for gate in layer.gates
        for index in (layer.input_weight, layer.recurrent_weight)
    ]
    return (
        all(has_one_scale(call, index, "INT8") for index in (0, layer.hidden_state))
        and all(
            has_one_scale(call, index, "INT8")
            and _is_stored(call, index, "INT8")
            and not zero_of(call, index)
            for index in weights
        )
        and all(_is_stored(call, index, "INT32") for index in map(layer.bias, layer.gates))
        and call.output_tensor(0).type == "INT8"
    )


def _is_stored(call: OperatorCall, index: int, kind: str) -> bool:
    return (
        call.has(index)
        and call.tensor(index).type == kind
        and call.constant_codes(index) is not None
    )


def has_one_scale(call: OperatorCall, index: int, *kinds: str) -> bool:
    """Has an input codes of one of these types, all with one scale?"""
    found = call.quantisation(index)
    return found is not None and len(found.scales) == 1 and call.tensor(index).type in kinds


def zero_of(call: OperatorCall, index: int) -> int:
    found = call.quantisation(index)
    return 0 if found is None else int(found.zero_points[0])


def scale_of(call: OperatorCall, index: int) -> np.float32:
    found = call.quantisation(index)
    return np.float32(1) if found is None else np.float32(found.scales[0])


def _cell_bits(layer: Layer) -> int | None:
    """The integer bits of the cell; `None` when it is no fixed-point number of 16 bits."""
    call = layer.call
    if not has_one_scale(call, layer.cell_state, "INT16") or zero_of(call, layer.cell_state):
        return None
    mantissa, exponent = math.frexp(float(scale_of(call, layer.cell_state)))
    bits = 15 + exponent - 1
    return bits if mantissa == 0.5 and 0 <= bits <= 9 else None


def fixed_point(real: float) -> tuple[int, int]:
    """A positive number as multiplier · 2^(shift - 31) with a multiplier of 31 bits."""
    fraction, shift = math.frexp(real)
    multiplier = math.floor(fraction * (1 << 31) + 0.5)
    if multiplier == 1 << 31:
        multiplier, shift = multiplier // 2, shift + 1
    if shift > _LARGEST_SHIFT:
        raise ModelError(f"the ratio of its scales, {real}, is too large")
    return (0, 0) if shift < -31 else (multiplier, shift)


def _multipliers(reals: Sequence[float], units: int) -> tuple[np.ndarray, np.ndarray]:
    """For each gate's columns the multiplier and shift of its real number."""
    pairs = [fixed_point(real) for real in reals]
    multipliers, shifts = (np.array([pair[part] for pair in pairs], np.int32) for part in (0, 1))
    return np.repeat(multipliers, units), np.repeat(shifts, units)


def _step(
    layer: Layer, at: Emitter, values: Mapping[str, Ref], share: Ref, hidden: Ref, cell: Ref
) -> tuple[Ref, Ref]:
    """A `Step` in codes."""
    call, bits = layer.call, _cell_bits(layer)
    assert bits is not None
    hidden_zero = zero_of(call, layer.hidden_state)
    products = at.op("MatMulInteger", hidden, values["recurrent"], at.scalar(hidden_zero, DType.I8))
    scaled = at.op("FixedPointScale", products, values["multiplier"], values["shift"])
    sums = at.cast(at.clip(at.op("Add", share, scaled), -32768, 32767), DType.I16)
    gate = {
        name: _looked_up(at, part, values["tanh" if name == "cell" else "sigmoid"])
        for name, part in split_gates(layer, at, sums).items()
    }
    # What is not forgotten is taken in, where there is no gate for it.
    taken = (
        gate["input"]
        if "input" in gate
        else at.op("Sub", at.scalar(32767, DType.I32), gate["forget"])
    )
    kept = _product(at, gate["forget"], at.cast(cell, DType.I32), 15)
    added = _product(at, taken, gate["cell"], 30 - (15 - bits))
    after = at.clip(at.op("Add", kept, added), -32768, 32767)
    if most := int(min(clip_limit(call, "cell_clip") * 2.0 ** (15 - bits), 32767)):
        after = at.clip(after, -most, most)
    memory = at.cast(after, DType.I16)
    shown = at.op("Mul", gate["output"], _looked_up(at, memory, values["cell tanh"]))
    ratio = fixed_point(2.0**-30 / float(scale_of(call, layer.hidden_state)))
    multiplier, shift = (at.scalar(number, DType.I32) for number in ratio)
    result = at.op(
        "Add", at.op("FixedPointScale", shown, multiplier, shift), at.scalar(hidden_zero, DType.I32)
    )
    return at.cast(at.clip(result, -128, 127), DType.I8), memory


def _looked_up(at: Emitter, codes: Ref, table: Ref) -> Ref:
    return at.cast(at.op("LookUp", codes, table), DType.I32)


def _product(at: Emitter, a: Ref, b: Ref, shift: int) -> Ref:
    """a · b / 2^shift, rounded to nearest, halves away from zero: the doubled product times a half
    is the product, exactly.
    """
    product = at.op("Mul", a, b)
    doubled = at.op("Add", product, product)
    return at.op(
        "FixedPointScale", doubled, at.scalar(_HALF, DType.I32), at.scalar(-shift, DType.I32)
    )


def integer_layer(layer: Layer, x: Ref) -> LayerOutputs:
    """(time, batch, input) → (time, batch, output), both in codes."""
    call, gates = layer.call, layer.gates

    def columns(indices: Sequence[int]) -> Ref:
        codes = [value for index in indices if (value := call.constant_codes(index)) is not None]
        return call.const(np.ascontiguousarray(np.concatenate(codes, axis=0).T))

    units = call.shape(layer.input_weight("output"))[0]
    inputs = [layer.input_weight(gate) for gate in gates]
    recurrent = [layer.recurrent_weight(gate) for gate in gates]
    biases = [
        value.reshape(-1)
        for gate in gates
        if (value := call.constant_codes(layer.bias(gate))) is not None
    ]
    given, hidden_scale = scale_of(call, 0), scale_of(call, layer.hidden_state)
    products = call.op("MatMulInteger", x, columns(inputs), call.scalar(zero_of(call, 0), DType.I8))
    sums = call.op("Add", products, call.const(np.concatenate(biases)))
    multiplier, shift = _multipliers(
        [float(scale_of(call, index) * given) / _GATE_STEP for index in inputs], units
    )
    shares = call.clip(
        call.op("FixedPointScale", sums, call.const(multiplier), call.const(shift)), -32768, 32767
    )
    multiplier, shift = _multipliers(
        [float(scale_of(call, index) * hidden_scale) / _GATE_STEP for index in recurrent], units
    )
    bits = _cell_bits(layer)
    assert bits is not None
    values = {
        "recurrent": columns(recurrent),
        "multiplier": call.const(multiplier),
        "shift": call.const(shift),
        "sigmoid": call.const(sigmoid_table()),
        "tanh": call.const(tanh_table(3)),
        "cell tanh": call.const(tanh_table(bits)),
    }
    states = (call.needed(layer.hidden_state), call.needed(layer.cell_state))
    return run_steps(layer, partial(_step, layer), values, shares, *states)
