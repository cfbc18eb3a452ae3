"""Gather, scatter, one-hot, embeddings and segments, against LiteRT."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontends.tflite.making import Model, Quantised, check, read
from whence.errors import ModelError

RNG = np.random.default_rng(7)


@pytest.mark.parametrize(
    ("shape", "indices", "axis", "batch"),
    [
        ((5, 3), [4, 0, 0], 0, 0),
        ((2, 5, 3), [[1, 2], [3, 4]], 1, 0),
        ((2, 5, 3), [2, 0], -1, 0),
        ((2, 5, 3), [[1, 2, 0], [3, 4, 4]], 1, 1),
        ((2, 4, 5, 3), [[1, 2], [3, 4]], 2, 1),
        ((2, 3, 5), [[[1], [2], [0]], [[3], [4], [4]]], 2, 2),
    ],
)
def test_gather(shape, indices, axis, batch):
    x = RNG.normal(size=shape).astype(np.float32)
    places = np.array(indices, np.int32)
    where = axis % len(shape)
    out = shape[:where] + places.shape[batch:] + shape[where + 1 :]
    model = Model()
    model.output(
        model.op(
            "GATHER", [model.input(shape), model.const(places)], out, axis=axis, batch_dims=batch
        )
    )
    check(model, [x])


def test_gather_moves_codes():
    codes = RNG.integers(-128, 128, (6, 2)).astype(np.int8)
    model = Model()
    scale = Quantised(0.1, 4)
    model.output(
        model.op(
            "GATHER",
            [model.input((6, 2), np.int8, scale), model.const([5, 1], np.int32)],
            (2, 2),
            np.int8,
            scale,
        )
    )
    check(model, [codes], quanta=0)
    assert not [node for node in read(model.bytes()) if node.op == "DequantizeLinear"]


def test_gather_nd():
    x = RNG.normal(size=(3, 4, 2)).astype(np.float32)
    model = Model()
    model.output(
        model.op(
            "GATHER_ND", [model.input(x.shape), model.const([[0, 1], [2, 3]], np.int32)], (2, 2)
        )
    )
    check(model, [x])


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_scatter_adds_what_falls_on_one_place(dtype):
    updates = np.array([[1, 2], [3, 4], [5, 6]], dtype)
    model = Model()
    indices, shape = model.const([[0], [3], [0]], np.int32), model.const([5, 2], np.int32)
    model.output(
        model.op("SCATTER_ND", [indices, model.input(updates.shape, dtype), shape], (5, 2), dtype)
    )
    (made,) = check(model, [updates])
    assert made[0].tolist() == [6, 8]


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot_has_no_place_for_an_index_out_of_range(axis):
    indices = np.array([[0, 3], [-1, 7]], np.int32)
    out = [2, 2]
    out.insert(2 if axis == -1 else axis, 4)
    model = Model()
    x = model.input((2, 2), np.int32)
    model.output(
        model.op(
            "ONE_HOT",
            [x, model.const(4, np.int32), model.const(5.0), model.const(-1.0)],
            out,
            axis=axis,
        )
    )
    check(model, [indices])


def test_embeddings():
    model = Model()
    table = model.const(RNG.normal(size=(9, 4)).astype(np.float32))
    model.output(model.op("EMBEDDING_LOOKUP", [model.input((3,), np.int32), table], (3, 4)))
    check(model, [np.array([8, 0, 2], np.int32)])


def test_quantised_embeddings_are_real_numbers():
    model = Model()
    table = model.const(RNG.integers(-127, 128, (9, 4)).astype(np.int8), quantised=Quantised(0.02))
    model.output(model.op("EMBEDDING_LOOKUP", [model.input((3,), np.int32), table], (3, 4)))
    check(model, [np.array([8, 0, 2], np.int32)])


def test_segments_in_order():
    x = RNG.normal(size=(5, 3)).astype(np.float32)
    model = Model()
    model.output(
        model.op(
            "SEGMENT_SUM", [model.input(x.shape), model.const([0, 0, 1, 2, 2], np.int32)], (3, 3)
        )
    )
    check(model, [x], reference=False)


def test_segments_whose_number_is_known_only_when_running():
    x = RNG.normal(size=(5, 3)).astype(np.float32)
    model = Model()
    model.output(
        model.op("SEGMENT_SUM", [model.input(x.shape), model.input((5,), np.int32)], (3, 3))
    )
    check(model, [x, np.array([0, 0, 1, 2, 2], np.int32)], reference=False)


@pytest.mark.parametrize("kind", ["SUM", "PROD", "MAX", "MIN"])
def test_segments_out_of_order(kind):
    x = RNG.normal(size=(5, 2)).astype(np.float32)
    model = Model()
    numbers, count = model.const([2, 0, 0, 2, 0], np.int32), model.const(4, np.int32)
    model.output(
        model.op(f"UNSORTED_SEGMENT_{kind}", [model.input(x.shape), numbers, count], (4, 2))
    )
    check(model, [x])


@pytest.mark.parametrize("start", [[1, 1], [0, 0], [9, -5]])
def test_a_slice_is_put_into_a_tensor_and_never_sticks_out(start):
    x, part = RNG.normal(size=(4, 5)).astype(np.float32), RNG.normal(size=(2, 3)).astype(np.float32)
    model = Model()
    inputs = [model.input(x.shape), model.input(part.shape), model.input((2,), np.int32)]
    model.output(model.op("DYNAMIC_UPDATE_SLICE", inputs, x.shape))
    check(model, [x, part, np.array(start, np.int32)])


@pytest.mark.parametrize("part", [(1, 2, 5), (2, 4, 5), (2, 1, 5)])
def test_a_slice_that_fills_some_axes(part):
    x, update = (
        RNG.normal(size=(2, 4, 5)).astype(np.float32),
        RNG.normal(size=part).astype(np.float32),
    )
    model = Model()
    inputs = [model.input(x.shape), model.input(part), model.const([1, 1, 0], np.int32)]
    model.output(model.op("DYNAMIC_UPDATE_SLICE", inputs, x.shape))
    check(model, [x, update])


@pytest.mark.parametrize(("indices", "shape"), [([[0, 1], [2, 2]], (3, 3)), ([1, 3], (5,))])
@pytest.mark.parametrize("one", [False, True])
def test_values_at_some_places_and_another_elsewhere(indices, shape, one):
    values = np.array(7, np.float32) if one else np.array([7, 8], np.float32)
    model = Model()
    inputs = [
        model.const(indices, np.int32),
        model.const(shape, np.int32),
        model.input(values.shape),
        model.const(-1.0),
    ]
    model.output(model.op("SPARSE_TO_DENSE", inputs, shape, validate_indices=False))
    check(model, [values])


def test_batch_dimensions_that_do_not_fit_are_the_models_fault():
    model = Model()
    model.output(
        model.op(
            "GATHER",
            [model.input((2, 3)), model.const([0], np.int32)],
            (1, 3),
            axis=0,
            batch_dims=1,
        )
    )
    with pytest.raises(ModelError, match="batch dimensions"):
        read(model.bytes())


def test_a_hostile_depth_is_refused():
    model = Model()
    inputs = [
        model.input((2,), np.int32),
        model.const(2**31 - 1, np.int32),
        model.const(1.0),
        model.const(0.0),
    ]
    model.output(model.op("ONE_HOT", inputs, (2, 2), axis=-1))
    with pytest.raises(ModelError, match="depth"):
        read(model.bytes())
