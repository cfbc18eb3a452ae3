from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.ops.oracle import assert_close, onnxruntime_outputs
from whence.errors import ModelError
from whence.ops.definition import Call
from whence.ops.registry import evaluate


def run(op: str, *inputs: Any, **attrs: Any) -> np.ndarray:
    (result,) = evaluate(Call(op, attrs, inputs, 1))
    assert isinstance(result, np.ndarray)
    return result


def test_gather_counts_from_both_ends() -> None:
    x = np.arange(12).reshape(3, 4)
    assert run("Gather", x, np.array([[0, -1]]), axis=1).tolist() == [[[0, 3]], [[4, 7]], [[8, 11]]]
    assert run("Gather", x, np.array(1)).tolist() == [4, 5, 6, 7]
    assert run("Gather", np.array(["a", "b"], object), np.array([1, 1, 0])).tolist() == [
        "b",
        "b",
        "a",
    ]


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_elements_with_smaller_indices(axis: int, rng: np.random.Generator) -> None:
    x = rng.standard_normal((4, 5, 6)).astype(np.float32)
    indices = rng.integers(-4, 4, (3, 1, 2))
    (expected,) = onnxruntime_outputs("GatherElements", {"axis": axis}, [x, indices])
    assert_close(run("GatherElements", x, indices, axis=axis), expected)


@pytest.mark.parametrize(
    ("batch_dims", "shape"),
    [
        (0, (3, 2)),
        (0, (2, 4, 1)),
        (1, (2, 4, 2)),
        (1, (2, 1)),
        (2, (2, 3, 5, 1)),
        (0, (0, 2)),
        (0, (3,)),
    ],
)
def test_gather_nd(batch_dims: int, shape: tuple[int, ...], rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 3, 4)).astype(np.float32)
    indices = rng.integers(0, 2, shape)
    (expected,) = onnxruntime_outputs("GatherND", {"batch_dims": batch_dims}, [x, indices])
    assert_close(run("GatherND", x, indices, batch_dims=batch_dims), expected)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("axis", [0, -1])
def test_scatter_elements(axis: int, reduction: str, rng: np.random.Generator) -> None:
    x = rng.standard_normal((4, 5)).astype(np.float32)
    # Without a reduction the standard leaves repeated places open, so there are none then.
    indices = (
        np.array([[0, 3, -1], [1, 2, 0]])
        if reduction == "none"
        else np.array([[0, 0, -1], [1, 1, 1]])
    )
    updates = rng.standard_normal(indices.shape).astype(np.float32)
    (expected,) = onnxruntime_outputs(
        "ScatterElements", {"axis": axis, "reduction": reduction}, [x, indices, updates]
    )
    assert_close(
        run("ScatterElements", x, indices, updates, axis=axis, reduction=reduction), expected
    )


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatter_nd(reduction: str, rng: np.random.Generator) -> None:
    x = rng.standard_normal((4, 5, 2)).astype(np.float32)
    indices = np.array([[0, 1], [-1, 4]]) if reduction == "none" else np.array([[0, 1], [0, 1]])
    updates = rng.standard_normal((2, 2)).astype(np.float32)
    (expected,) = onnxruntime_outputs("ScatterND", {"reduction": reduction}, [x, indices, updates])
    before = x.copy()
    assert_close(run("ScatterND", x, indices, updates, reduction=reduction), expected)
    np.testing.assert_array_equal(x, before)


def test_scatter_of_bfloat16_and_text() -> None:
    x = np.ones(3, ml_dtypes.bfloat16)
    assert run("ScatterElements", x, np.array([1, 1]), x[:2], reduction="add").astype(
        np.float32
    ).tolist() == [1, 3, 1]
    assert run(
        "ScatterND", np.array(["a", "b"], object), np.array([[1]]), np.array(["z"], object)
    ).tolist() == ["a", "z"]


def test_cache_update_wraps_around_only_when_asked() -> None:
    past, update, start = (
        np.zeros((2, 3, 1), np.float32),
        np.ones((2, 2, 1), np.float32),
        np.array([0, 2]),
    )
    y = run("TensorScatter", past, update, start, mode="circular")
    assert y[..., 0].tolist() == [[1, 1, 0], [1, 0, 1]]
    with pytest.raises(
        ModelError, match="TensorScatter: the update does not fit the cache of length 3"
    ):
        run("TensorScatter", past, update, start)


def test_compress() -> None:
    x = np.arange(6).reshape(3, 2)
    assert run("Compress", x, np.array([False, True])).tolist() == [1]
    assert run("Compress", x, np.array([False, True, True]), axis=0).tolist() == [[2, 3], [4, 5]]


@pytest.mark.parametrize(
    ("op", "inputs", "attrs"),
    [
        ("Gather", (np.ones(3), np.array([3])), {}),
        ("GatherElements", (np.ones((2, 2)), np.array([0])), {}),
        ("GatherND", (np.ones((2, 2)), np.array([[0, 0, 0]])), {}),
        ("ScatterND", (np.ones(2), np.array([[0, 0, 0]]), np.ones(1)), {}),
        ("ScatterElements", (np.ones(2), np.array([0]), np.ones(1)), {"reduction": "xor"}),
        ("ScatterElements", (np.ones(2), np.array([5]), np.ones(1)), {}),
    ],
)
def test_places_that_do_not_exist(op: str, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=f"^{op}: "):
        run(op, *inputs, **attrs)
