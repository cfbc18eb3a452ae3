"""Every adapter against ONNX Runtime, which runs the old model as the old opset says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.frontends.onnx.models import assert_like_ort, feeds_of, model, node, run_whence, single
from whence.errors import UnsupportedError
from whence.frontends.onnx.reader import read_onnx

RNG = np.random.default_rng(7)


def real(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


X = real(2, 3, 4)
IMAGE = real(1, 3, 6, 8)

CASES: list[tuple[str, int, dict[str, np.ndarray], dict[str, Any], int]] = [
    ("Squeeze", 7, {"x": real(1, 3, 1)}, {"axes": [0, 2]}, 1),
    ("Squeeze", 11, {"x": real(1, 3, 1)}, {}, 1),
    ("Unsqueeze", 9, {"x": X}, {"axes": [0, 2]}, 1),
    ("Unsqueeze", 11, {"x": X}, {"axes": [-1]}, 1),
    ("ReduceSum", 7, {"x": X}, {"axes": [1], "keepdims": 0}, 1),
    ("ReduceSum", 11, {"x": X}, {}, 1),
    ("ReduceMean", 11, {"x": X}, {"axes": [-1], "keepdims": 1}, 1),
    ("ReduceMax", 13, {"x": X}, {"axes": [0, 2]}, 1),
    ("ReduceL2", 13, {"x": X}, {}, 1),
    ("ReduceLogSumExp", 11, {"x": X}, {"axes": [1]}, 1),
    ("ReduceMin", 12, {"x": X}, {"axes": [1]}, 1),
    ("ReduceProd", 17, {"x": X}, {"axes": [1]}, 1),
    ("ReduceSumSquare", 9, {"x": X}, {"axes": [1]}, 1),
    ("ReduceL1", 9, {"x": X}, {"axes": [1]}, 1),
    ("ReduceLogSum", 9, {"x": np.abs(X)}, {"axes": [1]}, 1),
    ("Split", 7, {"x": X}, {"axis": 1, "split": [1, 2]}, 2),
    ("Split", 11, {"x": X}, {"axis": 2}, 2),
    ("Split", 13, {"x": X, "c_sizes": np.array([1, 3])}, {"axis": 2}, 2),
    ("Split", 13, {"x": X}, {"axis": 2}, 4),
    ("Slice", 7, {"x": X}, {"starts": [1, 0], "ends": [3, -1], "axes": [1, 2]}, 1),
    ("Slice", 9, {"x": X}, {"starts": [0, 1], "ends": [1, 1000]}, 1),
    ("Pad", 7, {"x": X}, {"pads": [0, 1, 0, 0, 0, 2]}, 1),
    ("Pad", 9, {"x": X}, {"pads": [0, 1, 1, 0, 1, 2], "value": 1.5}, 1),
    ("Pad", 10, {"x": X}, {"pads": [0, 1, 1, 0, 1, 2], "mode": "reflect"}, 1),
    ("Pad", 7, {"x": X}, {"pads": [0, -1, 0, 0, 0, 1], "mode": "edge"}, 1),
    ("Clip", 7, {"x": X}, {"min": -0.5, "max": 0.25}, 1),
    ("Clip", 10, {"x": X}, {"max": 0.25}, 1),
    ("Clip", 10, {"x": X}, {}, 1),
    ("TopK", 7, {"x": X}, {"k": 2, "axis": 2}, 2),
    ("TopK", 9, {"x": X}, {"k": 3}, 2),
    ("TopK", 10, {"x": X, "c_k": np.array([2])}, {"axis": 1}, 2),
    ("Dropout", 7, {"x": X}, {"ratio": 0.3}, 1),
    ("Dropout", 7, {"x": X}, {"ratio": 0.3}, 2),
    ("Dropout", 10, {"x": X}, {"ratio": 0.3}, 2),
    ("Softmax", 7, {"x": X}, {"axis": 1}, 1),
    ("Softmax", 11, {"x": X}, {}, 1),
    ("Softmax", 11, {"x": X}, {"axis": -1}, 1),
    ("Softmax", 11, {"x": X}, {"axis": -2}, 1),
    ("Softmax", 9, {"x": X}, {"axis": 0}, 1),
    ("Softmax", 9, {"x": real(2, 5, 1, 1)}, {"axis": 1}, 1),
    ("Softmax", 13, {"x": X}, {"axis": 1}, 1),
    ("LogSoftmax", 9, {"x": X}, {"axis": 1}, 1),
    ("Hardmax", 9, {"x": X}, {"axis": 1}, 1),
    ("Hardmax", 11, {"x": X}, {"axis": 2}, 1),
    ("Upsample", 7, {"x": IMAGE}, {"scales": [1.0, 1.0, 2.0, 3.0], "mode": "nearest"}, 1),
    ("Upsample", 9, {"x": IMAGE, "c_s": np.array([1, 1, 2, 2], np.float32)}, {"mode": "linear"}, 1),
    (
        "Upsample",
        9,
        {"x": IMAGE, "c_s": np.array([1, 1, 1.5, 2.5], np.float32)},
        {"mode": "nearest"},
        1,
    ),
    ("Resize", 10, {"x": IMAGE, "c_s": np.array([1, 1, 2, 3], np.float32)}, {"mode": "nearest"}, 1),
    (
        "Resize",
        10,
        {"x": IMAGE, "c_s": np.array([1, 1, 0.6, 0.6], np.float32)},
        {"mode": "nearest"},
        1,
    ),
    (
        "Resize",
        10,
        {"x": IMAGE, "c_s": np.array([1, 1, 0.6, 2], np.float32)},
        {"mode": "nearest"},
        1,
    ),
    (
        "Resize",
        10,
        {"x": IMAGE, "c_s": np.array([1, 1, 0.5, 2], np.float32)},
        {"mode": "linear"},
        1,
    ),
    (
        "Resize",
        11,
        {"x": IMAGE, "c_r": np.empty(0, np.float32), "c_s": np.array([1, 1, 2, 2], np.float32)},
        {"mode": "linear"},
        1,
    ),
    (
        "Resize",
        11,
        {
            "x": IMAGE,
            "c_r": np.empty(0, np.float32),
            "c_s": np.empty(0, np.float32),
            "c_z": np.array([1, 3, 9, 5]),
        },
        {"mode": "cubic", "coordinate_transformation_mode": "align_corners"},
        1,
    ),
    (
        "Resize",
        11,
        {"x": IMAGE, "c_r": np.empty(0, np.float32), "c_s": np.array([1, 1, 1.7, 2.3], np.float32)},
        {
            "mode": "nearest",
            "nearest_mode": "floor",
            "coordinate_transformation_mode": "tf_half_pixel_for_nn",
        },
        1,
    ),
    (
        "Resize",
        13,
        {"x": IMAGE, "_r": X, "c_s": np.array([1, 1, 2, 2], np.float32)},
        {"mode": "nearest"},
        1,
    ),
    (
        "BatchNormalization",
        7,
        {"x": IMAGE, "c_a": real(3), "c_b": real(3), "c_m": real(3), "c_v": np.abs(real(3))},
        {"epsilon": 1e-3},
        1,
    ),
    (
        "BatchNormalization",
        9,
        {"x": IMAGE, "c_a": real(3), "c_b": real(3), "c_m": real(3), "c_v": np.abs(real(3))},
        {},
        1,
    ),
    ("Scatter", 9, {"x": real(3, 3), "i": np.array([[1, 0, 2]]), "u": real(1, 3)}, {"axis": 0}, 1),
    ("GridSample", 16, {"x": IMAGE, "g": np.tanh(real(1, 4, 5, 2))}, {}, 1),
    (
        "GridSample",
        16,
        {"x": IMAGE, "g": np.tanh(real(1, 4, 5, 2))},
        {"mode": "bicubic", "align_corners": 1},
        1,
    ),
    (
        "RoiAlign",
        10,
        {
            "x": IMAGE,
            "r": np.array([[0, 0, 3, 4], [1, 1, 6, 5]], np.float32),
            "b": np.array([0, 0]),
        },
        {"output_height": 2, "output_width": 3, "sampling_ratio": 2},
        1,
    ),
    ("DFT", 17, {"x": real(2, 8, 3, 1)}, {"axis": 1}, 1),
    ("DFT", 17, {"x": real(2, 8, 1)}, {"onesided": 1}, 1),
    ("Gemm", 7, {"a": real(2, 3), "b": real(3, 4), "c": real(4)}, {"alpha": 0.5}, 1),
    ("MaxPool", 7, {"x": IMAGE}, {"kernel_shape": [2, 2], "strides": [2, 2]}, 1),
    ("MaxPool", 8, {"x": IMAGE}, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, 2),
    ("AveragePool", 7, {"x": IMAGE}, {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER"}, 1),
    (
        "AveragePool",
        10,
        {"x": IMAGE},
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
        1,
    ),
    ("PRelu", 7, {"x": X, "s": real(3, 1)}, {}, 1),
    ("Pow", 7, {"x": np.abs(X), "e": np.array(2.5, np.float32)}, {}, 1),
    ("Max", 7, {"x": X, "z": real(2, 3, 4)}, {}, 1),
    ("Sum", 8, {"x": X, "z": real(4)}, {}, 1),
    ("Flatten", 7, {"x": X}, {"axis": 2}, 1),
    (
        "ConvTranspose",
        7,
        {"x": IMAGE, "c_w": real(3, 2, 3, 3)},
        {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
        1,
    ),
    (
        "ConvTranspose",
        11,
        {"x": IMAGE, "c_w": real(3, 2, 3, 3)},
        {"strides": [2, 2], "auto_pad": "SAME_LOWER"},
        1,
    ),
    (
        "QuantizeLinear",
        10,
        {"x": X, "c_s": np.array(0.05, np.float32), "c_z": np.array(128, np.uint8)},
        {},
        1,
    ),
    (
        "DequantizeLinear",
        10,
        {
            "x": np.arange(6, dtype=np.uint8),
            "c_s": np.array(0.05, np.float32),
            "c_z": np.array(3, np.uint8),
        },
        {},
        1,
    ),
    (
        "OneHot",
        9,
        {"i": np.array([0, 2, 1]), "c_d": np.array(3), "c_v": np.array([0, 1], np.float32)},
        {},
        1,
    ),
    ("Cast", 7, {"x": X}, {"to": TensorProto.INT32}, 1),
    ("ArgMax", 7, {"x": X}, {"axis": 1}, 1),
    (
        "LSTM",
        7,
        {"x": real(4, 2, 3), "c_w": real(1, 8, 3), "c_r": real(1, 8, 2)},
        {"hidden_size": 2},
        3,
    ),
    ("DepthToSpace", 7, {"x": real(1, 8, 2, 3)}, {"blocksize": 2}, 1),
    ("ThresholdedRelu", 7, {"x": X}, {"alpha": 0.5}, 1),
    ("LayerNormalization", 12, {"x": X, "c_s": real(4), "c_b": real(4)}, {"epsilon": 1e-4}, 1),
    ("SimplifiedLayerNormalization", 12, {"x": X, "c_s": real(4)}, {"epsilon": 1e-4}, 1),
    (
        "SimplifiedLayerNormalization",
        12,
        {"x": X, "c_s": real(4)},
        {"epsilon": 1e-4, "axis": -1},
        2,
    ),
    ("Affine", 7, {"x": X}, {"alpha": 2.0, "beta": -1.0}, 1),
    ("Crop", 7, {"x": IMAGE}, {"border": [1, 2, 3, 0]}, 1),
    ("Crop", 7, {"x": IMAGE}, {"border": [1, 2, 0, 0], "scale": [3, 4]}, 1),
    ("ImageScaler", 7, {"x": IMAGE}, {"bias": [1.0, -2.0, 0.5], "scale": 0.25}, 1),
    ("ParametricSoftplus", 7, {"x": X}, {"alpha": 0.5, "beta": 2.0}, 1),
    ("ScaledTanh", 7, {"x": X}, {"alpha": 0.5, "beta": 2.0}, 1),
    (
        "MeanVarianceNormalization",
        8,
        {"x": IMAGE},
        {"across_channels": 0, "normalize_variance": 1},
        1,
    ),
    (
        "MeanVarianceNormalization",
        8,
        {"x": IMAGE},
        {"across_channels": 1, "normalize_variance": 0},
        1,
    ),
    ("MeanVarianceNormalization", 9, {"x": IMAGE}, {}, 1),
]


@pytest.mark.parametrize(
    ("op", "opset", "arrays", "attrs", "n_outputs"),
    CASES,
    ids=[f"{case[0]}-{case[1]}-{number}" for number, case in enumerate(CASES)],
)
def test_an_old_operator_computes_as_it_did(
    op: str, opset: int, arrays: dict[str, np.ndarray], attrs: dict[str, Any], n_outputs: int
) -> None:
    proto = single(op, arrays, opset, n_outputs=n_outputs, **attrs)
    assert_like_ort(proto, feeds_of(arrays), 1e-4)


ANCIENT: list[tuple[str, int, dict[str, np.ndarray], dict[str, Any], np.ndarray]] = [
    ("Add", 6, {"x": X, "b": X[0, :, 0]}, {"broadcast": 1, "axis": 1}, X + X[0, :, :1]),
    ("Mul", 6, {"x": X, "b": X[0, 0]}, {"broadcast": 1}, X * X[0, 0]),
    ("Sub", 6, {"x": X, "b": X[:, 0, 0]}, {"broadcast": 1, "axis": -3}, X - X[:, :1, :1]),
    (
        "Div",
        1,
        {"x": X, "b": np.float32(2).reshape(1)},
        {"broadcast": 1, "consumed_inputs": [0, 0]},
        X / 2,
    ),
    ("Relu", 1, {"x": X}, {"consumed_inputs": [0]}, np.maximum(X, 0)),
    (
        "PRelu",
        6,
        {"x": X, "s": np.array([0.1, 0.2, 0.3], np.float32)},
        {},
        np.where(X < 0, X * np.array([[0.1], [0.2], [0.3]], np.float32), X),
    ),
    ("Dropout", 6, {"x": X}, {"is_test": 1}, X),
    (
        "Gemm",
        6,
        {"a": X[0], "b": X[1].T, "c": X[0, 0, :1]},
        {"broadcast": 1},
        X[0] @ X[1].T + X[0, 0, :1],
    ),
    ("Cast", 1, {"x": X}, {"to": "INT32"}, X.astype(np.int32)),
    ("Concat", 1, {"x": X, "z": X}, {}, np.concatenate([X, X], 1)),
    ("Pad", 1, {"x": X}, {"paddings": [0, 0, 1, 0, 0, 0]}, np.pad(X, [(0, 0), (0, 0), (1, 0)])),
    ("Reshape", 1, {"x": X}, {"shape": [0, -1]}, X.reshape(2, -1)),
    (
        "Tile",
        1,
        {"x": X, "c_t": np.array([2.0], np.float32), "c_a": np.array([1.0], np.float32)},
        {},
        np.tile(X, (1, 2, 1)),
    ),
    (
        "Upsample",
        1,
        {"x": IMAGE},
        {"height_scale": 2.0, "width_scale": 3.0},
        IMAGE.repeat(2, 2).repeat(3, 3),
    ),
    ("Split", 1, {"x": X, "c_s": np.array([1.0, 2.0], np.float32)}, {"axis": 1}, X[:, :1]),
]


@pytest.mark.parametrize(
    ("op", "opset", "arrays", "attrs", "expected"),
    ANCIENT,
    ids=[f"{case[0]}-{case[1]}" for case in ANCIENT],
)
def test_operators_from_before_opset_7(
    op: str, opset: int, arrays: dict[str, np.ndarray], attrs: dict[str, Any], expected: np.ndarray
) -> None:
    """ONNX Runtime does not run them all, so the definitions are the judge."""
    proto = single(op, arrays, opset, n_outputs=2 if op == "Split" else 1, **attrs)
    got = run_whence(proto, feeds_of(arrays))
    assert got[0].dtype == expected.dtype
    np.testing.assert_allclose(got[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("opset", [7, 8])
def test_statistics_per_activation(opset: int) -> None:
    """ONNX Runtime dropped `spatial = 0`; the definition is the judge."""
    x, scale, bias, mean = real(2, 3, 4), real(3, 4), real(3, 4), real(3, 4)
    variance = np.abs(real(3, 4))
    arrays = {"x": x, "c_a": scale, "c_b": bias, "c_m": mean, "c_v": variance}
    (got,) = run_whence(
        single("BatchNormalization", arrays, opset, spatial=0, epsilon=1e-3), {"x": x}
    )
    np.testing.assert_allclose(
        got, (x - mean) / np.sqrt(variance + 1e-3) * scale + bias, rtol=1e-5, atol=1e-6
    )


def test_group_norm_parameters_per_group() -> None:
    """Opset 18 had one scale for each group. The expected values are computed by hand."""
    x, scale, bias = real(2, 4, 5), real(2), real(2)
    (got,) = run_whence(
        single(
            "GroupNormalization",
            {"x": x, "c_s": scale, "c_b": bias},
            18,
            num_groups=2,
            epsilon=1e-5,
        ),
        {"x": x},
    )
    groups = x.reshape(2, 2, 10)
    normal = (groups - groups.mean(-1, keepdims=True)) / np.sqrt(
        groups.var(-1, keepdims=True) + 1e-5
    )
    expected = normal.reshape(2, 2, 2, 5) * scale[None, :, None, None] + bias[None, :, None, None]
    np.testing.assert_allclose(got, expected.reshape(2, 4, 5), rtol=1e-4, atol=1e-5)


def test_training_batch_norm_is_told_by_its_outputs() -> None:
    arrays = {"x": IMAGE, "c_a": real(3), "c_b": real(3), "c_m": real(3), "c_v": np.abs(real(3))}
    graph = read_onnx(single("BatchNormalization", arrays, 9, n_outputs=3))
    norm = next(each for each in graph if each.op == "BatchNormalization")
    assert norm.attrs["training_mode"] == 1
    with pytest.raises(UnsupportedError, match="saved for a backward pass"):
        read_onnx(single("BatchNormalization", arrays, 9, n_outputs=5))


@pytest.mark.parametrize(
    ("attrs", "expected"),
    [
        (
            {"value": helper.make_tensor("t", TensorProto.INT32, [2], [1, 2])},
            np.array([1, 2], np.int32),
        ),
        ({"value_float": 1.5}, np.array(1.5, np.float32)),
        ({"value_floats": [1.5, 2.0]}, np.array([1.5, 2], np.float32)),
        ({"value_floats": []}, np.array([], np.float32)),
        ({"value_int": 3}, np.array(3, np.int64)),
        ({"value_ints": [3, 4]}, np.array([3, 4], np.int64)),
        ({"value_string": "ab"}, np.array("ab", np.object_)),
        ({"value_strings": ["a", "b"]}, np.array(["a", "b"], np.object_)),
        (
            {
                "sparse_value": helper.make_sparse_tensor(
                    helper.make_tensor("v", TensorProto.FLOAT, [2], [5.0, 6.0]),
                    helper.make_tensor("i", TensorProto.INT64, [2], [1, 4]),
                    [2, 3],
                )
            },
            np.array([[0, 5, 0], [0, 6, 0]], np.float32),
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_constants_of_every_kind(attrs: dict[str, Any], expected: np.ndarray) -> None:
    constant = node("Constant", [], ["y"], name="it")
    for key, value in attrs.items():
        kind = (
            helper.make_attribute(key, value, attr_type=6)
            if value == []
            else helper.make_attribute(key, value)
        )
        constant.attribute.append(kind)
    graph = read_onnx(model([constant], {}, ["y"], opset=13))
    (const,) = [each for each in graph if each.op == "Const"]
    assert const.id == 1
    assert const.origin == {1}
    assert const.value is not None
    assert const.value.dtype == expected.dtype
    np.testing.assert_array_equal(const.value, expected)


def test_clip_bounds_take_the_type_of_the_data() -> None:
    x = real(3, dtype=np.float16)
    (got,) = run_whence(single("Clip", {"x": x}, 7, min=-0.5, max=0.5), {"x": x})
    assert got.dtype == np.float16
    np.testing.assert_array_equal(got, np.clip(x, np.float16(-0.5), np.float16(0.5)))


def test_softmax_of_unknown_rank_is_flattened() -> None:
    nodes = [node("Reshape", ["x", "shape"], ["r"]), node("Softmax", ["r"], ["y"], axis=1)]
    proto = model(nodes, {"x": X, "shape": (TensorProto.INT64, [None])}, ["y"], opset=11)
    proto.graph.input[1].type.tensor_type.shape.Clear()
    proto.graph.input[1].type.tensor_type.shape.dim.add()
    assert_like_ort(proto, {"x": X, "shape": np.array([2, 2, 6])})
    assert_like_ort(proto, {"x": X, "shape": np.array([6, 4])})


def test_helpers_of_a_restated_operator_are_in_the_ledger() -> None:
    graph = read_onnx(single("Softmax", {"x": X}, 9, axis=1))
    made = [each for each in graph if each.op not in ("Input", "Const", "Output")]
    assert [each.op for each in made] == ["Flatten", "Softmax", "Shape", "Reshape"]
    assert all(each.origin == {1} for each in made)
    assert made[-1].id == 1
    assert {edge.child for edge in graph.ledger.edges} == {each.id for each in made[:-1]}
    assert {edge.rule for edge in graph.ledger.edges} == {
        "Softmax of opset 9 in the terms of opset 28"
    }
    assert graph.ledger.replay_origins()[made[0].id] == {1}
