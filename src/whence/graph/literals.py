"""Words, numbers, types and array elements of the printed graph: how they are written, and how the
ones that need nothing but themselves are read.

Every text reads back as exactly what was written, floats to the last bit: a value that its usual
text would not give back is written as its bits, `0x7fc00001`.
"""

from __future__ import annotations

import math
import re

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
