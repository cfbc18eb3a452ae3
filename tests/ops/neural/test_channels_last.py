"""Channels-last operators: types, values and cost against the plain ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from whence.errors import ModelError
from whence.ops.definition import Attrs, Call, TypeQuery, Value
from whence.ops.registry import evaluate, lookup
from whence.ops.types.inference import Inference
from whence.types import DType, TensorType


def _infer(op: str, attrs: Attrs, *types: TensorType | None) -> TensorType:
    (kind,) = Inference().infer(TypeQuery(op, attrs, types, (None,) * len(types), 1))
    assert isinstance(kind, TensorType)
    return kind


def _evaluate(op: str, attrs: Attrs, *inputs: Value) -> np.ndarray:
    (y,) = evaluate(Call(op, attrs, inputs, 1))
    return np.asarray(y)


_CASES: list[tuple[str, dict[str, Any], tuple[int, ...] | None]] = [
    ("Conv", {"pads": (1, 0, 2, 1), "strides": (2, 1)}, (8, 6, 3, 2)),
    ("Conv", {"group": 6, "dilations": (2, 2)}, (12, 1, 3, 3)),
    ("ConvTranspose", {"strides": (2, 2), "pads": (1, 1, 0, 0)}, (6, 4, 3, 3)),
    ("MaxPool", {"kernel_shape": (3, 2), "strides": (2, 2), "pads": (1, 0, 1, 1)}, None),
    ("AveragePool", {"kernel_shape": (2, 3), "auto_pad": "SAME_UPPER"}, None),
]


@pytest.mark.parametrize(("op", "attrs", "weights"), _CASES)
def test_is_the_plain_operator_with_channels_last(
    rng: np.random.Generator, op: str, attrs: dict[str, Any], weights: tuple[int, ...] | None
) -> None:
    x = rng.standard_normal((2, 6, 9, 7)).astype(np.float32)
    others = [] if weights is None else [rng.standard_normal(weights).astype(np.float32)]
    if weights is not None:
        others.append(
            rng.standard_normal(weights[0] if op == "Conv" else weights[1]).astype(np.float32)
        )
    plain = _evaluate(op, attrs, x, *others)
    last = np.moveaxis(x, 1, -1)
    y = _evaluate(f"ChannelsLast{op}", attrs, last, *others)
    np.testing.assert_array_equal(y, np.moveaxis(plain, 1, -1))
    types = tuple(TensorType.of(value) for value in (last, *others))
    assert _infer(f"ChannelsLast{op}", attrs, *types) == TensorType.of(y)


def test_one_and_three_spatial_axes(rng: np.random.Generator) -> None:
    for rank in (1, 3):
        x = rng.standard_normal((1, 4, *(5,) * rank)).astype(np.float32)
        w = rng.standard_normal((3, 4, *(2,) * rank)).astype(np.float32)
        y = _evaluate("ChannelsLastConv", {}, np.moveaxis(x, 1, -1), w)
        np.testing.assert_array_equal(y, np.moveaxis(_evaluate("Conv", {}, x, w), 1, -1))


def test_types_with_names_and_holes() -> None:
    w = TensorType(DType.F32, (8, 3, 3, 3))
    assert _infer(
        "ChannelsLastConv", {}, TensorType(DType.F32, ("n", 9, None, 3)), w
    ) == TensorType(DType.F32, ("n", 7, None, 8))
    assert _infer(
        "ChannelsLastMaxPool", {"kernel_shape": (2, 2)}, TensorType(DType.I8)
    ) == TensorType(DType.I8)
    with pytest.raises(ModelError, match="ChannelsLastConv"):
        _infer("ChannelsLastConv", {}, TensorType(DType.F32, (1, 9, 9, 4)), w)
    with pytest.raises(ModelError, match="ChannelsLastMaxPool"):
        _infer("ChannelsLastMaxPool", {"kernel_shape": (2, 2)}, TensorType(DType.F32, (3, 3)))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
def test_averages_of_integers_round_halves_away_from_zero(
    rng: np.random.Generator, dtype: Any
) -> None:
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max, (1, 6, 7, 4), dtype=dtype, endpoint=True)
    y = _evaluate(
        "ChannelsLastAveragePool",
        {"kernel_shape": (3, 2), "strides": (2, 2), "pads": (1, 0, 1, 1)},
        x,
    )
    assert y.dtype == dtype
    for row in range(y.shape[1]):
        for column in range(y.shape[2]):
            part = x[0, max(2 * row - 1, 0) : 2 * row + 2, 2 * column : 2 * column + 2].astype(int)
            count, total = part.shape[0] * part.shape[1], part.sum(axis=(0, 1))
            expected = [(abs(int(t)) + count // 2) // count * (1 if t >= 0 else -1) for t in total]
            assert y[0, row, column].tolist() == expected


def test_cost_is_the_plain_one() -> None:
    query = TypeQuery(
        "ChannelsLastConv",
        {},
        (TensorType(DType.F32, (1, 8, 8, 3)), TensorType(DType.F32, (10, 3, 3, 3))),
        (None, None),
        1,
    )
    flops = lookup("ChannelsLastConv").flops
    assert not isinstance(flops, int)
    assert flops(query, Inference().infer(query)) == 10 * 36 * 2 * 27
