from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from whence.ops.definition import Call, OpClass
from whence.ops.registry import evaluate
from whence.ops.tensor.random import OPS
from whence.types import DType


def run(op: str, *inputs: Any, n_outputs: int = 1, **attrs: Any) -> Any:
    results = evaluate(Call(op, attrs, inputs, n_outputs))
    return results[0] if n_outputs == 1 else results


LIKE = np.zeros((50, 40), np.float32)
DRAWS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("RandomNormal", (), {"shape": (50, 40)}),
    ("RandomNormalLike", (LIKE,), {}),
    ("RandomUniform", (), {"shape": (50, 40)}),
    ("RandomUniformLike", (LIKE,), {}),
    ("Bernoulli", (LIKE + np.float32(0.5),), {}),
    ("Multinomial", (LIKE,), {"sample_size": 40, "dtype": 7}),
]


@pytest.mark.parametrize(("op", "inputs", "attrs"), DRAWS)
def test_a_seed_repeats_and_nothing_else_does(
    op: str, inputs: tuple[Any, ...], attrs: dict[str, Any]
) -> None:
    first = run(op, *inputs, seed=3.0, **attrs)
    assert first.shape == (50, 40)
    np.testing.assert_array_equal(first, run(op, *inputs, seed=3.0, **attrs))
    assert (first != run(op, *inputs, seed=4.0, **attrs)).any()
    assert (run(op, *inputs, **attrs) != run(op, *inputs, **attrs)).any()


def test_distributions() -> None:
    normal = run("RandomNormal", shape=(100_000,), mean=3.0, scale=0.5, seed=1.0)
    assert abs(normal.mean() - 3) < 0.01
    assert abs(normal.std() - 0.5) < 0.01
    uniform = run("RandomUniform", shape=(100_000,), low=-1.0, high=3.0, seed=1.0)
    assert -1 <= uniform.min() < -0.99
    assert 2.99 < uniform.max() <= 3
    chances = np.full(100_000, 0.25, np.float32)
    assert abs(run("Bernoulli", chances, seed=1.0).mean() - 0.25) < 0.01
    classes = run(
        "Multinomial",
        np.log(np.array([[0.2, 0.5, 0.3]], np.float32)),
        sample_size=100_000,
        seed=1.0,
    )
    np.testing.assert_allclose(np.bincount(classes[0]) / 100_000, [0.2, 0.5, 0.3], atol=0.01)


def test_element_types() -> None:
    assert run("RandomNormal", shape=(2,)).dtype == np.float32
    assert run("RandomNormal", shape=(2,), dtype=int(DType.F16)).dtype == np.float16
    assert run("RandomUniformLike", np.zeros(3)).dtype == np.float64
    assert run("Bernoulli", np.ones(3, np.float32), dtype=int(DType.BOOL)).dtype == np.bool_
    assert run("Multinomial", np.zeros((1, 2), np.float32)).dtype == np.int32


def test_dropout_at_inference_is_an_identity() -> None:
    x = np.arange(6, dtype=np.float32)
    y, mask = run("Dropout", x, np.array(0.9, np.float32), n_outputs=2)
    np.testing.assert_array_equal(y, x)
    assert mask.all()
    assert mask.dtype == np.bool_


def test_dropout_in_training_scales_what_it_keeps() -> None:
    x = np.ones(10_000, np.float32)
    y, mask = run("Dropout", x, np.array(0.25, np.float32), np.array(True), n_outputs=2, seed=7)
    np.testing.assert_allclose(y[mask], 1 / 0.75, rtol=1e-6)
    assert not y[~mask].any()
    assert abs(mask.mean() - 0.75) < 0.02


def test_all_are_random() -> None:
    assert all(OpClass.RANDOM in op.classes for op in OPS)
