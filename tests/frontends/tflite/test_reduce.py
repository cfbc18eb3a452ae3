"""Reductions, running sums and the places of extremes, against LiteRT."""

from __future__ import annotations

import numpy as np
import pytest

import whence
from tests.frontends.tflite.making import Model, Quantised, check, read
from whence.errors import ModelError

RNG = np.random.default_rng(6)
X = RNG.normal(size=(2, 3, 4)).astype(np.float32)
INT8 = Quantised(0.05, 3)


def reduced(name, shape, axes, out, dtype=np.float32, given=None, made=None, **options):
    model = Model()
    x = model.input(shape, dtype, given)
    model.output(
        model.op(
            name,
            [x, model.const(axes, np.int32)],
            out,
            dtype,
            made,
            options="ReducerOptions",
            **options,
        )
    )
    return model


@pytest.mark.parametrize("name", ["MEAN", "SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN"])
@pytest.mark.parametrize(
    ("axes", "keep", "out"),
    [([1], False, (2, 4)), ([0, 2], True, (1, 3, 1)), ([-1], True, (2, 3, 1)), (1, False, (2, 4))],
)
def test_float(name, axes, keep, out):
    check(reduced(name, X.shape, axes, out, keep_dims=keep), [X])


@pytest.mark.parametrize("name", ["MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN"])
def test_quantised(name):
    codes = RNG.integers(-128, 128, (1, 6, 6, 4)).astype(np.int8)
    made = Quantised(0.5, -7) if name == "SUM" else INT8
    # The reference kernel of SUM knows no scales; the one LiteRT uses does.
    check(
        reduced(name, codes.shape, [1, 2], (1, 4), np.int8, INT8, made),
        [codes],
        reference=name != "SUM",
    )


@pytest.mark.parametrize("name", ["MEAN", "SUM", "REDUCE_MAX"])
def test_whole_numbers(name):
    check(
        reduced(name, (3, 5), [1], (3,), np.int32), [RNG.integers(-9, 9, (3, 5)).astype(np.int32)]
    )


@pytest.mark.parametrize("name", ["REDUCE_ANY", "REDUCE_ALL"])
def test_truth_values(name):
    truth = np.array([[True, False, True], [True, True, True], [False, False, False]])
    check(reduced(name, truth.shape, [1], (3,), np.bool_), [truth])


@pytest.mark.parametrize("name", ["ARG_MAX", "ARG_MIN"])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint8, np.int32])
def test_places_of_extremes(name, dtype):
    values = RNG.integers(0, 4, (3, 7)).astype(dtype)
    model = Model()
    quantised = Quantised(0.1, 0) if np.dtype(dtype).itemsize == 1 else None
    x = model.input(values.shape, dtype, quantised)
    model.output(model.op(name, [x, model.const(1, np.int32)], (3,), np.int32, output_type=2))
    check(model, [values])


def test_places_as_long_integers():
    model = Model()
    x = model.input(X.shape)
    model.output(
        model.op("ARG_MAX", [x, model.const(-1, np.int32)], (2, 3), np.int64, output_type=4)
    )
    check(model, [X])


@pytest.mark.parametrize(
    ("exclusive", "reverse"), [(False, False), (True, False), (False, True), (True, True)]
)
def test_running_sums(exclusive, reverse):
    model = Model()
    x = model.input(X.shape)
    model.output(
        model.op(
            "CUMSUM", [x, model.const(1, np.int32)], X.shape, exclusive=exclusive, reverse=reverse
        )
    )
    check(model, [X])


def test_an_axis_that_is_not_there_is_the_models_fault():
    model = reduced("MEAN", X.shape, [5], (2, 3))
    with pytest.raises(ModelError, match="MEAN"):
        read(model.bytes())


@pytest.mark.parametrize(
    "name",
    ["MEAN", "SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_ANY", "REDUCE_ALL"],
)
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(("shape", "axis"), [((2, 0, 3), 1), ((0, 3), 0), ((0, 3), -1)])
def test_of_nothing(name, keep, shape, axis):
    dtype = np.bool_ if name in ("REDUCE_ANY", "REDUCE_ALL") else np.float32
    out = np.zeros(shape).sum(axis, keepdims=keep).shape
    model = reduced(name, shape, [axis], out, dtype, keep_dims=keep)
    ours = check(model, [np.zeros(shape, dtype)])
    np.testing.assert_array_equal(whence.compile(read(model))(np.zeros(shape, dtype)), ours[0])


@pytest.mark.parametrize("name", ["ARG_MAX", "ARG_MIN"])
def test_the_place_of_an_extreme_of_nothing(name):
    def model(axis, out):
        made = Model()
        inputs = [made.input((0, 3)), made.const(axis, np.int32)]
        kind = made.number("TensorType", "INT64")
        made.output(made.op(name, inputs, out, np.int64, output_type=kind))
        return made

    check(model(1, (0,)), [np.zeros((0, 3), np.float32)])
    with pytest.raises(ModelError, match=f"{name}.*no elements"):
        whence.compile(read(model(0, (3,))))(np.zeros((0, 3), np.float32))
