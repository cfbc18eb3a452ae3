"""Sparse tensors: what the description means, and descriptions that mean nothing."""

from __future__ import annotations

import numpy as np
import pytest

from whence.errors import ModelError
from whence.frontends.tflite.records import SparseDimension, SparsityRecord, TensorRecord
from whence.frontends.tflite.sparsity import densify
from whence.types import DType

NONE = np.empty(0, np.int64)


def dense(size: int) -> SparseDimension:
    return SparseDimension(True, size, NONE, NONE)


def compressed(segments: list[int], indices: list[int]) -> SparseDimension:
    return SparseDimension(False, 0, np.array(segments, np.int64), np.array(indices, np.int64))


def sparse(
    shape: tuple[int, ...],
    order: tuple[int, ...],
    blocks: tuple[int, ...],
    *levels: SparseDimension,
) -> TensorRecord:
    return TensorRecord(
        "w", "FLOAT32", shape, None, 1, None, SparsityRecord(order, blocks, levels), False, True
    )


def values(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32).view(np.uint8)


def test_rows_with_the_columns_that_are_there():
    tensor = sparse((3, 4), (0, 1), (), dense(3), compressed([0, 2, 2, 3], [0, 3, 1]))
    assert densify(tensor, values(1, 2, 3), DType.F32).tolist() == [
        [1, 0, 0, 2],
        [0, 0, 0, 0],
        [0, 3, 0, 0],
    ]


def test_columns_first():
    tensor = sparse((2, 3), (1, 0), (), dense(3), compressed([0, 1, 1, 3], [1, 0, 1]))
    assert densify(tensor, values(1, 2, 3), DType.F32).tolist() == [[0, 0, 2], [1, 0, 3]]


def test_blocks():
    # A 4 × 4 matrix of 2 × 2 blocks, of which (0, 1) and (1, 0) are there.
    tensor = sparse(
        (4, 4), (0, 1, 2, 3), (0, 1), dense(2), compressed([0, 1, 2], [1, 0]), dense(2), dense(2)
    )
    expected = [[0, 0, 1, 2], [0, 0, 3, 4], [5, 6, 0, 0], [7, 8, 0, 0]]
    assert densify(tensor, values(*range(1, 9)), DType.F32).tolist() == expected


def test_a_random_matrix_round_trips():
    rng = np.random.default_rng(1)
    whole = rng.normal(size=(17, 23)).astype(np.float32) * (rng.random((17, 23)) < 0.2)
    counts = (whole != 0).sum(axis=1)
    segments = [0, *np.cumsum(counts).tolist()]
    indices = np.nonzero(whole)[1].tolist()
    tensor = sparse((17, 23), (0, 1), (), dense(17), compressed(segments, indices))
    np.testing.assert_array_equal(
        densify(tensor, whole[whole != 0].view(np.uint8), DType.F32), whole
    )


@pytest.mark.parametrize(
    "tensor",
    [
        sparse((3, 4), (0, 0), (), dense(3), compressed([0, 2, 2, 3], [0, 3, 1])),
        sparse((3, 4), (0, 1), (), dense(3)),
        sparse((3, 4), (0, 1), (), dense(2**62), compressed([0, 2, 2, 3], [0, 3, 1])),
        sparse((3, 4), (0, 1), (), dense(-3), compressed([0, 2, 2, 3], [0, 3, 1])),
        sparse((3, 4), (0, 1), (), dense(3), compressed([0, 2], [0, 3, 1])),
        sparse((3, 4), (0, 1), (), dense(3), compressed([0, 9, 9, 9], [0, 3, 1])),
        sparse((3, 4), (0, 1), (), dense(3), compressed([0, -1, 2, 3], [0, 3, 1])),
        sparse((3, 4), (0, 1), (), dense(3), compressed([0, 2, 2, 3], [0, 4, 1])),
        sparse((3, 4), (0, 1), (), dense(3), compressed([0, 2, 2, 3], [0, -1, 1])),
        sparse((3, 4), (0, 1), (), dense(3), compressed([0, 2, 2, 2], [0, 3, 1])),
        sparse((3, 4), (0, 1, 2), (5,), dense(3), compressed([0, 2, 2, 3], [0, 3, 1]), dense(1)),
        sparse((3, 4), (0, 1, 2), (0,), dense(3), dense(1), compressed([0, 2, 2, 3], [0, 3, 1])),
        sparse((1 << 40, 4), (0, 1), (), dense(3), compressed([0, 2, 2, 3], [0, 3, 1])),
    ],
)
def test_a_description_that_does_not_fit(tensor):
    with pytest.raises(ModelError):
        densify(tensor, values(1, 2, 3), DType.F32)


def test_bytes_that_are_no_values():
    tensor = sparse((3, 4), (0, 1), (), dense(3), compressed([0, 2, 2, 3], [0, 3, 1]))
    with pytest.raises(ModelError):
        densify(tensor, np.zeros(13, np.uint8), DType.F32)
