"""Quantised operators of com.microsoft against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.exact_integers import seven_bits
from tests.frontends.onnx.contrib_data import (
    RNG,
    U8,
    Arrays,
    scale,
    small,
)
from tests.frontends.onnx.models import (
    MICROSOFT,
    feeds_of,
    run_ort,
    run_whence,
    single,
)

QUANTISED: list[tuple[str, Arrays, dict[str, Any]]] = [
    (
        "QLinearAdd",
        {
            "a": small(2, 3),
            "as": scale(0.1),
            "az": U8,
            "b": small(2, 3),
            "bs": scale(0.05),
            "bz": U8,
            "ys": scale(0.2),
            "yz": U8,
        },
        {},
    ),
    (
        "QLinearMul",
        {
            "a": small(2, 3),
            "as": scale(0.1),
            "az": U8,
            "b": small(2, 3),
            "bs": scale(0.05),
            "bz": U8,
            "ys": scale(0.5),
            "yz": U8,
        },
        {},
    ),
    (
        "QLinearSigmoid",
        {
            "a": small(2, 3),
            "c_as": scale(0.1),
            "c_az": U8,
            "c_ys": scale(1 / 256),
            "c_yz": np.array(0, np.uint8),
        },
        {},
    ),
    (
        "QLinearLeakyRelu",
        {"a": small(2, 3), "c_as": scale(0.1), "c_az": U8, "c_ys": scale(0.1), "c_yz": U8},
        {"alpha": 0.1},
    ),
    (
        "QLinearGlobalAveragePool",
        {"a": small(1, 3, 4, 4), "as": scale(0.1), "az": U8, "ys": scale(0.05), "yz": U8},
        {"channels_last": 0},
    ),
    (
        "QLinearGlobalAveragePool",
        {"a": small(1, 4, 4, 3), "as": scale(0.1), "az": U8, "ys": scale(0.05), "yz": U8},
        {"channels_last": 1},
    ),
    (
        "QLinearAveragePool",
        {"a": small(1, 3, 4, 4), "as": scale(0.1), "az": U8, "ys": scale(0.05), "yz": U8},
        {"kernel_shape": [2, 2]},
    ),
    (
        "QLinearConcat",
        {
            "c_ys": scale(0.1),
            "c_yz": U8,
            "a": small(2, 3),
            "c_as": scale(0.1),
            "c_az": U8,
            "b": small(2, 2),
            "c_bs": scale(0.07),
            "c_bz": U8,
        },
        {"axis": 1},
    ),
    (
        "QLinearSoftmax",
        {
            "a": small(2, 5),
            "c_as": scale(0.1),
            "c_az": U8,
            "c_ys": scale(1 / 256),
            "c_yz": np.array(0, np.uint8),
        },
        {"axis": 1, "opset": 13},
    ),
    (
        "QLinearSoftmax",
        {
            "a": small(2, 5),
            "c_as": scale(0.1),
            "c_az": U8,
            "c_ys": scale(1 / 256),
            "c_yz": np.array(0, np.uint8),
        },
        {"axis": 1, "opset": 11},
    ),
    (
        "QLinearWhere",
        {
            "p": np.array([[True, False, True]]),
            "a": small(2, 3),
            "c_as": scale(0.1),
            "c_az": U8,
            "b": small(2, 3),
            "c_bs": scale(0.07),
            "c_bz": U8,
            "c_ys": scale(0.1),
            "c_yz": U8,
        },
        {},
    ),
    (
        "QLinearConv",
        {
            "x": small(1, 5, 5, 2),
            "xs": scale(0.1),
            "xz": U8,
            "c_w": small(3, 2, 3, 3),
            "c_ws": scale(0.05),
            "c_wz": U8,
            "c_ys": scale(2.0),
            "c_yz": U8,
        },
        {"channels_last": 1},
    ),
    (
        "QGemm",
        {
            "a": small(3, 4),
            "as": scale(0.1),
            "az": U8,
            "b": seven_bits(small(2, 4, dtype=np.int8)),
            "bs": np.array([0.05, 0.02], np.float32),
            "bz": np.zeros(2, np.int8),
            "c": RNG.integers(-500, 500, (1, 2)).astype(np.int32),
            "ys": scale(0.5),
            "yz": U8,
        },
        {"alpha": 1.0, "transB": 1},
    ),
    (
        "QGemm",
        {
            "a": small(3, 4),
            "as": scale(0.1),
            "az": U8,
            "b": small(4, 2),
            "bs": scale(0.05),
            "bz": U8,
            "c": RNG.integers(-500, 500, (2,)).astype(np.int32),
            "ys": scale(0.5),
            "yz": U8,
        },
        {"alpha": 1.0},
    ),
]


@pytest.mark.parametrize(
    ("op", "arrays", "attrs"),
    QUANTISED,
    ids=[f"{case[0]}-{number}" for number, case in enumerate(QUANTISED)],
)
def test_a_quantised_operator_is_within_one_step(
    op: str, arrays: Arrays, attrs: dict[str, Any]
) -> None:
    """ONNX Runtime computes in integers, whence in real numbers: results may round to neighbouring
    steps.
    """
    proto = single(op, arrays, 17, domain=MICROSOFT, **attrs)
    (expected,), (got,) = run_ort(proto, feeds_of(arrays)), run_whence(proto, feeds_of(arrays))
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    assert np.abs(got.astype(int) - expected.astype(int)).max() <= 1
