"""Operators of com.microsoft against ONNX Runtime, whose operators they are."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.exact_integers import seven_bits, weight_codes
from tests.frontends.onnx.contrib_data import (
    IMAGE,
    U8,
    Arrays,
    X,
    real,
    scale,
    small,
)
from tests.frontends.onnx.models import (
    MICROSOFT,
    assert_close,
    assert_like_ort,
    feeds_of,
    model,
    node,
    run_ort,
    run_whence,
    single,
)
from whence.errors import ModelError, UnsupportedError
from whence.frontends.onnx.reader import read_onnx

EXACT: list[tuple[str, Arrays, dict[str, Any], int]] = [
    ("Gelu", {"x": X}, {}, 1),
    ("BiasGelu", {"x": X, "b": real(4)}, {}, 1),
    ("FastGelu", {"x": X}, {}, 1),
    ("FastGelu", {"x": X, "b": real(4)}, {}, 1),
    ("QuickGelu", {"x": X}, {"alpha": 1.3}, 1),
    ("FusedConv", {"x": IMAGE, "w": real(4, 3, 3, 3), "b": real(4)}, {"activation": "Relu"}, 1),
    (
        "FusedConv",
        {"x": IMAGE, "w": real(4, 3, 3, 3), "b": real(4), "z": real(1, 4, 4, 6)},
        {"activation": "Relu"},
        1,
    ),
    (
        "FusedConv",
        {"x": IMAGE, "w": real(4, 3, 1, 1)},
        {"activation": "LeakyRelu", "activation_params": [0.3]},
        1,
    ),
    (
        "FusedConv",
        {"x": IMAGE, "w": real(4, 3, 1, 1)},
        {"activation": "Clip", "activation_params": [-0.5, 0.5]},
        1,
    ),
    (
        "FusedConv",
        {"x": IMAGE, "w": real(4, 3, 1, 1)},
        {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]},
        1,
    ),
    (
        "FusedGemm",
        {"a": real(2, 3), "b": real(3, 4), "c": real(4)},
        {"activation": "Relu", "alpha": 0.5},
        1,
    ),
    (
        "FusedGemm",
        {"a": real(2, 3), "b": real(4, 3), "c": real(4)},
        {"activation": "LeakyRelu", "activation_alpha": 0.2, "transB": 1},
        1,
    ),
    ("FusedMatMul", {"a": real(2, 3, 4), "b": real(2, 4, 5)}, {"alpha": 0.5}, 1),
    ("FusedMatMul", {"a": real(2, 4, 3), "b": real(2, 5, 4)}, {"transA": 1, "transB": 1}, 1),
    ("FusedMatMul", {"a": real(3, 2, 4), "b": real(2, 4, 5)}, {"transBatchA": 1}, 1),
    (
        "FusedMatMul",
        {"a": real(4, 2, 3), "b": real(5, 2, 4)},
        {"transBatchA": 1, "transA": 1, "transBatchB": 1, "transB": 1},
        1,
    ),
    ("TransposeMatMul", {"a": real(2, 4, 3), "b": real(2, 4, 5)}, {"transA": 1}, 1),
    ("NhwcMaxPool", {"x": small(1, 6, 8, 3)}, {"kernel_shape": [2, 2], "strides": [2, 2]}, 1),
    (
        "SkipLayerNormalization",
        {"x": X, "s": real(2, 3, 4), "g": real(4), "b": real(4)},
        {"epsilon": 1e-5},
        1,
    ),
    (
        "SkipLayerNormalization",
        {"x": X, "s": real(2, 3, 4), "g": real(4), "b": real(4), "e": real(4)},
        {"epsilon": 1e-5},
        1,
    ),
    (
        "SkipSimplifiedLayerNormalization",
        {"x": X, "s": real(2, 3, 4), "g": real(4)},
        {"epsilon": 1e-5},
        1,
    ),
    (
        "SkipSimplifiedLayerNormalization",
        {"x": X, "s": real(2, 3, 4), "g": real(4), "e": real(4)},
        {"epsilon": 1e-5},
        1,
    ),
    ("QuantizeLinear", {"x": X, "c_s": scale(0.01), "c_z": np.array(30000, np.uint16)}, {}, 1),
    (
        "DequantizeLinear",
        {"x": small(2, 3, dtype=np.int8), "c_s": np.array([0.1, 0.2, 0.3], np.float32)},
        {"axis": 1},
        1,
    ),
    (
        "Range",
        {"c_a": np.array(1, np.int64), "c_b": np.array(7, np.int64), "c_d": np.array(2, np.int64)},
        {},
        1,
    ),
    ("Range", {"c_a": np.array(1, np.int64), "c_b": np.array(7, np.int64)}, {}, 1),
    ("ExpandDims", {"x": X, "c_a": np.array(1, np.int32)}, {}, 1),
    (
        "Pad",
        {"x": X, "c_p": np.array([0, 1, 0, 0, 0, 2]), "c_v": scale(0.5)},
        {"mode": "constant"},
        1,
    ),
    ("GatherND", {"x": X, "c_i": np.array([[0, 1], [1, 2]])}, {}, 1),
    ("Trilu", {"x": real(4, 5)}, {"upper": 0}, 1),
    ("Unique", {"x": np.array([3, 1, 3, 2, 1], np.float32)}, {}, 3),
    ("CDist", {"a": real(4, 3), "b": real(5, 3)}, {"metric": "euclidean"}, 1),
    ("CDist", {"a": real(4, 3), "b": real(5, 3)}, {"metric": "sqeuclidean"}, 1),
    (
        "DynamicQuantizeMatMul",
        {"a": real(3, 8), "c_b": small(8, 5), "c_s": scale(0.02), "c_z": U8},
        {},
        1,
    ),
    (
        "MatMulIntegerToFloat",
        {
            "a": small(3, 8),
            "c_b": seven_bits(small(8, 5, dtype=np.int8)),
            "as": scale(0.1),
            "bs": real(5),
            "az": U8,
            "_bz": X,
            "bias": real(5),
        },
        {},
        1,
    ),
    (
        "MatMulNBits",
        {"a": real(3, 40), "c_b": small(5, 3, 8), "c_s": real(15)},
        {"K": 40, "N": 5, "bits": 4, "block_size": 16},
        1,
    ),
    (
        "MatMulNBits",
        {"a": real(3, 40), "c_b": small(5, 3, 8), "c_s": real(15), "c_z": small(10)},
        {"K": 40, "N": 5, "bits": 4, "block_size": 16},
        1,
    ),
    (
        "GatherBlockQuantized",
        {"c_t": small(7, 32), "i": np.array([[1, 5], [0, 6]]), "c_s": real(7, 4)},
        {"block_size": 16, "bits": 4},
        1,
    ),
    (
        "GatherBlockQuantized",
        {"c_t": small(7, 32), "i": np.array([[1, 5]]), "c_s": real(7, 2), "c_z": small(7, 2)},
        {"block_size": 16, "bits": 8},
        1,
    ),
    (
        "GatherBlockQuantized",
        {
            "c_t": (small(7, 32) % 16 - 8).astype(np.int8).astype(ml_dtypes.int4),
            "i": np.array([1, 5]),
            "c_s": real(7, 2),
        },
        {"block_size": 16},
        1,
    ),
    (
        "RotaryEmbedding",
        {"x": real(2, 3, 8), "p": np.array([1]), "c": real(9, 2), "s": real(9, 2)},
        {},
        1,
    ),
    (
        "RotaryEmbedding",
        {"x": real(1, 2, 3, 4), "p": np.array([[1, 4, 2]]), "c": real(9, 2), "s": real(9, 2)},
        {"interleaved": 1},
        1,
    ),
]


@pytest.mark.parametrize(
    ("op", "arrays", "attrs", "n_outputs"),
    EXACT,
    ids=[f"{case[0]}-{number}" for number, case in enumerate(EXACT)],
)
def test_an_operator_computes_as_in_onnx_runtime(
    op: str, arrays: Arrays, attrs: dict[str, Any], n_outputs: int
) -> None:
    assert_like_ort(
        single(op, arrays, 17, n_outputs=n_outputs, domain=MICROSOFT, **attrs),
        feeds_of(arrays),
        1e-4,
    )


def test_embed_layer_norm() -> None:
    arrays = {
        "ids": np.array([[1, 3, 2], [0, 1, 1]], np.int32),
        "seg": np.array([[0, 0, 1], [1, 1, 0]], np.int32),
        "c_w": real(5, 4),
        "c_p": real(6, 4),
        "c_s": real(2, 4),
        "c_g": real(4),
        "c_b": real(4),
        "mask": np.array([[1, 1, 0], [1, 1, 1]], np.int32),
    }
    assert_like_ort(
        single("EmbedLayerNormalization", arrays, 17, n_outputs=2, domain=MICROSOFT, epsilon=1e-5),
        feeds_of(arrays),
        1e-4,
    )


def test_skip_layer_norm_returns_the_sum_too() -> None:
    arrays = {"x": X, "s": real(2, 3, 4), "g": real(4), "b": real(4)}
    proto = model(
        [node("SkipLayerNormalization", list(arrays), ["y", "", "", "sum"], domain=MICROSOFT)],
        arrays,
        ["y", "sum"],
    )
    assert_like_ort(proto, arrays, 1e-4)


@pytest.mark.parametrize("axis", [1, 2])
def test_bias_softmax(axis: int) -> None:
    """ONNX Runtime has it on GPUs only, so the definition is the judge: a softmax over everything
    from `axis` on.
    """
    bias = real(1, 3, 4)
    (got,) = run_whence(
        single("BiasSoftmax", {"x": X, "b": bias}, 17, domain=MICROSOFT, axis=axis),
        {"x": X, "b": bias},
    )
    rows = np.exp(X + bias).reshape(*X.shape[:axis], -1)
    np.testing.assert_allclose(
        got, (rows / rows.sum(-1, keepdims=True)).reshape(X.shape), rtol=1e-5
    )


@pytest.mark.parametrize("axis", [4, -4])
def test_bias_softmax_along_no_axis_of_its_input(axis: int) -> None:
    arrays = {"x": X, "b": real(1, 3, 4)}
    with pytest.raises(ModelError, match=f"axis {axis} does not exist"):
        read_onnx(single("BiasSoftmax", arrays, 17, domain=MICROSOFT, axis=axis))


@pytest.mark.parametrize("residual", [False, True])
def test_dropouts_do_nothing_in_inference(residual: bool) -> None:
    """ONNX Runtime has these on GPUs only, so the definition is the judge."""
    bias, rest = real(4), real(2, 3, 4)
    arrays = {"x": X, "b": bias, **({"r": rest} if residual else {})}
    (got,) = run_whence(single("BiasDropout", arrays, 17, domain=MICROSOFT), arrays)
    np.testing.assert_array_equal(got, X + bias + rest if residual else X + bias)
    (got,) = run_whence(single("BitmaskDropout", {"x": X}, 17, domain=MICROSOFT), {"x": X})
    np.testing.assert_array_equal(got, X)
    with pytest.raises(UnsupportedError, match="mask packed into bits"):
        read_onnx(single("BitmaskDropout", {"x": X}, 17, n_outputs=2, domain=MICROSOFT))


def test_lstm_with_quantised_weights_is_close() -> None:
    """ONNX Runtime rounds activations to 8 bits as well, so only closeness can be asked, and of
    weights whose products it adds exactly.
    """
    rng = np.random.default_rng(5)
    arrays: Arrays = {
        "x": rng.uniform(-1, 1, (5, 1, 6)).astype(np.float32),
        "c_w": weight_codes(rng, np.int8, 1, 6, 16),
        "c_r": weight_codes(rng, np.int8, 1, 4, 16),
        "c_b": rng.uniform(-1, 1, (1, 32)).astype(np.float32),
        "_l": X,
        "_h": X,
        "_c": X,
        "_p": X,
        "c_ws": np.full((1,), 0.01, np.float32),
        "c_wz": np.zeros((1,), np.int8),
        "c_rs": np.full((1,), 0.01, np.float32),
        "c_rz": np.zeros((1,), np.int8),
    }
    proto = single("DynamicQuantizeLSTM", arrays, 17, n_outputs=3, domain=MICROSOFT, hidden_size=4)
    assert_close(run_whence(proto, feeds_of(arrays)), run_ort(proto, feeds_of(arrays)), 0.005)


def test_what_is_not_known_is_named() -> None:
    with pytest.raises(
        UnsupportedError,
        match=(
            r"operator 'it' is a 'YieldOp' of domain 'com\.microsoft', which whence does not know"
        ),
    ):
        read_onnx(single("YieldOp", {"x": X}, 17, domain=MICROSOFT))


@pytest.mark.parametrize(
    ("op", "domain", "hint"),
    [
        ("Relu", MICROSOFT, "does not know; there is one of the default domain"),
        ("SkipLayerNormalization", "com.example", "there is one of domain 'com.microsoft'"),
        ("LayerNormalisation", "", "did you mean 'LayerNormalization'"),
        ("FusedConv", "", "there is one of domain 'com.microsoft'"),
        ("Frobnicate", "com.example", "does not know$"),
    ],
)
def test_what_may_have_been_meant_is_told(op: str, domain: str, hint: str) -> None:
    with pytest.raises(UnsupportedError, match=hint):
        read_onnx(single(op, {"x": X}, 17, domain=domain))


def test_a_restated_operator_keeps_its_number() -> None:
    graph = read_onnx(
        single(
            "FusedConv",
            {"x": IMAGE, "w": real(4, 3, 1, 1)},
            17,
            domain=MICROSOFT,
            activation="Relu",
        )
    )
    conv, relu = (each for each in graph if each.op not in ("Input", "Const", "Output"))
    assert (conv.op, relu.op, relu.id) == ("Conv", "Relu", 1)
    assert graph.ledger.source(1).op == "com.microsoft::FusedConv"
    assert [edge.rule for edge in graph.ledger.edges] == [
        "com.microsoft::FusedConv in operators of ONNX"
    ]
