from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.classical.oracle import check, run
from whence.errors import ModelError
from whence.ops.definition import Attrs, TypeQuery
from whence.ops.types.inference import infer
from whence.types import TensorType

TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"]
KERNELS = ["LINEAR", "POLY", "RBF", "SIGMOID"]
RNG = np.random.default_rng(5)
X = RNG.standard_normal((7, 3)).astype(np.float32)
VECTORS = tuple(RNG.standard_normal(12).astype(np.float32).tolist())
MACHINE: dict[str, Any] = {"kernel_params": (0.5, 0.1, 3.0), "support_vectors": VECTORS}


@pytest.mark.parametrize("kind", [*TRANSFORMS, "PROBIT"])
def test_regressor(kind: str) -> None:
    check(
        "LinearRegressor", X, coefficients=(0.1, 0.2, 0.3), intercepts=(0.5,), post_transform=kind
    )
    check(
        "LinearRegressor",
        X,
        coefficients=(0.1, 0.2, 0.3, -0.1, 0.4, 0.2),
        intercepts=(0.5, 0.3),
        targets=2,
        post_transform=kind,
    )


@pytest.mark.parametrize("kind", TRANSFORMS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_classifier(kind: str, dtype: Any) -> None:
    x = (X * 3).astype(dtype)
    three: dict[str, Any] = {
        "coefficients": (0.1, 0.2, 0.3, -0.1, 0.4, 0.2, 0.5, 0.1, -0.7),
        "intercepts": (0.53, -0.11, 0.27),
    }
    check(
        "LinearClassifier",
        x,
        n_outputs=2,
        classlabels_ints=(3, 5, 7),
        post_transform=kind,
        multi_class=1,
        **three,
    )
    check(
        "LinearClassifier",
        x,
        n_outputs=2,
        classlabels_strings=("a", "b", "c"),
        post_transform=kind,
        **three,
    )
    check(
        "LinearClassifier",
        x,
        n_outputs=2,
        classlabels_ints=(0, 1),
        coefficients=(0.1, 0.2, 0.3),
        intercepts=(0.53,),
        post_transform=kind,
    )


def test_a_classifier_without_intercepts() -> None:
    attrs: Attrs = {"classlabels_strings": ("a", "b"), "coefficients": (0.1, 0.2, 0.3, 0, 0, 1.0)}
    query = TypeQuery("ai.onnx.ml::LinearClassifier", attrs, (TensorType.of(X),), (None,), 2)
    labels, scores = run("LinearClassifier", X, n_outputs=2, **attrs)
    assert infer(query) == (TensorType.of(labels), TensorType.of(scores))


def test_coefficients_must_fit() -> None:
    with pytest.raises(
        ModelError, match="LinearRegressor: 2 coefficients do not fit 1 results of 3 features"
    ):
        run("LinearRegressor", X, coefficients=(0.1, 0.2))


@pytest.mark.parametrize("kernel", KERNELS)
def test_support_vector_regressor(kernel: str) -> None:
    rest = {
        "kernel_type": kernel,
        "coefficients": (0.1, -0.2, 0.3, 0.4),
        "rho": (0.2,),
        "n_supports": 4,
        **MACHINE,
    }
    check("SVMRegressor", X, **rest)
    check("SVMRegressor", X, one_class=1, **rest)


def test_linear_support_vector_regressor() -> None:
    check(
        "SVMRegressor",
        X,
        kernel_type="LINEAR",
        kernel_params=(0.0, 0.0, 0.0),
        coefficients=(0.1, 0.2, 0.3),
        rho=(0.2,),
        n_supports=0,
    )


@pytest.mark.parametrize("kind", TRANSFORMS)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("chances", [False, True])
def test_support_vector_classifier(kernel: str, kind: str, chances: bool) -> None:
    two = {
        "coefficients": (0.1, -0.2, 0.3, 0.4),
        "rho": (0.2,),
        "vectors_per_class": (2, 2),
        "classlabels_ints": (0, 1),
    }
    three = {
        "coefficients": (0.1, -0.2, 0.3, 0.4, 0.5, 0.6, -0.7, 0.8),
        "rho": (0.2, 0.1, -0.1),
        "vectors_per_class": (2, 1, 1),
        "classlabels_strings": ("a", "b", "c"),
    }
    for classes, slopes, offsets in (
        (two, (0.3,), (0.1,)),
        (three, (-0.9, 0.2, -0.4), (0.1, 0.2, -0.3)),
    ):
        extra: dict[str, Any] = {"prob_a": slopes, "prob_b": offsets} if chances else {}
        check(
            "SVMClassifier",
            X,
            n_outputs=2,
            kernel_type=kernel,
            post_transform=kind,
            **classes,
            **MACHINE,
            **extra,
        )


@pytest.mark.parametrize("kind", TRANSFORMS)
def test_linear_support_vector_classifier(kind: str) -> None:
    weights = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, -0.9)
    rest: dict[str, Any] = {
        "kernel_type": "LINEAR",
        "kernel_params": (0.0, 0.0, 0.0),
        "coefficients": weights,
        "rho": (0.2,),
        "classlabels_ints": (1, 2, 3),
    }
    check("SVMClassifier", X, n_outputs=2, post_transform=kind, **rest)
