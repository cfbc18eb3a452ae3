"""Changing the element type, by value (Cast, CastLike), by bits (BitCast), or there and back
(RoundTo).
"""

from __future__ import annotations

from functools import partial

import numpy as np

from whence.errors import ModelError
from whence.ops.attributes import get_int, get_str
from whence.ops.definition import Attrs, Call, OpClass, OpDef, Pattern, Value
from whence.ops.operand import TYPE, named
from whence.ops.operands.attribute_choices import CODES
from whence.ops.precision import tensor
from whence.ops.quantised.quantise import largest
from whence.ops.tensor.text import strings
from whence.ops.traits import Trait
from whence.ops.types.type_rules import cast as cast_type
from whence.ops.types.type_rules import cast_like as cast_like_type
from whence.ops.types.type_rules import same_type, target_dtype
from whence.types import DType

_SATURATING = frozenset({DType.F8E4M3FN, DType.F8E4M3FNUZ, DType.F8E5M2, DType.F8E5M2FNUZ})
# NumPy converts these to and from its own types but not among one another.
_SMALL = frozenset(dtype for dtype in CODES if dtype.is_float or dtype.bits < 8)


def cast(x: np.ndarray, to: DType, *, saturate: bool = True, round_mode: str = "up") -> np.ndarray:
    """`x` as element type `to` by the rules of ONNX's Cast.

    Real numbers lose their fraction and integers their high bits; `saturate` keeps float-8 results
    finite; `round_mode` is how a number becomes a power of two (float8e8m0).
    """
    source = DType.of(x)
    if source is to:
        return x
    if source is DType.STRING:
        return _parse(x, to, saturate, round_mode)
    if to is DType.STRING:
        return _format(x, source)
    if source in _SMALL:
        x = x.astype(np.float32 if source.is_float else np.int32)
    if to is DType.F8E8M0:
        return _to_power_of_two(x, saturate, round_mode)
    if to in _SATURATING and saturate:
        limit = np.float32(largest(to))
        x = np.clip(x.astype(np.float32), -limit, limit)
    if to in _SMALL and x.dtype == np.bool_:
        x = x.astype(np.int32)
    return x.astype(to.numpy)


def _parse(x: np.ndarray, to: DType, saturate: bool, round_mode: str) -> np.ndarray:
    texts = [str(item).strip() for item in x.reshape(-1)]
    whole = to.is_integer or to is DType.BOOL
    try:
        numbers = np.array(
            [_whole(text) if whole else float(text) for text in texts],
            dtype=np.int64 if whole else np.float64,
        )
    except (ValueError, OverflowError) as error:
        raise ModelError(f"Cast: a text is not a number: {error}") from None
    return cast(numbers.reshape(x.shape), to, saturate=saturate, round_mode=round_mode)


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return int(float(text))


def _format(x: np.ndarray, source: DType) -> np.ndarray:
    """Numbers as text: eight significant digits for reals, as ONNX Runtime writes them."""
    items = (_real(float(item)) if source.is_float else str(int(item)) for item in x.reshape(-1))
    return strings(items, x.shape)


def _real(value: float) -> str:
    text = f"{value:.8g}"
    return {"nan": "NaN", "inf": "INF", "-inf": "-INF"}.get(text, text)


def _to_power_of_two(x: np.ndarray, saturate: bool, round_mode: str) -> np.ndarray:
    """Float8e8m0 has an exponent and nothing else: code c means 2^(c-127), and 255 means NaN."""
    values = np.abs(x.astype(np.float64))
    fraction, exponent = np.frexp(np.where(np.isfinite(values), values, 1.0))
    # values = (2 · fraction) · 2^(exponent - 1) with 2 · fraction in [1, 2)
    rounded_up = {
        "up": fraction > 0.5,
        "nearest": fraction >= 0.75,
        "down": np.zeros(fraction.shape, np.bool_),
    }
    codes = exponent.astype(np.int64) - 1 + rounded_up[round_mode] + 127
    codes = np.where(values == 0, 0, np.where(np.isinf(values), 255, codes))
    codes = (
        np.clip(codes, 0, 254) if saturate else np.where((codes < 0) | (codes > 254), 255, codes)
    )
    return np.where(np.isnan(values), 255, codes).astype(np.uint8).view(DType.F8E8M0.numpy)


def bit_cast(x: np.ndarray, to: DType) -> np.ndarray:
    """The same bits read as another type of the same width."""
    source = DType.of(x)
    if DType.STRING in (source, to) or source.bits != to.bits:
        raise ModelError(f"BitCast: {source} and {to} do not have the same number of bits")
    return np.ascontiguousarray(x).view(to.numpy).reshape(x.shape)


def _cast_as(x: np.ndarray, to: DType, attrs: Attrs) -> Value:
    return cast(
        x,
        to,
        saturate=bool(get_int(attrs, "saturate", 1)),
        round_mode=get_str(attrs, "round_mode", "up"),
    )


def _cast(call: Call) -> Value:
    return _cast_as(
        tensor(call, 0), target_dtype(call.op, get_int(call.attrs, "to", 0)), call.attrs
    )


def _bit_cast(call: Call) -> Value:
    return bit_cast(tensor(call, 0), target_dtype(call.op, get_int(call.attrs, "to", 0)))


def _round_to(call: Call) -> Value:
    x = tensor(call, 0)
    return cast(cast(x, target_dtype(call.op, get_int(call.attrs, "to", 0))), DType.of(x))


_cast_op = partial(
    OpDef, pattern=Pattern.ELEMWISE, classes=OpClass.ELEMENTWISE, operands=named("input")
)
OPS: tuple[OpDef, ...] = (
    # Rounded to what type `to` holds, and kept in the type it has: what a value in half precision
    # is when it is computed with in single.
    _cast_op("RoundTo", infer=same_type, reference=_round_to, traits=Trait.READS_TYPE),
    _cast_op("Cast", infer=cast_type, reference=_cast, traits=Trait.CASTS),
    _cast_op(
        "CastLike",
        infer=cast_like_type,
        reference=lambda call: _cast_as(tensor(call, 0), DType.of(tensor(call, 1)), call.attrs),
        operands=named("input", target_type=TYPE),
        traits=Trait.READS_TYPE | Trait.CASTS,
    ),
    _cast_op("BitCast", infer=cast_type, reference=_bit_cast, flops=0, traits=Trait.READS_TYPE),
)
