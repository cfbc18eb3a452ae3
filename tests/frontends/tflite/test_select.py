"""Choosing by condition, order and difference; turning round; diagonals; buckets; boxes; against
LiteRT.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontends.tflite.making import Model, Quantised, check, read
from whence.errors import ModelError

RNG = np.random.default_rng(8)


def test_select_chooses_whole_rows_by_a_list():
    a, b = (
        RNG.normal(size=(2, 3, 4)).astype(np.float32),
        RNG.normal(size=(2, 3, 4)).astype(np.float32),
    )
    model = Model()
    inputs = [model.input((2,), np.bool_), model.input(a.shape), model.input(b.shape)]
    model.output(model.op("SELECT", inputs, a.shape))
    check(model, [np.array([True, False]), a, b])


def test_select_v2_broadcasts():
    a, b = RNG.normal(size=(3, 1)).astype(np.float32), RNG.normal(size=(4,)).astype(np.float32)
    model = Model()
    inputs = [model.input((3, 4), np.bool_), model.input(a.shape), model.input(b.shape)]
    model.output(model.op("SELECT_V2", inputs, (3, 4)))
    check(model, [RNG.random((3, 4)) > 0.5, a, b])


def test_where_lists_places():
    # A tensor whose shape depends on values has no shape in the file.
    model = Model()
    x = model.input((2, 3), np.bool_)
    model.output(model.op("WHERE", [x], (3, 2), np.int64))
    check(model, [np.array([[True, False, True], [False, True, False]])])


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_top_k_of_equals_takes_the_first(dtype):
    x = RNG.integers(0, 3, (2, 6)).astype(dtype)
    model = Model()
    given = model.input(x.shape, dtype)
    outputs = [model.tensor((2, 4), dtype), model.tensor((2, 4), np.int32)]
    model.op("TOPK_V2", [given, model.const(4, np.int32)], outputs=outputs)
    model.output(*outputs)
    check(model, [x])


def test_unique_values_in_the_order_of_appearance():
    model = Model()
    x = model.input((6,), np.int32)
    outputs = [model.tensor((3,), np.int32), model.tensor((6,), np.int64)]
    model.op("UNIQUE", [x], outputs=outputs, idx_out_type=4)
    model.output(*outputs)
    values, numbers = check(model, [np.array([7, 2, 7, 9, 2, 2], np.int32)])
    assert values.tolist() == [7, 2, 9]
    assert numbers.tolist() == [0, 1, 0, 2, 1, 1]


@pytest.mark.parametrize("axes", [[0], [2], [1, 2]])
def test_reverse(axes):
    x = RNG.normal(size=(2, 3, 4)).astype(np.float32)
    model = Model()
    model.output(
        model.op("REVERSE_V2", [model.input(x.shape), model.const(axes, np.int32)], x.shape)
    )
    check(model, [x])


@pytest.mark.parametrize(("time", "batch"), [(1, 0), (0, 1), (2, 1), (3, 0)])
def test_reverse_sequence(time, batch):
    x = RNG.normal(size=(3, 3, 3, 3)).astype(np.float32)
    model = Model()
    inputs = [model.input(x.shape), model.const([1, 3, 2], np.int32)]
    model.output(model.op("REVERSE_SEQUENCE", inputs, x.shape, seq_dim=time, batch_dim=batch))
    check(model, [x])


def test_a_diagonal():
    x = RNG.normal(size=(2, 3)).astype(np.float32)
    model = Model()
    model.output(model.op("MATRIX_DIAG", [model.input(x.shape)], (2, 3, 3)))
    check(model, [x])


@pytest.mark.parametrize("shape", [(2, 3, 3), (2, 2, 4), (2, 4, 2)])
def test_another_diagonal_in_a_matrix(shape):
    x = RNG.normal(size=shape).astype(np.float32)
    line = RNG.normal(size=(2, min(shape[1:]))).astype(np.float32)
    model = Model()
    model.output(model.op("MATRIX_SET_DIAG", [model.input(shape), model.input(line.shape)], shape))
    check(model, [x, line])


def test_buckets():
    model = Model()
    x = model.input((2, 3))
    model.output(model.op("BUCKETIZE", [x], (2, 3), np.int32, boundaries=[-1.0, 0.0, 2.5]))
    check(model, [np.array([[-2, -1, -0.5], [0, 2.5, 9]], np.float32)])


BOXES = np.array(
    [
        [0, 0, 1, 1],
        [0, 0.1, 1, 1.1],
        [0, -0.1, 1, 0.9],
        [0, 10, 1, 11],
        [1, 10.1, 0, 11.1],
        [0, 100, 1, 101],
    ],
    np.float32,
)
SCORES = np.array([0.9, 0.75, 0.6, 0.95, 0.5, 0.3], np.float32)


@pytest.mark.parametrize(("limit", "threshold"), [(6, 0.4), (2, 0.0), (6, 0.92)])
def test_boxes_that_do_not_overlap(limit, threshold):
    model = Model()
    inputs = [
        model.input((6, 4)),
        model.input((6,)),
        model.const(limit, np.int32),
        model.const(0.5),
        model.const(threshold),
    ]
    outputs = [model.tensor((limit,), np.int32), model.tensor((), np.int32)]
    model.op("NON_MAX_SUPPRESSION_V4", inputs, outputs=outputs)
    model.output(*outputs)
    check(model, [BOXES, SCORES])


@pytest.mark.parametrize("sigma", [0.0, 0.5])
def test_boxes_that_overlap_softly(sigma):
    model = Model()
    inputs = [
        model.input((6, 4)),
        model.input((6,)),
        model.const(5, np.int32),
        model.const(1.0 if sigma else 0.5),
        model.const(0.0),
        model.const(sigma),
    ]
    outputs = [model.tensor((5,), np.int32), model.tensor((5,)), model.tensor((), np.int32)]
    model.op("NON_MAX_SUPPRESSION_V5", inputs, outputs=outputs)
    model.output(*outputs)
    check(model, [BOXES, SCORES])


def test_quantised_choice_moves_codes():
    model = Model()
    scale = Quantised(0.1, 3)
    inputs = [
        model.input((4,), np.bool_),
        model.input((4,), np.int8, scale),
        model.input((4,), np.int8, scale),
    ]
    model.output(model.op("SELECT_V2", inputs, (4,), np.int8, scale))
    a, b = np.array([1, 2, 3, 4], np.int8), np.array([-1, -2, -3, -4], np.int8)
    check(model, [np.array([True, False, True, False]), a, b], quanta=0)


def test_an_axis_that_is_not_there():
    model = Model()
    model.output(model.op("REVERSE_V2", [model.input((2, 3)), model.const([4], np.int32)], (2, 3)))
    with pytest.raises(ModelError, match="axes"):
        read(model.bytes())
