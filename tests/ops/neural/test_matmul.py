from __future__ import annotations

import random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.exact_integers import codes, requantised, weight_codes
from tests.ops.oracle import (
    assert_close,
    assert_infers,
    case_name,
    check_node_case,
    evaluate,
    flops,
    onnxruntime_outputs,
    parameters,
)
from whence.errors import ModelError
from whence.ops.neural.matmul import OPS

DEFINITIONS = {definition.name: definition for definition in OPS}
CASES = {
    "MatMul": "matmul",
    "Gemm": "gemm",
    "Einsum": "einsum",
    "Det": "det",
    "MatMulInteger": "matmulinteger",
    "QLinearMatMul": "qlinearmatmul",
}


@pytest.mark.parametrize("case", parameters(CASES), ids=case_name)
def test_onnx_node_cases(case):
    check_node_case(DEFINITIONS[case.model.graph.node[0].op_type], case)


@pytest.mark.parametrize("left", [(4,), (3, 4), (2, 3, 4), (1, 2, 3, 4)])
@pytest.mark.parametrize("right", [(4,), (4, 5), (2, 4, 5), (3, 1, 4, 5)])
def test_matmul_like_onnxruntime(rng, left, right):
    a, b = rng.standard_normal(left, dtype=np.float32), rng.standard_normal(right, dtype=np.float32)
    (actual,) = evaluate(DEFINITIONS["MatMul"], {}, [a, b])
    assert_close(actual, onnxruntime_outputs("MatMul", {}, [a, b])[0])
    assert_infers(DEFINITIONS["MatMul"], {}, [a, b], [actual])


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("bias", [None, (5,), (3, 1), (3, 5), ()])
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (0.5, 2.0), (1.0, 0.0)])
def test_gemm_like_onnxruntime(rng, trans_a, trans_b, bias, alpha, beta):
    a = rng.standard_normal((4, 3) if trans_a else (3, 4), dtype=np.float32)
    b = rng.standard_normal((5, 4) if trans_b else (4, 5), dtype=np.float32)
    inputs = (
        [a, b] if bias is None else [a, b, np.asarray(rng.standard_normal(bias), dtype=np.float32)]
    )
    attrs = {"transA": trans_a, "transB": trans_b, "alpha": alpha, "beta": beta}
    (actual,) = evaluate(DEFINITIONS["Gemm"], attrs, inputs)
    assert_close(actual, onnxruntime_outputs("Gemm", attrs, inputs)[0])
    assert_infers(DEFINITIONS["Gemm"], attrs, inputs, [actual])


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32])
def test_integers_multiply_exactly(rng, dtype):
    a, b = rng.integers(0, 1000, (3, 4)).astype(dtype), rng.integers(0, 1000, (4, 5)).astype(dtype)
    (product,) = evaluate(DEFINITIONS["MatMul"], {}, [a, b])
    assert product.dtype == dtype
    np.testing.assert_array_equal(product.astype(np.int64), a.astype(np.int64) @ b.astype(np.int64))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_are_rounded_once(rng, dtype):
    a, b = rng.standard_normal((8, 300)).astype(dtype), rng.standard_normal((300, 8)).astype(dtype)
    (product,) = evaluate(DEFINITIONS["MatMul"], {}, [a, b])
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert product.dtype == dtype
    half_step = float(ml_dtypes.finfo(dtype).eps) / 2
    assert (np.abs(product.astype(np.float64) - exact) <= half_step * np.abs(exact) + 1e-4).all()


@pytest.mark.parametrize("bits", [7, 8])
@pytest.mark.parametrize("seed", range(12))
def test_integer_products_are_exact(seed, bits):
    rng, pick = np.random.default_rng(seed), random.Random(seed)
    a_type, b_type = pick.choice([(np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8)])
    a = codes(rng, a_type, 2, 3, 70)
    b = (codes if bits == 8 else weight_codes)(rng, b_type, 70, 5)
    a_zero, b_zero = codes(rng, a_type), codes(rng, b_type, *pick.choice([(), (5,)]))
    inputs: list[Any] = [a, b, a_zero, b_zero]
    (actual,) = evaluate(DEFINITIONS["MatMulInteger"], {}, inputs)
    sums = (a.astype(np.int64) - a_zero) @ (b.astype(np.int64) - b_zero)
    assert_close(actual, sums.astype(np.int32))
    exact = bits == 7 or b_type is np.uint8
    if exact:
        assert_close(actual, onnxruntime_outputs("MatMulInteger", {}, inputs)[0])
    a_scale, y_scale = np.array(0.02, np.float32), np.array(3.0, np.float32)
    b_scale = np.asarray(rng.uniform(0.01, 0.1, b_zero.shape), dtype=np.float32)
    inputs = [a, a_scale, a_zero, b, b_scale, b_zero, y_scale, a_zero]
    (actual,) = evaluate(DEFINITIONS["QLinearMatMul"], {}, inputs)
    assert_close(actual, requantised(sums, a_scale * b_scale / y_scale, a_zero))
    if exact:
        assert_close(actual, onnxruntime_outputs("QLinearMatMul", {}, inputs, opset=10)[0])


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
        ("...ij,...jk->...ik", [(2, 3, 4), (2, 4, 5)]),
        ("bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("i , i -> ", [(4,), (4,)]),
        ("ij,jk", [(2, 3), (3, 4)]),
        ("ii->i", [(4, 4)]),
        ("ab,bc,cd->ad", [(2, 3), (3, 4), (4, 5)]),
    ],
)
def test_einsum_like_onnxruntime(rng, equation, shapes):
    inputs = [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]
    (actual,) = evaluate(DEFINITIONS["Einsum"], {"equation": equation}, inputs)
    assert_close(actual, onnxruntime_outputs("Einsum", {"equation": equation}, inputs, opset=12)[0])


def test_einsum_that_does_not_fit_names_its_equation(rng):
    with pytest.raises(ModelError, match="Einsum: equation 'ij,jk->ik'"):
        evaluate(
            DEFINITIONS["Einsum"], {"equation": "ij,jk->ik"}, [np.ones((2, 3)), np.ones((4, 5))]
        )


def test_flops():
    a, b, y = np.ones((2, 3, 4)), np.ones((4, 5)), np.ones((2, 3, 5))
    assert flops(DEFINITIONS["MatMul"], {}, [a, b], [y]) == 2 * 2 * 3 * 4 * 5
    assert (
        flops(
            DEFINITIONS["Gemm"],
            {"transA": 1},
            [np.ones((4, 3)), np.ones((4, 5))],
            [np.ones((3, 5))],
        )
        == 2 * 3 * 4 * 5
    )
    assert (
        flops(DEFINITIONS["Einsum"], {"equation": "bij,bjk->bik"}, [a, np.ones((2, 4, 5))], [y])
        == 2 * 2 * 3 * 4 * 5
    )
    assert (
        flops(DEFINITIONS["Einsum"], {"equation": "...j,jk->...k"}, [a, b], [y])
        == 2 * 2 * 3 * 4 * 5
    )
