from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.oracle import assert_close, onnxruntime_outputs
from whence.errors import ModelError
from whence.ops.cost import cost
from whence.ops.definition import Call, TypeQuery
from whence.ops.registry import evaluate
from whence.ops.types.inference import infer
from whence.types import DType, TensorType


def run(op: str, *inputs: Any, **attrs: Any) -> np.ndarray:
    (result,) = evaluate(Call(op, attrs, inputs, 1))
    assert isinstance(result, np.ndarray)
    return result


@pytest.mark.parametrize("axis", [1, -2, 0])
@pytest.mark.parametrize("length", [None, 5, 12])
@pytest.mark.parametrize("onesided", [0, 1])
def test_transform_of_a_real_signal(
    axis: int, length: int | None, onesided: int, rng: np.random.Generator
) -> None:
    x = rng.standard_normal((3, 8, 1)).astype(np.float32)
    inputs = [x, None if length is None else np.array(length), np.array(axis)]
    (expected,) = onnxruntime_outputs("DFT", {"onesided": onesided}, inputs, opset=20)
    assert_close(run("DFT", *inputs, onesided=onesided), expected)


def test_transform_there_and_back(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 9, 2))
    np.testing.assert_allclose(run("DFT", run("DFT", x), inverse=1), x, atol=1e-12)
    real = rng.standard_normal((2, 8, 1))
    half = run("DFT", real, onesided=1)
    assert half.shape == (2, 5, 2)
    np.testing.assert_allclose(run("DFT", half, inverse=1, onesided=1), real, atol=1e-12)


@pytest.mark.parametrize(
    ("shape", "length", "attrs", "expected"),
    [
        ((2, 0, 1), None, {}, (2, 0, 2)),
        ((2, 5, 2), 0, {}, (2, 0, 2)),
        ((2, 0, 2), 3, {}, (2, 3, 2)),
        ((2, 0, 1), None, {"onesided": 1}, (2, 1, 2)),
        ((2, 0, 2), None, {"inverse": 1}, (2, 0, 2)),
        ((2, 0, 2), None, {"inverse": 1, "onesided": 1}, (2, 0, 1)),
        ((2, 1, 2), None, {"inverse": 1, "onesided": 1}, (2, 0, 1)),
    ],
)
def test_transform_of_no_points(
    shape: tuple[int, ...], length: int | None, attrs: dict[str, int], expected: tuple[int, ...]
) -> None:
    given = [] if length is None else [np.array(length)]
    made = run("DFT", np.ones(shape, np.float32), *given, **attrs)
    assert made.dtype == np.float32
    np.testing.assert_array_equal(made, np.zeros(expected))


def test_transform_refuses_what_has_no_meaning() -> None:
    with pytest.raises(ModelError, match="DFT: the last axis must hold"):
        run("DFT", np.zeros((2, 3)))
    with pytest.raises(ModelError, match="DFT: a one-sided transform needs a real signal"):
        run("DFT", np.zeros((2, 4, 2)), onesided=1)


@pytest.mark.parametrize("onesided", [0, 1])
def test_short_time_transform(onesided: int, rng: np.random.Generator) -> None:
    signal, window = (
        rng.standard_normal((2, 50, 1)).astype(np.float32),
        np.hanning(16).astype(np.float32),
    )
    inputs = [signal, np.array(4), window, np.array(16)]
    (expected,) = onnxruntime_outputs("STFT", {"onesided": onesided}, inputs, opset=17)
    actual = run("STFT", *inputs, onesided=onesided)
    assert_close(actual, expected)
    query = TypeQuery(
        "STFT",
        {"onesided": onesided},
        tuple(TensorType.of(value) for value in inputs),
        tuple(inputs),
        1,
    )
    assert infer(query) == (TensorType.of(actual),)


@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("op", ["HannWindow", "HammingWindow", "BlackmanWindow"])
def test_windows(op: str, periodic: int) -> None:
    (expected,) = onnxruntime_outputs(op, {"periodic": periodic}, [np.array(10)], opset=17)
    assert_close(run(op, np.array(10), periodic=periodic), expected)
    assert run(op, np.array(3), output_datatype=int(DType.F64)).dtype == np.float64


def test_mel_weights_come_from_onnx() -> None:
    inputs = (
        np.array(8),
        np.array(16),
        np.array(8192),
        np.array(0.0, np.float32),
        np.array(4096.0, np.float32),
    )
    assert run("MelWeightMatrix", *inputs).shape == (9, 8)


def test_a_fast_transform_costs_n_log_n() -> None:
    x = TensorType(DType.F32, (1, 1024, 1))
    counted = cost(TypeQuery("DFT", {}, (x,), (None,), 1), (TensorType(DType.F32, (1, 1024, 2)),))
    assert counted is not None
    assert counted.flops == 5 * 1024 * 10
