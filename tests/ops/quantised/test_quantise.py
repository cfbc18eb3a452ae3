from __future__ import annotations

import random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.ops.oracle import (
    assert_close,
    case_name,
    check_node_case,
    evaluate,
    onnxruntime_outputs,
    parameters,
)
from whence.errors import ModelError
from whence.ops.definition import Attrs, TypeQuery
from whence.ops.quantised.quantise import OPS, integer_range, requantise
from whence.ops.types.inference import Inference
from whence.types import DType, TensorType

DEFINITIONS = {definition.name: definition for definition in OPS}
CASES = {
    "QuantizeLinear": "quantizelinear",
    "DequantizeLinear": "dequantizelinear",
    "DynamicQuantizeLinear": "dynamicquantizelinear",
}


@pytest.mark.parametrize("case", parameters(CASES), ids=case_name)
def test_onnx_node_cases(case):
    check_node_case(DEFINITIONS[case.model.graph.node[0].op_type], case)


def random_parameters(seed, dtype):
    """An input shape, attributes, scale and zero point: per tensor, per axis or per block by
    turns.
    """
    pick, rng = random.Random(seed), np.random.default_rng(seed)
    shape = tuple(pick.randint(2, 7) for _ in range(pick.randint(1, 4)))
    axis = pick.randrange(len(shape))
    attrs: dict[str, Any] = {}
    parameter: tuple[int, ...] = ()
    kind = seed % 3
    if kind == 1:
        attrs, parameter = {"axis": pick.choice([axis, axis - len(shape)])}, (shape[axis],)
    elif kind == 2:
        # At least two blocks: ONNX Runtime takes a single one for a mistake.
        block = pick.randint(1, shape[axis] - 1)
        attrs = {"axis": axis, "block_size": block}
        parameter = tuple(
            -(-size // block) if position == axis else size for position, size in enumerate(shape)
        )
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    scale = np.asarray(rng.uniform(0.01, 0.1, parameter), dtype=np.float32)
    return rng, shape, attrs, scale, rng.integers(low, high, parameter, endpoint=True, dtype=dtype)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
@pytest.mark.parametrize("seed", range(12))
def test_integers_like_onnxruntime(dtype, seed):
    rng, shape, attrs, scale, zero = random_parameters(seed, dtype)
    x = (rng.standard_normal(shape) * 10).astype(np.float32)
    (quantised,) = evaluate(DEFINITIONS["QuantizeLinear"], attrs, [x, scale, zero])
    assert_close(
        quantised, onnxruntime_outputs("QuantizeLinear", attrs, [x, scale, zero], opset=21)[0]
    )
    (real,) = evaluate(DEFINITIONS["DequantizeLinear"], attrs, [quantised, scale, zero])
    assert_close(
        real, onnxruntime_outputs("DequantizeLinear", attrs, [quantised, scale, zero], opset=21)[0]
    )


@pytest.mark.parametrize("seed", range(6))
def test_dynamic_like_onnxruntime(seed):
    x = np.random.default_rng(seed).standard_normal((3, 5), dtype=np.float32) + np.float32(seed - 3)
    expected = onnxruntime_outputs("DynamicQuantizeLinear", {}, [x], 3, opset=11)
    for ours, theirs in zip(
        evaluate(DEFINITIONS["DynamicQuantizeLinear"], {}, [x], 3), expected, strict=True
    ):
        assert_close(ours, theirs)


def test_dynamic_of_zeros_is_zeros():
    y, scale, zero = evaluate(
        DEFINITIONS["DynamicQuantizeLinear"], {}, [np.zeros((2, 3), np.float32)], 3
    )
    assert not y.any()
    assert not zero
    assert scale > 0


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        (DType.U2, 0, 3),
        (DType.I2, -2, 1),
        (DType.U4, 0, 15),
        (DType.I4, -8, 7),
        (DType.I8, -128, 127),
        (DType.U16, 0, 65535),
    ],
)
def test_integer_types_saturate(dtype, low, high):
    assert integer_range(dtype) == (low, high)
    y = requantise(
        np.array([-np.inf, -1e9, -1.5, -0.5, 0.5, 1.5, 1e9, np.inf], np.float32), None, dtype
    )
    assert y.dtype == dtype.numpy
    halves = [max(low, -2), 0, 0, min(high, 2)]
    np.testing.assert_array_equal(y.astype(np.int64), [low, low, *halves, high, high])


@pytest.mark.parametrize(
    ("dtype", "limit", "beyond"),
    [
        (ml_dtypes.float8_e4m3fn, 448.0, np.nan),
        (ml_dtypes.float8_e4m3fnuz, 240.0, np.nan),
        (ml_dtypes.float8_e5m2, 57344.0, np.inf),
        (ml_dtypes.float8_e5m2fnuz, 57344.0, np.nan),
    ],
)
def test_small_floats_saturate_when_asked(dtype, limit, beyond):
    x, scale, zero = (
        np.array([-1e6, 1.0, 1e6], np.float32),
        np.array(1.0, np.float32),
        np.zeros((), dtype),
    )
    (held,) = evaluate(DEFINITIONS["QuantizeLinear"], {"saturate": 1}, [x, scale, zero])
    np.testing.assert_array_equal(held.astype(np.float32), [-limit, 1.0, limit])
    (free,) = evaluate(DEFINITIONS["QuantizeLinear"], {"saturate": 0}, [x, scale, zero])
    np.testing.assert_array_equal(np.abs(free.astype(np.float32)), [abs(beyond), 1.0, abs(beyond)])


