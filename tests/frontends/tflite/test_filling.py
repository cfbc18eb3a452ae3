"""Tensors made from a shape, a few numbers or a compact form, against LiteRT; and random ones."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontends.tflite.making import Model, check, read, run_whence
from whence.errors import ModelError


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.bool_])
def test_fill(dtype):
    model = Model()
    model.output(
        model.op("FILL", [model.const([2, 3], np.int32), model.input((), dtype)], (2, 3), dtype)
    )
    check(model, [np.array(1, dtype)])


def test_zeros_like():
    model = Model()
    model.output(model.op("ZEROS_LIKE", [model.input((2, 3))], (2, 3)))
    check(model, [np.ones((2, 3), np.float32)])


@pytest.mark.parametrize(("dtype", "numbers"), [(np.int32, (2, 11, 3)), (np.float32, (5, 0, -1.5))])
def test_range(dtype, numbers):
    model = Model()
    inputs = [model.input((), dtype) for _ in range(3)]
    model.output(model.op("RANGE", inputs, (3,), dtype))
    check(model, [np.array(number, dtype) for number in numbers])


def test_rank():
    model = Model()
    model.output(model.op("RANK", [model.input((2, 3, 4))], (), np.int32))
    check(model, [np.zeros((2, 3, 4), np.float32)])


@pytest.mark.parametrize(("first", "second"), [([2, 1, 3], [4, 1]), ([3], [3]), ([1], [5, 6])])
def test_the_shape_that_two_shapes_broadcast_to(first, second):
    model = Model()
    inputs = [model.input((len(first),), np.int32), model.input((len(second),), np.int32)]
    model.output(model.op("BROADCAST_ARGS", inputs, (max(len(first), len(second)),), np.int32))
    check(model, [np.array(first, np.int32), np.array(second, np.int32)])


def test_shapes_of_more_dimensions_than_there_are():
    model = Model()
    inputs = [model.input((length,), np.int32) for length in (2**31 - 1, 2)]
    model.output(model.op("BROADCAST_ARGS", inputs, (2,), np.int32))
    with pytest.raises(ModelError, match="its inputs are shapes of"):
        read(model)


@pytest.mark.parametrize(
    ("name", "low", "high"), [("RANDOM_UNIFORM", 0, 1), ("RANDOM_STANDARD_NORMAL", -9, 9)]
)
def test_random_numbers_are_in_their_range_and_differ(name, low, high):
    model = Model()
    x = model.input((4,))
    drawn = model.op(name, [model.const([4], np.int32)], (4,), options="RandomOptions")
    model.output(model.op("ADD", [x, drawn], (4,)))
    (made,) = run_whence(model.bytes(), [np.zeros(4, np.float32)])
    assert np.all((made >= low) & (made <= high))
    assert len(set(made.tolist())) == 4
