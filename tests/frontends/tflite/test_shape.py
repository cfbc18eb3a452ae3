"""Operators that only move values or give them another shape, against LiteRT."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontends.tflite.making import Model, Quantised, check, read, run_whence
from whence.errors import ModelError, UnsupportedError
from whence.types import TensorType

RNG = np.random.default_rng(10)
INT8 = Quantised(0.1, 3)


def values(*shape, dtype=np.float32):
    if dtype is np.float32:
        return RNG.normal(size=shape).astype(np.float32)
    return RNG.integers(-100, 100, shape).astype(dtype)


def moved(name, shape, made, *others, dtype=np.float32, quantised=None, **options):
    """An operator whose first input is given and whose others are stored whole numbers."""
    model = Model()
    x = model.input(shape, dtype, quantised)
    model.output(
        model.op(
            name,
            [x, *(model.const(other, np.int32) for other in others)],
            made,
            dtype,
            quantised,
            **options,
        )
    )
    return model


@pytest.mark.parametrize(
    ("dtype", "quantised"), [(np.float32, None), (np.int8, INT8), (np.int32, None)]
)
@pytest.mark.parametrize(
    ("name", "made", "others", "options"),
    [
        ("RESHAPE", (4, 6), [[4, 6]], {}),
        ("RESHAPE", (4, 6), [[4, -1]], {}),
        ("EXPAND_DIMS", (2, 1, 3, 4), [[1]], {}),
        ("EXPAND_DIMS", (2, 3, 4, 1), [-1], {}),
        ("TRANSPOSE", (4, 2, 3), [[2, 0, 1]], {}),
        ("SLICE", (1, 2, 4), [[1, 0, 0], [1, 2, -1]], {}),
        ("TILE", (2, 6, 8), [[1, 2, 2]], {}),
    ],
)
def test_moved(name, made, others, options, dtype, quantised):
    model = moved(name, (2, 3, 4), made, *others, dtype=dtype, quantised=quantised, **options)
    check(model, [values(2, 3, 4, dtype=dtype)], quanta=0)


def test_shape_in_the_options():
    check(moved("RESHAPE", (2, 3), (3, 2), new_shape=[3, 2]), [values(2, 3)])


@pytest.mark.parametrize(("dims", "made"), [([], (3, 4)), ([0], (3, 1, 4)), ([-2], (1, 3, 4))])
def test_squeeze(dims, made):
    check(moved("SQUEEZE", (1, 3, 1, 4), made, squeeze_dims=dims), [values(1, 3, 1, 4)])


@pytest.mark.parametrize(
    ("begin", "end", "strides", "masks", "made"),
    [
        ([0, 1, 2], [2, 3, 5], [1, 1, 2], {}, (2, 2, 2)),
        ([0, -1, 0], [2, -4, 5], [1, -1, 1], {}, (2, 3, 5)),
        ([1, 1, 1], [0, 0, 0], [1, 1, 1], {"begin_mask": 1, "end_mask": 7}, (2, 3, 4)),
        ([0, 0, 0], [0, 0, 0], [1, -1, -2], {"begin_mask": 7, "end_mask": 7}, (2, 4, 3)),
        ([1, 2, 0], [2, 3, 5], [1, 1, 1], {"shrink_axis_mask": 3}, (5,)),
        ([-1, 0, 0], [0, 3, 5], [1, 1, 1], {"shrink_axis_mask": 1}, (3, 5)),
        ([0, 1], [0, 3], [1, 1], {"ellipsis_mask": 1}, (2, 4, 2)),
        ([0, 0, 1], [0, 0, 3], [1, 1, 1], {"new_axis_mask": 1, "ellipsis_mask": 2}, (1, 2, 4, 2)),
        ([1], [2], [1], {}, (1, 4, 5)),
    ],
)
def test_strided_slice(begin, end, strides, masks, made):
    check(
        moved("STRIDED_SLICE", (2, 4, 5), made, begin, end, strides, **masks),
        [values(2, 4, 5)],
        reference=False,
    )


def test_slice_with_computed_bounds():
    model = Model()
    x, begin, end = model.input((6, 4)), model.input((2,), np.int32), model.input((2,), np.int32)
    strides = model.const([1, 1], np.int32)
    model.output(
        model.op("STRIDED_SLICE", [x, begin, end, strides], (1, 4), begin_mask=2, end_mask=2)
    )
    model.output(
        model.op("STRIDED_SLICE", [x, begin, end, strides], (4,), end_mask=2, shrink_axis_mask=1)
    )
    model.output(model.op("SLICE", [x, begin, end], (1, 4)))
    given = values(6, 4)
    rows, row, part = run_whence(
        model, [given, np.array([1, 0], np.int32), np.array([3, -1], np.int32)]
    )
    np.testing.assert_array_equal(rows, given[1:3])
    np.testing.assert_array_equal(row, given[1])
    np.testing.assert_array_equal(part, given[1:4])


def test_shapes_that_the_model_computes_are_known():
    """A shape taken apart and put together again, as converters write it for open batches."""
    model = Model()
    x = model.input((2, 3, 4))
    shape = model.op("SHAPE", [x], (3,), np.int32, out_type=2)
    one = [model.const([each], np.int32) for each in (0, 1)]
    batch = model.op(
        "STRIDED_SLICE", [shape, one[0], one[1], one[1]], (), np.int32, shrink_axis_mask=1
    )
    wanted = model.op("PACK", [batch, model.const(12, np.int32)], (2,), np.int32, values_count=2)
    model.output(model.op("RESHAPE", [x, wanted], (2, 12)))
    graph = read(model)
    (output,) = graph.outputs
    assert output.inputs[0] is not None
    kind = graph.type_of(output.inputs[0])
    assert isinstance(kind, TensorType)
    assert kind.shape == (2, 12)
    check(model, [values(2, 3, 4)])


@pytest.mark.parametrize(("dtype", "quantised"), [(np.float32, None), (np.int8, INT8)])
def test_pads(dtype, quantised):
    x = values(1, 3, 4, 2, dtype=dtype)
    check(
        moved(
            "PAD",
            x.shape,
            (1, 6, 5, 2),
            [[0, 0], [1, 2], [0, 1], [0, 0]],
            dtype=dtype,
            quantised=quantised,
        ),
        [x],
        quanta=0,
    )
    model = Model()
    given = model.input(x.shape, dtype, quantised)
    value = model.const(7 if quantised else 1.5, dtype, quantised)
    model.output(
        model.op(
            "PADV2",
            [given, model.const([[0, 0], [1, 0], [0, 0], [0, 0]], np.int32), value],
            (1, 4, 4, 2),
            dtype,
            quantised,
        )
    )
    check(model, [x], quanta=0)


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("borders", [[[1, 0], [2, 1]], [[0, 1], [1, 3]]])
def test_mirrors(mode, borders):
    made = [size + sum(border) for size, border in zip((4, 5), borders, strict=True)]
    check(moved("MIRROR_PAD", (4, 5), made, borders, mode=mode), [values(4, 5)], reference=False)


def test_joined_codes_that_mean_different_things():
    model = Model()
    inputs = [
        model.input((2, 3), np.uint8, Quantised(0.1, 100)),
        model.input((2, 4), np.uint8, Quantised(0.2, 120)),
    ]
    model.output(model.op("CONCATENATION", inputs, (2, 7), np.uint8, Quantised(0.2, 110), axis=1))
    check(model, [RNG.integers(0, 256, (2, size)).astype(np.uint8) for size in (3, 4)])


def test_joined_codes_that_mean_the_same_stay_codes():
    model = Model()
    inputs = [model.input((2, 3), np.int8, INT8), model.input((2, 4), np.int8, INT8)]
    model.output(model.op("CONCATENATION", inputs, (2, 7), np.int8, INT8, axis=-1))
    assert set(read(model).op_counts) == {"Input", "Concat", "Output"}
    check(model, [values(2, 3, dtype=np.int8), values(2, 4, dtype=np.int8)], quanta=0)


def test_joined_codes_with_an_activation():
    """LiteRT refuses one here; the schema does not."""
    model = Model()
    x = model.input((2, 3), np.int8, INT8)
    made = model.op(
        "CONCATENATION", [x, x], (2, 6), np.int8, INT8, axis=1, fused_activation_function=1
    )
    model.output(made)
    codes = values(2, 3, dtype=np.int8)
    (found,) = run_whence(model, [codes])
    assert found.tolist() == np.maximum(np.concatenate([codes, codes], 1), INT8.zero).tolist()


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_packed_and_unpacked(axis):
    model = Model()
    rows = [model.input((3, 4)) for _ in range(2)]
    made = np.stack([np.empty((3, 4))] * 2, axis).shape
    packed = model.op("PACK", rows, made, values_count=2, axis=axis)
    outputs = [model.tensor((3, 4)) for _ in range(2)]
    model.op("UNPACK", [packed], outputs=outputs, num=2, axis=axis)
    model.output(packed, *outputs)
    check(model, [values(3, 4), values(3, 4)])


def test_split():
    model = Model()
    x = model.input((2, 6))
    halves = [model.tensor((2, 3)) for _ in range(2)]
    model.op("SPLIT", [model.const(1, np.int32), x], outputs=halves, num_splits=2)
    parts = [model.tensor((2, size)) for size in (1, 3, 2)]
    model.op(
        "SPLIT_V",
        [x, model.const([1, -1, 2], np.int32), model.const(-1, np.int32)],
        outputs=parts,
        num_splits=3,
    )
    model.output(*halves, *parts)
    check(model, [values(2, 6)])


def test_broadcast():
    check(
        moved("BROADCAST_TO", (3, 1), (2, 3, 4), [2, 3, 4], version=2),
        [values(3, 1)],
        reference=False,
    )


def test_the_same_bits_as_another_type():
    model = Model()
    model.output(model.op("BITCAST", [model.input((3,))], (3,), np.int32))
    (bits,) = run_whence(model, [np.array([0.0, 1.0, -2.0], np.float32)])
    np.testing.assert_array_equal(bits, np.array([0.0, 1.0, -2.0], np.float32).view(np.int32))


@pytest.mark.parametrize(
    ("name", "shape", "made"),
    [
        ("SPACE_TO_DEPTH", (1, 4, 6, 3), (1, 2, 3, 12)),
        ("DEPTH_TO_SPACE", (1, 2, 3, 12), (1, 4, 6, 3)),
    ],
)
def test_between_space_and_depth(name, shape, made):
    check(moved(name, shape, made, block_size=2), [values(*shape)])


def test_between_space_and_batch():
    block, border = [2, 3], [[1, 0], [0, 2]]
    check(
        moved("SPACE_TO_BATCH_ND", (2, 5, 4, 2), (12, 3, 2, 2), block, border), [values(2, 5, 4, 2)]
    )
    check(
        moved("BATCH_TO_SPACE_ND", (12, 3, 2, 2), (2, 5, 4, 2), block, border),
        [values(12, 3, 2, 2)],
    )
    codes = values(1, 3, 4, 2, dtype=np.int8)
    check(
        moved(
            "SPACE_TO_BATCH_ND",
            codes.shape,
            (4, 2, 2, 2),
            [2, 2],
            [[1, 0], [0, 0]],
            dtype=np.int8,
            quantised=INT8,
        ),
        [codes],
        quanta=0,
    )


@pytest.mark.parametrize("name", ["RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"])
@pytest.mark.parametrize(("aligned", "centred"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("size", [(6, 9), (2, 3), (3, 11), (1, 1)])
def test_resize(name, aligned, centred, size):
    model = moved(
        name,
        (1, 3, 5, 2),
        (1, *size, 2),
        list(size),
        align_corners=aligned,
        half_pixel_centers=centred,
    )
    check(model, [values(1, 3, 5, 2)], relative=1e-4)


@pytest.mark.parametrize("name", ["RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"])
def test_resize_of_codes(name):
    model = moved(
        name,
        (1, 3, 5, 2),
        (1, 6, 10, 2),
        [6, 10],
        dtype=np.int8,
        quantised=INT8,
        half_pixel_centers=True,
    )
    check(model, [values(1, 3, 5, 2, dtype=np.int8)])


@pytest.mark.parametrize(
    ("model", "error"),
    [
        (moved("TRANSPOSE", (2, 3), (3, 2), [0, 0]), ModelError),
        (moved("RESHAPE", (2, 3), (5,), [5]), ModelError),
        (moved("EXPAND_DIMS", (2, 3), (2, 3, 1), [7]), ModelError),
        (moved("STRIDED_SLICE", (2, 3), (2, 3), [0, 0], [2, 3], [1, 0]), ModelError),
        (moved("PAD", (2, 3), (2, 3), [[0, 0]]), ModelError),
        (moved("DEPTH_TO_SPACE", (1, 2, 2, 3), (1, 4, 4, 1), block_size=2), ModelError),
        (
            moved("SPACE_TO_BATCH_ND", (1, 3, 3, 1), (4, 1, 1, 1), [2, 2], [[0, 0], [0, 0]]),
            ModelError,
        ),
        (
            moved(
                "RESIZE_BILINEAR",
                (1, 2, 2, 1),
                (1, 4, 4, 1),
                [4, 4],
                align_corners=True,
                half_pixel_centers=True,
            ),
            ModelError,
        ),
    ],
)
def test_what_does_not_fit_is_refused(model, error):
    with pytest.raises(error, match="operator "):
        read(model)


def test_an_order_of_axes_that_is_computed_is_refused():
    model = Model()
    x, order = model.input((2, 3)), model.input((2,), np.int32)
    model.output(model.op("TRANSPOSE", [x, order], (3, 2)))
    with pytest.raises(UnsupportedError, match="stored in the file"):
        read(model)
