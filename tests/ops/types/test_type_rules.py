from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from whence.errors import ModelError
from whence.ops.definition import TypeQuery
from whence.ops.types.type_rules import (
    broadcast_dims,
    broadcast_shapes,
    concat,
    gather,
    matmul,
    merge_dims,
    product,
    reduce,
    where,
)
from whence.types import Dim, DType, Shape, TensorType


def f32(*shape: Dim) -> TensorType:
    return TensorType(DType.F32, shape)


def forget(draw: st.DrawFn, shape: tuple[int, ...]) -> Shape:
    """The shape with some lengths replaced by a name of that very length, or by nothing."""
    return tuple(draw(st.sampled_from([dim, f"d{dim}", None])) for dim in shape)


@st.composite
def broadcastable(draw: st.DrawFn) -> tuple[list[tuple[int, ...]], list[Shape], tuple[int, ...]]:
    """Real shapes that broadcast, what is known of them, and the real result."""
    found = draw(hnp.mutually_broadcastable_shapes(num_shapes=3, max_dims=4, max_side=4))
    shapes = [tuple(shape) for shape in found.input_shapes]
    return shapes, [forget(draw, shape) for shape in shapes], tuple(found.result_shape)


def admits(known: Shape | None, real: tuple[int, ...]) -> bool:
    """Is the real shape among those that are known to be possible?"""
    return known is None or (
        len(known) == len(real)
        and all(
            dim in {None, length, f"d{length}"} for dim, length in zip(known, real, strict=True)
        )
    )


@given(broadcastable())
def test_broadcasting_promises_only_what_is_true(
    shapes: tuple[list[tuple[int, ...]], list[Shape], tuple[int, ...]],
) -> None:
    real, known, result = shapes
    first = broadcast_shapes("Add", known[0], known[1])
    assert admits(first, np.broadcast_shapes(real[0], real[1]))
    assert admits(broadcast_shapes("Add", first, known[2]), result)


@given(broadcastable())
def test_broadcasting_of_known_shapes_is_exact_and_symmetric(
    shapes: tuple[list[tuple[int, ...]], list[Shape], tuple[int, ...]],
) -> None:
    real, known, _ = shapes
    assert broadcast_shapes("Add", real[0], real[1]) == np.broadcast_shapes(real[0], real[1])
    assert broadcast_shapes("Add", known[0], known[1]) == broadcast_shapes(
        "Add", known[1], known[0]
    )


@given(st.integers(0, 5), st.integers(0, 5))
def test_numbers_broadcast_as_in_numpy(left: int, right: int) -> None:
    try:
        (expected,) = np.broadcast_shapes((left,), (right,))
    except ValueError:
        with pytest.raises(
            ModelError, match=f"Mul: dimensions {left} and {right} do not broadcast"
        ):
            broadcast_dims("Mul", left, right)
    else:
        assert broadcast_dims("Mul", left, right) == expected


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        ("b", "b", "b"),
        ("b", 1, "b"),
        (1, "b", "b"),
        ("b", 5, 5),
        (None, 5, 5),
        ("b", "c", None),
        ("b", None, None),
        (1, None, None),
        (None, None, None),
    ],
)
def test_names_in_broadcasting(left: Dim, right: Dim, result: Dim) -> None:
    assert broadcast_dims("Add", left, right) == result


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [("b", 5, 5), (None, "b", "b"), ("b", "c", "b"), (5, None, 5), (None, None, None)],
)
def test_merging(left: Dim, right: Dim, result: Dim) -> None:
    assert merge_dims("Concat", left, right) == result
    with pytest.raises(ModelError, match="Concat: dimensions 3 and 4 should be equal"):
        merge_dims("Concat", 3, 4)


@pytest.mark.parametrize(
    ("dims", "result"),
    [
        ((), 1),
        ((2, 3), 6),
        (("b",), "b"),
        (("b", 1), "b"),
        (("b", 2), None),
        (("b", "c"), None),
        (("b", 0), 0),
        ((None, 1), None),
    ],
)
def test_product(dims: Shape, result: Dim) -> None:
    assert product(dims) == result


def test_concat() -> None:
    assert concat(
        TypeQuery("Concat", {"axis": -1}, (f32("b", 3), f32(2, 4)), (None, None), 1)
    ) == f32(2, 7)
    assert concat(
        TypeQuery("Concat", {"axis": 0}, (f32("b", 3), f32(2, None)), (None, None), 1)
    ) == f32(None, 3)
    assert concat(TypeQuery("Concat", {"axis": 0}, (f32("b", 3),), (None,), 1)) == f32("b", 3)
    assert concat(
        TypeQuery("Concat", {"axis": 0}, (f32(2, 3), TensorType(DType.F32)), (None, None), 1)
    ) == f32(None, 3)


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        ((3,), (3,), ()),
        ((2, 3), (3,), (2,)),
        ((3,), (3, 4), (4,)),
        (("b", 1, 2, 3), (5, 3, 4), ("b", 5, 2, 4)),
        (("b", "s", 3), (3, "v"), ("b", "s", "v")),
    ],
)
def test_matmul(left: Shape, right: Shape, result: Shape) -> None:
    assert matmul(TypeQuery("MatMul", {}, (f32(*left), f32(*right)), (None, None), 1)) == f32(
        *result
    )


def test_where_and_gather() -> None:
    condition = TensorType(DType.BOOL, ("b", 1))
    assert where(TypeQuery("Where", {}, (condition, f32(1, 3), f32()), (None,) * 3, 1)) == f32(
        "b", 3
    )
    indices = TensorType(DType.I64, ("n", 2))
    assert gather(
        TypeQuery("Gather", {"axis": -1}, (f32("b", 3), indices), (None, None), 1)
    ) == f32("b", "n", 2)


def test_reduce() -> None:
    axes = TensorType(DType.I64, (1,))
    assert reduce(
        TypeQuery("ReduceSum", {}, (f32("b", 3), axes), (None, np.array([-1])), 1)
    ) == f32("b", 1)
    assert reduce(TypeQuery("ReduceSum", {"keepdims": 0}, (f32("b", 3),), (None,), 1)) == f32()
    assert reduce(
        TypeQuery("ReduceSum", {"noop_with_empty_axes": 1}, (f32("b", 3),), (None,), 1)
    ) == f32("b", 3)
    assert reduce(TypeQuery("ReduceSum", {}, (f32("b", 3), axes), (None, None), 1)) == f32(
        None, None
    )
    assert reduce(
        TypeQuery("ReduceSum", {"keepdims": 0}, (f32("b", 3), axes), (None, None), 1)
    ) == TensorType(DType.F32)


def test_a_type_without_element_type_has_no_size() -> None:
    assert TensorType(DType.UNDEFINED, (2, 3)).nbytes is None
    assert TensorType(DType.F16, (2, 3)).nbytes == 12