@pytest.mark.parametrize(
    "dtype",
    [ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2, ml_dtypes.float4_e2m1fn],
)
def test_every_code_survives_the_round_trip(dtype):
    # 2- and 4-bit elements are held one to a byte, the code in the low bits.
    number = 4 if dtype in {ml_dtypes.int2, ml_dtypes.uint2} else 16
    codes = np.arange(number, dtype=np.uint8)
    x = codes.view(dtype) if dtype is ml_dtypes.float4_e2m1fn else np.arange(number).astype(dtype)
    scale, zero = np.array(0.5, np.float32), np.zeros((), dtype)
    (real,) = evaluate(DEFINITIONS["DequantizeLinear"], {}, [x, scale, zero])
    np.testing.assert_array_equal(real, x.astype(np.float32) * 0.5)
    (back,) = evaluate(DEFINITIONS["QuantizeLinear"], {}, [real, scale, zero])
    np.testing.assert_array_equal(back.astype(np.float32), x.astype(np.float32))


def test_large_int32_lose_nothing_before_the_zero_point():
    x, zero = np.array([2**31 - 1, 2**31 - 3], np.int32), np.array(2**31 - 5, np.int32)
    (real,) = evaluate(DEFINITIONS["DequantizeLinear"], {}, [x, np.array(1.0, np.float32), zero])
    np.testing.assert_array_equal(real, [4.0, 2.0])


def test_output_type_comes_from_the_attribute_or_the_scale():
    x = np.array([1, 2], np.uint8)
    assert (
        evaluate(DEFINITIONS["DequantizeLinear"], {}, [x, np.array(0.5, np.float16)])[0].dtype
        == np.float16
    )
    assert (
        evaluate(
            DEFINITIONS["DequantizeLinear"], {"output_dtype": 1}, [x, np.array(0.5, np.float16)]
        )[0].dtype
        == np.float32
    )
    real = np.array([1, 2], np.float32)
    assert (
        evaluate(DEFINITIONS["QuantizeLinear"], {}, [real, np.array(0.5, np.float32)])[0].dtype
        == np.uint8
    )
    assert (
        evaluate(
            DEFINITIONS["QuantizeLinear"], {"output_dtype": 3}, [real, np.array(0.5, np.float32)]
        )[0].dtype
        == np.int8
    )


def test_a_scale_that_fits_no_axis_is_named():
    with pytest.raises(
        ModelError, match=r"QuantizeLinear: a scale of shape \[3\] does not fit axis 1 of \[2, 4\]"
    ):
        evaluate(
            DEFINITIONS["QuantizeLinear"], {}, [np.ones((2, 4), np.float32), np.ones(3, np.float32)]
        )


def test_fixed_point_arithmetic_rounds_halves_away_from_zero():
    x = np.array([-1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997], np.float32)
    inputs = [x, np.array(1.0, np.float32), np.array(0, np.int8)]
    np.testing.assert_array_equal(
        evaluate(DEFINITIONS["QuantizeLinear"], {"arithmetic": "fixed_point"}, inputs)[0],
        [-2, -1, 1, 2, 3, 0],
    )
    np.testing.assert_array_equal(
        evaluate(DEFINITIONS["QuantizeLinear"], {}, inputs)[0], [-2, 0, 0, 2, 2, 0]
    )


@pytest.mark.parametrize(
    ("op", "x"), [("QuantizeLinear", DType.F32), ("DequantizeLinear", DType.I8)]
)
def test_types(op, x):
    def infer(*types, **attrs):
        return Inference().infer(TypeQuery(op, attrs, types, (None,) * len(types), 1))[0]

    one, many, zero = (
        TensorType(DType.F32, ()),
        TensorType(DType.F32, (3,)),
        TensorType(DType.I8, ()),
    )
    result = DType.I8 if op == "QuantizeLinear" else DType.F32
    assert infer(TensorType(x, (2, "n", 4)), one, zero) == TensorType(result, (2, "n", 4))
    assert infer(TensorType(x, (2, 3)), many, TensorType(DType.I8, (3,)), axis=-1) == TensorType(
        result, (2, 3)
    )
    assert infer(
        TensorType(x, (2,)),
        one,
        output_dtype=int(DType.I16 if op == "QuantizeLinear" else DType.F16),
    ).dtype in {DType.I16, DType.F16}
    for shape, axis in (((2, 4), 1), ((2, 3), 2)):
        with pytest.raises(ModelError, match=op):
            infer(TensorType(x, shape), many, axis=axis)


def test_a_list_may_be_quantised_by_blocks() -> None:
    codes = np.arange(64, dtype=np.uint8)
    scale = np.array([0.5, 2], np.float32)
    attrs: Attrs = {"axis": 0, "block_size": 32}
    types = (TensorType.of(codes), TensorType.of(scale))
    query = TypeQuery("DequantizeLinear", attrs, types, (None, None), 1)
    assert Inference().infer(query) == (TensorType(DType.F32, (64,)),)
    (y,) = evaluate(DEFINITIONS["DequantizeLinear"], attrs, [codes, scale])
    np.testing.assert_array_equal(y, codes * np.repeat(scale, 32))
