"""Random inputs that a model accepts: shapes and values from inputs.toml where the model's own
declaration leaves them open.
"""

from __future__ import annotations

import tomllib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

HINTS = Path(__file__).with_name("inputs.toml")
Dim = int | str | None


@dataclass(frozen=True, slots=True)
class Hint:
    """What is known about one input. None means: not said."""

    shape: tuple[int, ...] | None = None
    low: float | None = None
    high: float | None = None
    value: Any = None


@dataclass(frozen=True, slots=True)
class ModelHints:
    """Hints for the inputs of one model by name, and values for its named dimensions."""

    inputs: Mapping[str, Hint]
    dims: Mapping[str, int]


def random_inputs(
    name: str, onnx_inputs: Sequence[tuple[str, DTypeLike, Sequence[Dim]]], seed: int
) -> dict[str, NDArray[Any]]:
    """An array for every declared input `(name, dtype, shape)` of the model called `name`.

    Open dimensions are names, None or below 0; they are 1 unless a hint says otherwise. The same
    seed gives an input the same values, whatever other inputs there are.
    """
    hints = load_hints().get(name, ModelHints({}, {}))
    arrays = {}
    for input_name, dtype, declared in onnx_inputs:
        hint = hints.inputs.get(input_name, Hint())
        shape = (
            hint.shape
            if hint.shape is not None
            else tuple(_extent(dim, hints.dims) for dim in declared)
        )
        rng = np.random.default_rng([seed, zlib.crc32(input_name.encode())])
        arrays[input_name] = (
            _given(hint.value, np.dtype(dtype), shape)
            if hint.value is not None
            else _draw(rng, np.dtype(dtype), shape, hint)
        )
    return arrays


@cache
def load_hints(path: Path = HINTS) -> Mapping[str, ModelHints]:
    """All hints by model name."""
    return {
        model: ModelHints(
            {name: _parse(row) for name, row in rows.items() if name != "*"}, rows.get("*", {})
        )
        for model, rows in tomllib.loads(path.read_text(encoding="utf-8")).items()
    }


def _parse(row: dict[str, Any]) -> Hint:
    shape = row.pop("shape", None)
    return Hint(shape=tuple(shape) if shape is not None else None, **row)


def _extent(dim: Dim, named: Mapping[str, int]) -> int:
    if isinstance(dim, str):
        return named.get(dim, 1)
    return dim if dim is not None and dim >= 0 else 1


def _given(value: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    array = np.asarray(value, dtype)
    # One number stands for a whole tensor of it, when that is what the model declares.
    return np.full(shape, array, dtype) if array.ndim == 0 else array


def _draw(
    rng: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...], hint: Hint
) -> NDArray[Any]:
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "OSU":
        return np.full(shape, "whence", dtype=object)
    if dtype.kind in "iu":
        low, high = _integer_range(dtype)
        low = int(hint.low) if hint.low is not None else low
        high = int(hint.high) if hint.high is not None else high
        return rng.integers(low, high, shape).astype(dtype)
    if hint.low is not None and hint.high is not None:
        return rng.uniform(hint.low, hint.high, shape).astype(dtype)
    if dtype.kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def _integer_range(dtype: np.dtype[Any]) -> tuple[int, int]:
    # Small integers are pixels, samples and quantised values; wide ones are indices, lengths and
    # masks, for which only 0 and 1 are always safe.
    if dtype.itemsize <= 2:
        info = np.iinfo(dtype)
        return int(info.min), int(info.max) + 1
    return 0, 2
