from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whence.errors import ModelError
from whence.ops.definition import TypeQuery
from whence.ops.types.inference import infer
from whence.ops.types.shape_rules import reshaped, sliced, split_sizes
from whence.types import Dim, DType, Shape, TensorType


def f32(*shape: Dim) -> TensorType:
    return TensorType(DType.F32, shape)


def ask(op: str, data: TensorType, *values: Any, n_outputs: int = 1, **attrs: Any) -> Any:
    types = (data, *(None if value is None else TensorType.of(value) for value in values))
    found = infer(TypeQuery(op, attrs, types, (None, *values), n_outputs))
    return found[0] if n_outputs == 1 else found


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[tuple[int, ...], Shape, tuple[int, ...], tuple[int, ...]]:
    """A real shape, what is known of it, a target that fits it, and the real result."""
    factors = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    cuts = sorted(draw(st.lists(st.integers(0, len(factors)), max_size=3)))
    bounds = list(zip([0, *cuts], [*cuts, len(factors)], strict=True))
    result = [math.prod(factors[start:end]) for start, end in bounds]
    real = tuple(factors)
    target = list(result)
    for at in range(min(len(target), len(real))):
        # A zero may stand wherever source and result agree.
        if target[at] == real[at] and draw(st.booleans()):
            target[at] = 0
    if draw(st.booleans()):
        target[draw(st.integers(0, len(target) - 1))] = -1
    known = tuple(draw(st.sampled_from([dim, f"d{dim}", None])) for dim in real)
    return real, known, tuple(target), tuple(result)


@given(reshapes())
def test_reshape_promises_only_what_is_true(
    example: tuple[tuple[int, ...], Shape, tuple[int, ...], tuple[int, ...]],
) -> None:
    real, known, target, result = example
    assert reshaped("Reshape", real, target) == result
    for dim, length in zip(reshaped("Reshape", known, target), result, strict=True):
        assert dim in {None, length, f"d{length}"}
    assert len(reshaped("Reshape", None, target)) == len(result)


@pytest.mark.parametrize(
    ("shape", "target", "result"),
    [
        (("b", 4, 8), (-1, 32), ("b", 32)),
        (("b", 4, 8), (0, 32), ("b", 32)),
        (("b", 4, 8), (0, -1), ("b", 32)),
        (("b", 4, 8), (0, 0, 2, -1), ("b", 4, 2, 4)),
        (("b", "s", 8), (0, 0, 2, 4), ("b", "s", 2, 4)),
        (("b", "s", 8), (0, -1, 8), ("b", "s", 8)),
        (("b", "s", 8), (-1, 8), (None, 8)),
        (("b", 4, 8), (-1, 16), (None, 16)),
        ((None, 4), (-1, 4), (None, 4)),
        ((None, 4), (0, 2, -1), (None, 2, 2)),
    ],
)
def test_names_cancel(shape: Shape, target: tuple[int, ...], result: Shape) -> None:
    assert reshaped("Reshape", shape, target) == result


@pytest.mark.parametrize("target", [(5,), (-1, 5), (-1, -1), (0, 0, 0), (-3,)])
def test_reshape_that_cannot_be(target: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match="Reshape: "):
        reshaped("Reshape", (4, 6), target)


def test_reshape_to_zero() -> None:
    assert reshaped("Reshape", (0, 3), (3, 0), allow_zero=True) == (3, 0)
    with pytest.raises(ModelError):
        reshaped("Reshape", (0, 3), (-1, 0), allow_zero=True)


def test_reshape_to_an_unknown_target() -> None:
    query = TypeQuery("Reshape", {}, (f32("b", 4), TensorType(DType.I64, (3,))), (None, None), 1)
    assert infer(query) == (f32(None, None, None),)
    absurd = TypeQuery(
        "Reshape", {}, (f32("b", 4), TensorType(DType.I64, (10**10,))), (None, None), 1
    )
    assert infer(absurd) == (TensorType(DType.F32),)


@given(
    st.integers(0, 9), st.integers(-12, 12), st.integers(-12, 12), st.integers(-3, 3).filter(bool)
)
def test_sliced_length(size: int, start: int, end: int, step: int) -> None:
    assert sliced("Slice", size, start, end, step) == len(range(size)[start:end:step])


def test_slice_of_named_axes() -> None:
    big = 2**63 - 1
    assert ask("Slice", f32("b", 8), np.array([0, 2]), np.array([big, 5])) == f32("b", 3)
    assert ask("Slice", f32("b", 8), np.array([1]), np.array([big]), np.array([0])) == f32(None, 8)
    unknown = TypeQuery(
        "Slice", {}, (f32("b", 8), *(TensorType(DType.I64, (1,)),) * 2), (None, None, None), 1
    )
    assert infer(unknown) == (f32(None, None),)


@given(st.integers(0, 30), st.integers(1, 8))
def test_split_parts_make_up_the_whole(size: int, parts: int) -> None:
    try:
        sizes = split_sizes("Split", size, parts)
    except ModelError:
        assert -(-size // parts) * (parts - 1) > size
        return
    assert sum(sizes) == size
    assert len(sizes) == parts
    assert len(set(sizes[:-1])) <= 1


def test_split_types() -> None:
    assert ask("Split", f32("b", 5), np.array([2, 3]), n_outputs=2, axis=1) == (
        f32("b", 2),
        f32("b", 3),
    )
    assert ask("Split", f32("b", 5), n_outputs=2, axis=1, num_outputs=2) == (
        f32("b", 3),
        f32("b", 2),
    )
    assert ask("Split", f32("b", 5), n_outputs=2, num_outputs=2) == (f32(None, 5), f32(None, 5))


def test_squeeze_and_unsqueeze() -> None:
    assert ask("Squeeze", f32(1, "b", 1), np.array([0])) == f32("b", 1)
    assert ask("Squeeze", f32(1, 2, 1)) == f32(2)
    assert ask("Squeeze", f32(1, "b")) == TensorType(DType.F32)
    assert ask("Unsqueeze", f32("b"), np.array([0, -1])) == f32(1, "b", 1)
    with pytest.raises(ModelError, match="Squeeze: axis 1 of f32"):
        ask("Squeeze", f32(1, 2), np.array([1]))


def test_flatten_and_expand() -> None:
    assert ask("Flatten", f32("b", 3, 4)) == f32("b", 12)
    assert ask("Flatten", f32("b", "s", 4), axis=2) == f32(None, 4)
    assert ask("Expand", f32("b", 1), np.array([1, 4])) == f32("b", 4)
    assert ask("Expand", f32(3), np.array([2, 1, 1])) == f32(2, 1, 3)


def test_resize() -> None:
    scales = np.array([1, 1, 2, 2.5], np.float32)
    assert ask("Resize", f32("b", 3, 4, 5), None, scales) == f32("b", 3, 8, 12)
    assert ask("Resize", f32("b", 3, "h", 5), None, None, np.array([7, 9]), axes=(2, 3)) == f32(
        "b", 3, 7, 9
    )
    assert ask("Resize", f32("b", 3, "h", 5), None, scales) == f32("b", 3, None, 12)
