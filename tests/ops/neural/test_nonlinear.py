from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.ops.oracle import assert_close, onnxruntime_outputs
from whence.errors import ModelError
from whence.ops.definition import Call, OpClass, Pattern
from whence.ops.neural.nonlinear import OPS
from whence.ops.registry import evaluate

KNOWN_TO_ONNXRUNTIME: list[tuple[str, dict[str, Any]]] = [
    ("Relu", {}),
    ("LeakyRelu", {"alpha": 0.2}),
    ("ThresholdedRelu", {"alpha": 0.7}),
    ("Elu", {"alpha": 1.5}),
    ("Celu", {"alpha": 0.5}),
    ("Selu", {}),
    ("Sigmoid", {}),
    ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
    ("HardSwish", {}),
    ("Gelu", {}),
    ("Gelu", {"approximate": "tanh"}),
    ("Mish", {}),
    ("Softplus", {}),
    ("Softsign", {}),
    ("Tanh", {}),
    ("Shrink", {"bias": 0.1, "lambd": 0.3}),
]


def run(op: str, *inputs: Any, **attrs: Any) -> np.ndarray:
    (result,) = evaluate(Call(op, attrs, inputs, 1))
    assert isinstance(result, np.ndarray)
    return result


# In the opsets that ONNX Runtime knows, Celu is for float32 only.
@pytest.mark.parametrize(
    ("op", "attrs", "dtype"),
    [
        (op, attrs, dtype)
        for op, attrs in KNOWN_TO_ONNXRUNTIME
        for dtype in (np.float32, np.float16)
        if op != "Celu" or dtype is np.float32
    ],
)
def test_as_in_onnxruntime(
    op: str, attrs: dict[str, Any], dtype: Any, rng: np.random.Generator
) -> None:
    x = (rng.standard_normal((4, 33)) * 3).astype(dtype)
    (expected,) = onnxruntime_outputs(op, attrs, [x])
    assert_close(run(op, x, **attrs), expected)


@pytest.mark.parametrize(
    "definition", [op for op in OPS if op.name not in {"PRelu", "SwiGLU"}], ids=lambda op: op.name
)
def test_narrow_floats_are_rounded_once_and_nothing_overflows(definition: Any) -> None:
    x = np.array([-1e4, -100, -1, -1e-3, 0, 1e-3, 1, 100, 1e4], np.float32)
    wide = run(definition.name, x)
    assert np.isfinite(wide).all()
    narrow = x.astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(
        run(definition.name, narrow),
        run(definition.name, narrow.astype(np.float32)).astype(ml_dtypes.bfloat16),
    )
    assert definition.pattern is Pattern.ELEMWISE
    assert OpClass.ACTIVATION in definition.classes


def test_sigmoid_is_relatively_exact_far_out() -> None:
    x = np.array([-80.0, -30.0, -12.0], np.float32)
    np.testing.assert_allclose(
        run("Sigmoid", x), 1 / (1 + np.exp(-x.astype(np.float64))), rtol=1e-6
    )


def test_slope_per_channel(rng: np.random.Generator) -> None:
    x, slope = (
        rng.standard_normal((2, 3, 4)).astype(np.float32),
        rng.standard_normal((3, 1)).astype(np.float32),
    )
    (expected,) = onnxruntime_outputs("PRelu", {}, [x, slope])
    assert_close(run("PRelu", x, slope), expected)


def test_swiglu_does_not_broadcast() -> None:
    gate = np.array([1.0, -2.0], np.float32)
    np.testing.assert_allclose(
        run("SwiGLU", gate, gate * 3), run("Swish", gate) * gate * 3, rtol=1e-6
    )
    with pytest.raises(ModelError, match="SwiGLU: the gate"):
        run("SwiGLU", gate, np.ones(1, np.float32))


def test_whole_numbers_stay_whole() -> None:
    assert run("Relu", np.array([-3, 4], np.int32)).dtype == np.int32
