"""Operators on channel-blocked tensors: types, values against the plain operators, cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from whence.errors import ModelError
from whence.ops.definition import Attrs, Call, TypeQuery, Value
from whence.ops.neural.blocked import from_blocked, to_blocked
from whence.ops.registry import evaluate, lookup
from whence.ops.types.inference import Inference
from whence.types import DType, TensorType

F32 = DType.F32


def _infer(op: str, attrs: Attrs, *types: TensorType | None) -> TensorType:
    (kind,) = Inference().infer(TypeQuery(op, attrs, types, (None,) * len(types), 1))
    assert isinstance(kind, TensorType)
    return kind


def _evaluate(op: str, attrs: Attrs, *inputs: Value) -> np.ndarray:
    (y,) = evaluate(Call(op, attrs, inputs, 1))
    return np.asarray(y)


@pytest.mark.parametrize(("channels", "block"), [(32, 16), (24, 16), (3, 8), (1, 4)])
def test_there_and_back(rng: np.random.Generator, channels: int, block: int) -> None:
    x = rng.standard_normal((2, channels, 3, 5)).astype(np.float32)
    blocked = _evaluate("ToBlocked", {"block": block}, x)
    assert blocked.shape == (2, -(-channels // block), 3, 5, block)
    for channel in range(channels):
        np.testing.assert_array_equal(
            blocked[:, channel // block, :, :, channel % block], x[:, channel]
        )
    assert not blocked[:, -1, ..., channels % block or block :].any()
    np.testing.assert_array_equal(_evaluate("FromBlocked", {"channels": channels}, blocked), x)


def test_one_row(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 20, 7)).astype(np.float32)
    blocked = _evaluate("ToBlocked", {"block": 16}, x)
    assert blocked.shape == (2, 2, 1, 7, 16)
    np.testing.assert_array_equal(_evaluate("FromBlocked", {"channels": 20, "rank": 3}, blocked), x)


def test_types() -> None:
    x = TensorType(F32, (1, 20, 9, "w"))
    blocked = _infer("ToBlocked", {"block": 8}, x)
    assert blocked == TensorType(F32, (1, 3, 9, "w", 8))
    assert _infer("FromBlocked", {"channels": 20}, blocked) == x
    assert _infer("ToBlocked", {"block": 8}, TensorType(F32, (1, 20, 9))) == TensorType(
        F32, (1, 3, 1, 9, 8)
    )
    assert _infer(
        "FromBlocked", {"channels": 20, "rank": 3}, TensorType(F32, (1, 3, 1, 9, 8))
    ) == TensorType(F32, (1, 20, 9))
    assert _infer("ToBlocked", {"block": 8}, TensorType(F32)) == TensorType(F32)


@pytest.mark.parametrize(
    ("op", "attrs", "shape"),
    [
        ("ToBlocked", {}, (1, 2, 3, 4)),
        ("ToBlocked", {"block": 16}, (1, 2)),
        ("FromBlocked", {"channels": 4, "rank": 3}, (1, 1, 2, 3, 4)),
        ("BlockedMaxPool", {"kernel_shape": (2, 2)}, (1, 2, 3, 4)),
    ],
)
def test_nonsense_is_refused(op: str, attrs: Attrs, shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match=op):
        _infer(op, attrs, TensorType(F32, shape))


_CONVS: list[dict[str, Any]] = [
    {"pads": (1, 1, 1, 1)},
    {"strides": (2, 1), "pads": (0, 2, 1, 0), "activation": "Relu"},
    {"group": 2, "activation": "Clip", "activation_alpha": -0.5, "activation_beta": 0.5},
    {"group": 20, "dilations": (2, 2), "auto_pad": "SAME_UPPER"},
    {"plain_input": 1, "pads": (1, 1, 1, 1)},
]


@pytest.mark.parametrize("attrs", _CONVS)
@pytest.mark.parametrize("residual", [False, True])
def test_conv_is_the_plain_one(
    rng: np.random.Generator, attrs: dict[str, Any], residual: bool
) -> None:
    x = rng.standard_normal((2, 20, 9, 8)).astype(np.float32)
    w = rng.standard_normal((40, 20 // attrs.get("group", 1), 3, 3)).astype(np.float32)
    b = rng.standard_normal(40).astype(np.float32)
    plain = {name: value for name, value in attrs.items() if name != "plain_input"}
    y = _evaluate("FusedConv", plain, x, w, b)
    z = rng.standard_normal(y.shape).astype(np.float32)
    if residual:
        y = _evaluate("FusedConv", plain, x, w, b, z)
    own = attrs | {"block": 16, "channels_in": 20, "channels_out": 40}
    source = x if attrs.get("plain_input") else to_blocked(x, 16)
    inputs = (source, w, b, to_blocked(z, 16)) if residual else (source, w, b)
    blocked = _evaluate("BlockedConv", own, *inputs)
    np.testing.assert_array_equal(from_blocked(blocked, 40), y)
    types = tuple(TensorType.of(value) for value in inputs)
    assert _infer("BlockedConv", own, *types) == TensorType.of(blocked)


def test_conv_never_looks_behind_the_last_channel(rng: np.random.Generator) -> None:
    x = to_blocked(rng.standard_normal((1, 5, 4, 4)).astype(np.float32), 8)
    dirty = x.copy()
    dirty[..., 5:] = np.nan
    w = rng.standard_normal((8, 5, 1, 1)).astype(np.float32)
    attrs: Attrs = {"block": 8, "channels_in": 5, "channels_out": 8}
    np.testing.assert_array_equal(
        _evaluate("BlockedConv", attrs, dirty, w), _evaluate("BlockedConv", attrs, x, w)
    )


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_pools_are_the_plain_ones(rng: np.random.Generator, op: str) -> None:
    attrs: Attrs = {"kernel_shape": (3, 2), "strides": (2, 2), "pads": (1, 0, 1, 1), "ceil_mode": 1}
    x = rng.standard_normal((2, 32, 9, 8)).astype(np.float32)
    blocked = _evaluate(f"Blocked{op}", attrs, to_blocked(x, 16))
    np.testing.assert_array_equal(from_blocked(blocked, 32), _evaluate(op, attrs, x))
    assert _infer(f"Blocked{op}", attrs, TensorType(F32, (2, 2, 9, 8, 16))) == TensorType.of(
        blocked
    )


def test_cost_counts_real_channels() -> None:
    def flops(op: str, attrs: Attrs, *types: TensorType) -> int:
        query = TypeQuery(op, attrs, types, (None,) * len(types), 1)
        count = lookup(op).flops
        assert not isinstance(count, int)
        found = count(query, Inference().infer(query))
        assert found is not None
        return found

    w, b = TensorType(F32, (10, 3, 3, 3)), TensorType(F32, (10,))
    attrs: Attrs = {"block": 16, "channels_in": 3, "channels_out": 10, "activation": "Relu"}
    plain = flops("FusedConv", {"activation": "Relu"}, TensorType(F32, (1, 3, 8, 8)), w, b)
    assert (
        flops("BlockedConv", attrs, TensorType(F32, (1, 1, 8, 8, 16)), w, b)
        == plain
        == 10 * 36 * (2 * 27 + 2)
    )
    pool: Attrs = {"kernel_shape": (2, 2)}
    assert flops("BlockedMaxPool", pool, TensorType(F32, (1, 1, 8, 8, 16))) == flops(
        "MaxPool", pool, TensorType(F32, (1, 16, 8, 8))
    )
