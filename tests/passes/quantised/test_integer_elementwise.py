"""Elementwise arithmetic, functions and reductions of codes: the same bits as LiteRT's reference
kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontends.tflite.making import Model, Quantised, read
from tests.passes.quantised.litert import ACTIVATIONS, SAME, VALID, check, codes, coding, prepared

I8, U8, I16, I32 = np.int8, np.uint8, np.int16, np.int32
BYTES: list[Any] = [I8, U8]


@pytest.mark.parametrize("dtype", [I8, U8, I16])
@pytest.mark.parametrize("op", ["ADD", "SUB", "MUL"])
@pytest.mark.parametrize("activation", ["NONE", "RELU6"])
def test_binary(rng: np.random.Generator, dtype: Any, op: str, activation: str) -> None:
    model = Model()
    unit = 1 / 256 if dtype is I16 else 1.0
    a = model.input([2, 4, 4, 6], dtype, coding(dtype, 0.03 * unit))
    b = model.input([1, 1, 1, 6], dtype, coding(dtype, 0.017 * unit, -20))
    out = coding(dtype, 0.04 * unit if op != "MUL" else 0.05 * unit)
    model.output(
        model.op(
            op,
            [a, b],
            [2, 4, 4, 6],
            dtype,
            out,
            fused_activation_function=ACTIVATIONS[activation],
            version=2,
        )
    )
    found = check(model, [codes(rng, dtype, 2, 4, 4, 6), codes(rng, dtype, 1, 1, 1, 6)])
    assert found["FixedPointScale"] == (1 if op == "MUL" else 3)


def test_a_value_with_itself_and_with_a_constant(rng: np.random.Generator) -> None:
    model = Model()
    x = model.input([4, 32], I8, coding(I8, 0.03))
    square = model.op("MUL", [x, x], [4, 32], I8, coding(I8, 0.1))
    other = model.const(codes(rng, I8, 32), None, coding(I8, 0.02))
    model.output(model.op("ADD", [square, other], [4, 32], I8, coding(I8, 0.1)))
    check(model, [codes(rng, I8, 4, 32)])


_UNARY: list[tuple[str, dict[str, Any], float | None]] = [
    ("RELU", {}, None),
    ("RELU6", {}, None),
    ("RELU_N1_TO_1", {}, None),
    ("LEAKY_RELU", {"alpha": 0.3}, None),
    ("LEAKY_RELU", {"alpha": -1.7}, None),
    ("LOGISTIC", {}, 1 / 256),
    ("TANH", {}, 1 / 128),
    ("HARD_SWISH", {}, None),
    ("ELU", {}, None),
]


# LiteRT has no ELU of uint8.
@pytest.mark.parametrize(
    ("dtype", "op", "fields", "scale"),
    [(dtype, *case) for dtype in BYTES for case in _UNARY if (dtype, case[0]) != (U8, "ELU")],
)
@pytest.mark.parametrize("step", [0.013, 0.0451, 0.21])
def test_functions_are_tables(
    dtype: Any, op: str, fields: dict[str, Any], scale: float | None, step: float
) -> None:
    model = Model()
    x = model.input([256], dtype, coding(dtype, step, -11))
    low = -128 if dtype is I8 else 0
    out = (
        Quantised(scale, low + (128 if op == "TANH" else 0))
        if scale is not None
        else coding(dtype, step * 1.3, 5)
    )
    model.output(model.op(op, [x], [256], dtype, out, **fields))
    # LiteRT's list of reference kernels lacks ELU.
    found = check(model, [np.arange(low, low + 256).astype(dtype)], reference=op != "ELU")
    assert found == {"LookUp": 1}


@pytest.mark.parametrize(
    ("op", "fields"), [("RELU", {}), ("RELU6", {}), ("LEAKY_RELU", {"alpha": 0.3})]
)
def test_functions_of_sixteen_bits(
    rng: np.random.Generator, op: str, fields: dict[str, Any]
) -> None:
    model = Model()
    x = model.input([1000], I16, Quantised(0.001))
    model.output(model.op(op, [x], [1000], I16, Quantised(0.0007), **fields))
    check(model, [codes(rng, I16, 1000)])


@pytest.mark.parametrize("op", ["LOGISTIC", "TANH"])
@pytest.mark.parametrize("step", [0.0003, 0.00007, 0.01])
def test_tables_of_sixteen_bits_are_within_a_quantum(op: str, step: float) -> None:
    model = Model()
    x = model.input([1 << 16], I16, Quantised(step))
    model.output(model.op(op, [x], [1 << 16], I16, Quantised(2.0**-15)))
    assert check(model, [np.arange(-(1 << 15), 1 << 15).astype(I16)], quanta=1) == {"LookUp": 1}


@pytest.mark.parametrize("op", ["EXP", "GELU"])
@pytest.mark.parametrize("step", [0.0001, 0.0003])
def test_tables_of_sixteen_bits(op: str, step: float) -> None:
    model = Model()
    x = model.input([1 << 16], I16, Quantised(step))
    model.output(model.op(op, [x], [1 << 16], I16, Quantised(0.0005), version=2))
    assert check(model, [np.arange(-(1 << 15), 1 << 15).astype(I16)]) == {"LookUp": 1}


@pytest.mark.parametrize("shape", [(8, 20), (3, 2, 1), (2, 300)])
@pytest.mark.parametrize("step", [0.0001, 0.003])
def test_softmax_of_sixteen_bits(
    rng: np.random.Generator, shape: tuple[int, ...], step: float
) -> None:
    model = Model()
    x = model.input(shape, I16, Quantised(step))
    model.output(model.op("SOFTMAX", [x], shape, I16, Quantised(2.0**-15), beta=1.0, version=3))
    assert check(model, [codes(rng, I16, *shape)])["LookUp"] == 2


@pytest.mark.parametrize("dtype", BYTES)
def test_prelu(rng: np.random.Generator, dtype: Any) -> None:
    model = Model()
    x = model.input([1, 4, 4, 8], dtype, coding(dtype, 0.03))
    slopes = model.const(codes(rng, dtype, 1, 1, 8), None, coding(dtype, 0.01, -5))
    model.output(model.op("PRELU", [x, slopes], [1, 4, 4, 8], dtype, coding(dtype, 0.05)))
    check(model, [codes(rng, dtype, 1, 4, 4, 8)])


@pytest.mark.parametrize(
    ("before", "after"), [(I8, I8), (I8, U8), (U8, I8), (U8, U8), (I16, I16), (I16, I8), (I8, I16)]
)
def test_requantisation(rng: np.random.Generator, before: Any, after: Any) -> None:
    model = Model()
    x = model.input([500], before, coding(before, 0.03 if before is not I16 else 0.0004, -9))
    model.output(
        model.op(
            "QUANTIZE",
            [x],
            [500],
            after,
            coding(after, 0.05 if after is not I16 else 0.0003, 7),
            version=2,
        )
    )
    check(model, [codes(rng, before, 500)])


@pytest.mark.parametrize("dtype", [I8, U8, I16])
def test_quantising_rounds_halves_away_from_zero(dtype: Any) -> None:
    model = Model()
    x = model.input([64])
    model.output(model.op("QUANTIZE", [x], [64], dtype, coding(dtype, 0.5)))
    check(model, [(np.arange(-32, 32) / 4).astype(np.float32)], integers_only=False)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("padding", [SAME, VALID])
@pytest.mark.parametrize("op", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
def test_pools(rng: np.random.Generator, dtype: Any, padding: int, op: str) -> None:
    model = Model()
    x = model.input([2, 7, 9, 5], dtype, coding(dtype, 0.03))
    size = [2, 4, 5, 5] if padding == SAME else [2, 3, 4, 5]
    fields: dict[str, Any] = {
        "padding": padding,
        "stride_w": 2,
        "stride_h": 2,
        "filter_width": 2,
        "filter_height": 3,
        "fused_activation_function": 1,
    }
    model.output(model.op(op, [x], size, dtype, coding(dtype, 0.03), **fields))
    assert (
        check(model, [codes(rng, dtype, 2, 7, 9, 5)])[
            f"ChannelsLast{'Average' if op[0] == 'A' else 'Max'}Pool"
        ]
        == 1
    )


@pytest.mark.parametrize("dtype", [I8, U8, I16])
@pytest.mark.parametrize("axes", [[1, 2], [2], [0, 3]])
@pytest.mark.parametrize(("op", "keep"), [("MEAN", True), ("MEAN", False), ("SUM", False)])
def test_reductions(
    rng: np.random.Generator, dtype: Any, axes: list[int], op: str, keep: bool
) -> None:
    shape = [2, 7, 5, 6]
    out = [
        1 if axis in axes else size for axis, size in enumerate(shape) if keep or axis not in axes
    ]
    model = Model()
    unit = 1 / 256 if dtype is I16 else 1.0
    x = model.input(shape, dtype, coding(dtype, 0.03 * unit, -30))
    scale = 0.025 if op == "MEAN" else 0.2
    model.output(
        model.op(
            op,
            [x, model.const(np.array(axes, I32))],
            out,
            dtype,
            coding(dtype, scale * unit),
            keep_dims=keep,
            options="ReducerOptions",
        )
    )
    # LiteRT's reference kernel for sums leaves signed results unwritten, and its other kernel adds
    # in real numbers.
    has_reference = op == "MEAN" or dtype is U8
    check(
        model,
        [codes(rng, dtype, *shape)],
        reference=has_reference,
        quanta=0 if has_reference else 1,
    )


@pytest.mark.parametrize("dtype", [I8, U8])
@pytest.mark.parametrize("align", ["", "align_corners", "half_pixel_centers"])
@pytest.mark.parametrize("size", [[9, 14], [3, 2]])
def test_bilinear_interpolation(
    rng: np.random.Generator, dtype: Any, align: str, size: list[int]
) -> None:
    model = Model()
    x = model.input([1, 5, 7, 4], dtype, coding(dtype, 0.03))
    fields: dict[str, Any] = {align: True} if align else {}
    target = model.const(np.array(size, I32))
    model.output(
        model.op(
            "RESIZE_BILINEAR",
            [x, target],
            [1, *size, 4],
            dtype,
            coding(dtype, 0.03),
            version=3,
            **fields,
        )
    )
    check(model, [codes(rng, dtype, 1, 5, 7, 4)])


def test_parts_in_other_codings_are_joined_by_tables(rng: np.random.Generator) -> None:
    model = Model()
    parts = [
        model.input([2, 40], U8, coding(U8, scale, zero))
        for scale, zero in ((0.03, 3), (0.05, -20), (0.011, 0))
    ]
    model.output(model.op("CONCATENATION", parts, [2, 120], U8, coding(U8, 0.03, 3), axis=1))
    assert check(model, [codes(rng, U8, 2, 40) for _ in parts]) == {"LookUp": 2, "Concat": 1}


@pytest.mark.parametrize("op", ["SOFTMAX", "LOG_SOFTMAX"])
def test_what_litert_does_not_agree_on_with_itself_is_within_a_quantum(
    rng: np.random.Generator, op: str
) -> None:
    model = Model()
    x = model.input([4, 20], I8, coding(I8, 0.1))
    out = Quantised(1 / 256, -128) if op == "SOFTMAX" else Quantised(16 / 256, 127)
    fields: dict[str, Any] = {"beta": 1.0} if op == "SOFTMAX" else {}
    model.output(model.op(op, [x], [4, 20], I8, out, **fields))
    check(model, [codes(rng, I8, 4, 20)], quanta=1, integers_only=False)


@pytest.mark.parametrize(
    ("op", "dtype", "step"),
    [("LOG", I8, 0.05), ("LOG", I8, 1e-30), ("TANH", I8, 1e-30), ("EXP", I8, 0.1)],
)
def test_what_no_code_holds(op: str, dtype: Any, step: float) -> None:
    """The largest code above all codes, the smallest below, and for no number at all: in tables, in
    the interpreter, and in LiteRT.
    """
    model = Model()
    x = model.input([256], dtype, Quantised(0.1, 0))
    model.output(model.op(op, [x], [256], dtype, Quantised(step, 3)))
    feed = np.arange(-128, 128).astype(dtype)
    assert check(model, [feed])["LookUp"] == 1
    by_tables, by_steps = prepared(model).run([feed])[0], read(model).run([feed])[0]
    np.testing.assert_array_equal(by_steps, by_tables)


def test_a_function_of_16_bits_that_overflows_is_the_largest_code() -> None:
    model = Model()
    x = model.input([3], I16, Quantised(0.01, 0))
    model.output(model.op("EXP", [x], [3], I16, Quantised(1e-4, 0)))
    feed = np.array([25400, 30000, 32767], I16)
    assert prepared(model).run([feed])[0].tolist() == [32767] * 3
    assert read(model).run([feed])[0].tolist() == [32767] * 3
