"""Words, numbers, types and arrays of the printed graph: how they are written, and how the ones
that need nothing but themselves are read.

Every text reads back as exactly what was written, floats to the last bit: a value that its usual
text would not give back is written as its bits, `0x7fc00001`.

Arrays are written literally when they are small, else by what tells them apart:

{1.0, 0.1, -0.0}                  every element, in order
{all 0.5}                         one element throughout
{seed 7}                          made-up numbers that are the same everywhere
{seed 7 from 0.5 to 1.5}          the same, within limits
{sha256-0123456789abcdef}         a digest: the reader of the text must have the array
{...}                             left out, for people
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping

import numpy as np

from whence.types import DType, ValueType, map_dims

WORD = r"[^\W\d]\w*(?:(?:::|[.+*/-])\w+)*"
"""What stands without quotes: names, operators with their domain, sums and products of names."""
_WORD = re.compile(WORD)
_RESERVED = frozenset({"inf", "nan", "True", "False"})
_LARGEST_SINGLE = float(np.finfo(np.float32).max)


def word(text: str) -> str:
    """A name: bare where that is unambiguous, else quoted."""
    plain = _WORD.fullmatch(text) and text.isprintable() and text not in _RESERVED
    return text if plain else repr(text)


def float_text(value: float) -> str:
    """A double. One that is a single-precision number exactly, as attributes of ONNX files are, is
    written as that: `0.1f`.
    """
    text = repr(float(value))
    if abs(value) <= _LARGEST_SINGLE and float(np.float32(value)) == value:
        single = str(np.float32(value))
        return f"{single}f" if len(single) + 1 < len(text) else text
    return text


def read_float(text: str) -> float:
    return float(np.float32(text[:-1])) if text.endswith("f") and text[-2:] != "nf" else float(text)


def type_text(kind: ValueType) -> str:
    """A type. Names of dimensions are the model's, and may be anything."""
    return str(map_dims(kind, lambda dim: word(dim) if isinstance(dim, str) else dim))


def element_text(item: object, dtype: DType) -> str:
    """One element of an array of this type."""
    if dtype is DType.STRING:
        return repr(item if isinstance(item, bytes) else str(item))
    # NumPy's own scalars know how few digits tell them apart; the floats of `tolist` show all of a
    # double's.
    text, bits = str(item), _bits(np.asarray(item))
    try:
        same = _bits(read_element(text, dtype)) == bits
    except ValueError:
        same = False
    return text if same else f"0x{bits:x}"


def read_element(text: str, dtype: DType) -> np.ndarray:
    """The element that a text stands for, as an array of no dimensions. Raises `ValueError` for a
    text that is none of this type.
    """
    kind = dtype.numpy
    if text.startswith("0x"):
        return np.frombuffer(int(text, 16).to_bytes(kind.itemsize, "little"), kind).reshape(())
    if dtype is DType.BOOL:
        if text not in ("True", "False"):
            raise ValueError(text)
        return np.array(text == "True")
    if dtype.is_integer:
        number = int(text)
        value = np.array(number, np.uint64 if number >= 0 else np.int64).astype(kind)
        if int(value) != number:
            raise ValueError(text)
        return value
    if dtype in (DType.C64, DType.C128):
        return np.array(complex(text), kind)
    if dtype.is_float:
        number_ = float(text)
        exact = np.array(number_).astype(kind)
        # A number that the type does not hold at all is a slip of the writer.
        if math.isfinite(number_) and not np.isfinite(exact.astype(np.float64)):
            raise ValueError(text)
        return exact
    raise ValueError(text)


def _bits(value: np.ndarray) -> int:
    return int.from_bytes(value.tobytes(), "little")


# ---- arrays ----

LITERAL = 8
"""Elements that are shown one by one."""


def array_text(
    value: np.ndarray, *, exact: bool = False, spelled: Mapping[str, str] | None = None
) -> str:
    """An array in braces. With `exact`, nothing is left out; `spelled` says by digest what stands
    in the braces of arrays whose text is known already.
    """
    if spelled and (known := spelled.get(digest(value))) is not None:
        return "{" + known + "}"
    dtype = DType.of(value)
    if value.size <= LITERAL:
        return "{" + ", ".join(element_text(item, dtype) for item in value.reshape(-1)) + "}"
    if not exact:
        return "{...}"
    if dtype is not DType.STRING:
        data = np.frombuffer(value.tobytes(), np.uint8).reshape(value.size, -1)
        if bool((data == data[0]).all()):
            return "{all " + element_text(value.reshape(-1)[0], dtype) + "}"
    return "{" + digest(value) + "}"


def digest(value: np.ndarray) -> str:
    """What tells arrays apart: element type, shape and contents."""
    dtype = DType.of(value)
    contents = repr(value.tolist()).encode() if dtype is DType.STRING else value.tobytes()
    head = f"{dtype}{list(value.shape)}".encode()
    return f"sha256-{hashlib.sha256(head + contents).hexdigest()[:16]}"


def seeded(
    seed: int, dtype: DType, shape: tuple[int, ...], limits: tuple[float, float] | None = None
) -> np.ndarray:
    """Made-up numbers, the same on every machine and with every version of NumPy: evenly spread, in
    steps of 1/512 of their range.

    Without limits, real numbers lie between -1 and 1, codes of 8 bits and less take their whole
    range, and wider integers lie between -100 and 100 (0 and 100 when they have no sign).
    """
    count = math.prod(shape)
    # The finaliser of SplitMix64, applied to a counter.
    state = (np.arange(1, count + 1, dtype=np.uint64) + np.uint64(seed * 0x10001)) * np.uint64(
        0x9E3779B97F4A7C15
    )
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    parts = ((state ^ (state >> np.uint64(31))) >> np.uint64(55)).astype(np.float64) / 512
    low, high = limits if limits is not None else _range(dtype)
    spread = low + (high - low) * parts
    whole = not dtype.is_float
    return (np.floor(spread) if whole else spread).astype(dtype.numpy).reshape(shape)


def _range(dtype: DType) -> tuple[float, float]:
    if dtype.is_float or dtype in (DType.C64, DType.C128):
        return -1.0, 1.0
    if dtype is DType.BOOL:
        return 0.0, 2.0
    signed = dtype.name.startswith("I")
    if dtype.bits <= 8:
        half = 2.0 ** (dtype.bits - 1)
        return (-half, half) if signed else (0.0, 2 * half)
    return (-100.0, 101.0) if signed else (0.0, 101.0)
