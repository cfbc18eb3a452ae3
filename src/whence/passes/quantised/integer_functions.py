"""LiteRT's integer forms of functions of one code: the value at every code of the input, in codes
of the result, not yet limited.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from whence.graph import Graph, Node
from whence.ops.attributes import get_float
from whence.ops.quantised.integer import scale_fixed_point
from whence.ops.quantised.quantise import integer_range, round_away
from whence.passes.parameters import limits
from whence.passes.quantised.fixed_point import FixedPoint, all_codes, fixed_point
from whence.passes.quantised.quantised_op import Coding, limited_codes
from whence.types import DType

_Function = Callable[[Graph, Node, Coding, Coding], np.ndarray | None]


def litert_function(
    graph: Graph, node: Node | None, source: Coding, result: Coding
) -> np.ndarray | None:
    """Codes of the result for every code of the source; `None` when LiteRT computes in real
    numbers, or the parameters are out of range.
    """
    if node is None:
        return _scaled(
            _centred(source), float(np.float64(source.step) / np.float64(result.step)), result
        )
    function = _FUNCTIONS.get(node.op)
    return None if function is None else function(graph, node, source, result)


def _centred(source: Coding) -> np.ndarray:
    return all_codes(source.dtype) - np.int32(source.zero)


def _scaled(x: np.ndarray, factor: float, result: Coding) -> np.ndarray | None:
    fixed = fixed_point(factor)
    if fixed is None:
        return None
    return scale_fixed_point(x.astype(np.int32), *fixed) + np.int32(result.zero)


def _relu(graph: Graph, node: Node, source: Coding, result: Coding) -> np.ndarray | None:
    ends = limits(graph, node)
    # The quotient of two float32 is a float32, only then it is taken as a double.
    codes = _scaled(_centred(source), float(source.step / result.step), result)
    if ends is None or codes is None:
        return None
    low, high = integer_range(result.dtype)
    return np.asarray(np.clip(codes, *limited_codes(low, high, ends, result, away=True)))


def _leaky_relu(graph: Graph, node: Node, source: Coding, result: Coding) -> np.ndarray | None:
    alpha = np.float32(get_float(node.attrs, "alpha", 0.01))
    x = _centred(source)
    above = _scaled(x, float(source.step / result.step), result)
    below = _scaled(x, float(source.step * alpha / result.step), result)
    return None if above is None or below is None else np.where(x >= 0, above, below)


def _sigmoid(graph: Graph, node: Node, source: Coding, result: Coding) -> np.ndarray | None:
    if source.dtype is DType.I16:
        return _wide_sigmoid(source, result)
    x = source.step * _centred(source).astype(np.float32)
    powers = np.exp(-x.astype(np.float64)).astype(np.float32)
    return _from_real(np.float32(1) / (np.float32(1) + powers), result)


def _tanh(graph: Graph, node: Node, source: Coding, result: Coding) -> np.ndarray | None:
    if source.dtype is DType.I16:
        return _wide_tanh(source, result)
    x = source.step * _centred(source).astype(np.float32)
    return _from_real(np.tanh(x.astype(np.float64)).astype(np.float32), result)


def _from_real(real: np.ndarray, result: Coding) -> np.ndarray:
    inverse = np.float32(1) / result.step
    codes = round_away(real * inverse) + np.float32(result.zero)
    # Saturated as long as it is a float: what an integer is that cannot hold it, machines disagree.
    return np.asarray(np.clip(codes, *integer_range(result.dtype))).astype(np.int32)


# ---- functions of 16 bits ----

# Far beyond every code, and the sum of two is still a float32.
_HUGE = 1e38


def interpolated(
    function: Callable[[np.ndarray], np.ndarray | None], source: Coding, result: Coding
) -> np.ndarray | None:
    """A function of real numbers at every code of 16 bits, as `between_known` has it; `None` when
    the function has no values.
    """
    if result.zero:
        return None
    values = function(np.zeros(1, np.float32))
    if values is None:
        return None
    return between_known(lambda x: np.asarray(function(x)), source.step, source.zero, result.step)


def between_known(
    function: Callable[[np.ndarray], np.ndarray],
    scale: float | np.float32,
    zero: int,
    result: float | np.float32,
) -> np.ndarray:
    """A function at every code of 16 bits, in codes of 16 bits: known at every 128th code, on
    straight lines between.

    The known values are moved by half of what the line is off in the middle, so that the error is
    the same in both directions. The scales say in which precision this is computed.
    """
    number: Any = np.float32 if isinstance(scale, np.float32) else np.float64
    first, last = (number(scale) * number(end - zero) for end in (-32768, 32767))
    step = (last - first) / number(512)
    per_number = number(65536) / (number(result) * number(65535))
    places = first + np.arange(513).astype(number) * step

    def at(x: np.ndarray) -> np.ndarray:
        # The difference of two infinities would be no number.
        return np.asarray(np.clip(function(x) * per_number, number(-_HUGE), number(_HUGE)))

    scaled = at(places)
    known = round_away(scaled)
    line = round_away((scaled[1:] + known[:-1]) / number(2))
    known[:-1] -= round_away((line - round_away(at(places[:-1] + step / number(2)))) / number(2))
    table = np.clip(np.where(np.isnan(known), -32768, known), -32768, 32767).astype(np.int64)
    code = np.arange(-32768, 32768)
    place = (code >> 7) + 256
    slope = (table[place + 1] - table[place]).astype(np.int16).astype(np.int64)
    return np.asarray(table[place] + ((slope * (code & 127) + 64) >> 7)).astype(np.int16)


# LiteRT interpolates between 256 places a 24th apart. Its numbers at these places are not quite
# rounded ones, so that what comes of rounded ones may differ in the last bit.
_PLACES = np.minimum(np.rint(65536 / (1 + np.exp(-np.arange(256) / 24))), 65535).astype(np.int64)


def _in_places(source: Coding, result: Coding) -> np.ndarray | None:
    """Every number in units of 1/512 of a place: the scale is a multiplier of 15 bits and a shift.
    `None` unless the result is coded as LiteRT has it for numbers between -1 and 1.
    """
    multiplier, shift = float(source.step) * 4096 * 3, 0
    while 0 < multiplier <= 32767 / 2 and shift <= 30:
        multiplier, shift = multiplier * 2, shift + 1
    if source.zero or not 0 < multiplier < 1 << 31:
        return None
    if result.zero or result.step != np.float32(2.0**-15):
        return None
    return (_centred(source).astype(np.int64) * int(multiplier) + ((1 << shift) >> 1)) >> shift


def _between(x: np.ndarray, bits: int, largest: int) -> np.ndarray:
    """The sigmoid of |x| / 2^bits places in units of 2^-(16 + bits), `largest` behind the last
    place.
    """
    place, part = np.abs(x) >> bits, np.abs(x) & ((1 << bits) - 1)
    known = np.minimum(place, len(_PLACES) - 2)
    return np.where(
        place > known,
        largest,
        (_PLACES[known] << bits) + part * (_PLACES[known + 1] - _PLACES[known]),
    )


def _wide_sigmoid(source: Coding, result: Coding) -> np.ndarray | None:
    x = _in_places(source, result)
    if x is None:
        return None
    value = _between(x, 9, 0x7FFF << 10)
    return np.asarray(np.where(x >= 0, value + (1 << 9), (1 << 25) - value + (1 << 9) - 1) >> 10)


def _wide_tanh(source: Coding, result: Coding) -> np.ndarray | None:
    """2 · sigmoid(2x) - 1."""
    x = _in_places(source, result)
    if x is None:
        return None
    value = _between(x, 8, 0xFFFF << 8) - (1 << 23)
    return np.asarray(np.where(x >= 0, value + (1 << 7), -value + (1 << 7) - 1) >> 8)


# ---- hard swish, in 16 bits ----

_HALF = 1 << 15


def _high_product(a: np.ndarray, b: int) -> np.ndarray:
    """a · b / 2^15 in 16 bits: rounded to nearest, halves up, saturated."""
    product = a.astype(np.int64) * b
    nudged = product + np.where(product >= 0, 1 << 14, 1 - (1 << 14))
    return np.asarray(np.minimum(_truncated(nudged, 15), _HALF - 1))


def _truncated(x: np.ndarray, bits: int) -> np.ndarray:
    """x / 2^bits, cut towards zero."""
    return np.where(x >= 0, x >> bits, -((-x) >> bits))


def _shifted_right(x: np.ndarray, bits: int) -> np.ndarray:
    """x / 2^bits, rounded to nearest, halves away from zero."""
    half = (1 << bits) >> 1
    return np.where(x >= 0, (x + half) >> bits, -((-x + half) >> bits))


def _shifted_left(x: np.ndarray, bits: int) -> np.ndarray:
    return np.asarray(np.clip(x << bits, -_HALF, _HALF - 1))


def _multiplier_of_16_bits(scale: FixedPoint) -> int:
    return min((int(scale.multiplier) + (1 << 15)) >> 16, _HALF - 1)


def _hard_swish(graph: Graph, node: Node, source: Coding, result: Coding) -> np.ndarray | None:
    fine_step = np.float32(1 / 128) * source.step
    to_output = fixed_point(float(fine_step / result.step))
    to_gate = fixed_point(float(fine_step / np.float32(3 / 32768)))
    if to_output is None or to_gate is None or to_output.shift > 0:
        return None
    x, shift = _centred(source).astype(np.int64) << 7, int(to_gate.shift)
    output = _high_product(x, _multiplier_of_16_bits(to_output))
    gate = _shifted_left(x, shift - 1) if shift > 0 else x
    gate = _high_product(gate, _multiplier_of_16_bits(to_gate))
    if shift > 0:
        gate = _shifted_left(gate, 1)
    elif shift < 0:
        gate = _shifted_right(gate, -shift)
    gate = (gate + _HALF) >> 1
    product = _truncated(gate * output, 15)
    return (_shifted_right(product, -int(to_output.shift)) + result.zero).astype(np.int32)


_FUNCTIONS: Mapping[str, _Function] = {
    "Relu": _relu,
    "Clip": _relu,
    "LeakyRelu": _leaky_relu,
    "Sigmoid": _sigmoid,
    "Tanh": _tanh,
    "HardSwish": _hard_swish,
}
