"""MatMulInteger, bit for bit as the reference and as ONNX Runtime."""

from __future__ import annotations

import numpy as np

from tests.exact_integers import seven_bits
from tests.kernels.harness import Cases
from tests.kernels.test_integer_conv import codes


def test_constant_right_hand_side() -> None:
    cases = Cases()
    for a_type in (np.int8, np.uint8):
        for b_type in (np.int8, np.uint8):
            for a_shape, b_shape in (
                ((1, 64), (64, 40)),
                ((30, 37), (37, 70)),
                ((3, 5, 8), (8, 3)),
                ((2, 3, 4, 33), (33, 16)),
            ):
                a, b = (
                    cases.feed(codes(cases, *a_shape, dtype=a_type)),
                    cases.const(codes(cases, *b_shape, dtype=b_type)),
                )
                a_zero, b_zero = (
                    cases.const(np.array(7, a_type)),
                    cases.const(np.array(100, b_type)),
                )
                cases.expect(cases.op("MatMulInteger", a, b, a_zero, b_zero), "one zero point", 0)
            each = cases.const(codes(cases, 40, dtype=b_type))
            wide = cases.const(codes(cases, 64, 40, dtype=b_type))
            cases.expect(
                cases.op(
                    "MatMulInteger",
                    cases.feed(codes(cases, 20, 64, dtype=a_type)),
                    wide,
                    None,
                    each,
                ),
                "one for each column",
                0,
            )
    cases.check(peer=False)


def test_constant_stacks_of_matrices() -> None:
    cases = Cases(3)
    a, b = cases.feed(codes(cases, 3, 5, 8, dtype=np.uint8)), cases.const(codes(cases, 3, 8, 20))
    cases.expect(
        cases.op("MatMulInteger", a, b, cases.const(np.uint8(9)), cases.const(np.int8(-3))),
        "each its own",
        0,
    )
    cases.expect(cases.op("MatMulInteger", cases.feed(codes(cases, 2, 1, 5, 8)), b), "broadcast", 0)
    one = cases.const(codes(cases, 1, 8, 20))
    cases.expect(cases.op("MatMulInteger", a, one), "one for all", 0)
    cases.check(peer=False)


def test_right_hand_side_at_run_time() -> None:
    cases = Cases(1)
    for a_type in (np.int8, np.uint8):
        for b_type in (np.int8, np.uint8):
            for a_shape, b_shape in (
                ((20, 64), (64, 40)),
                ((30, 37), (37, 21)),
                ((3, 5, 8), (3, 8, 3)),
                ((2, 3, 4, 33), (3, 33, 16)),
                ((1, 7), (7, 1)),
            ):
                a, b = (
                    cases.feed(codes(cases, *a_shape, dtype=a_type)),
                    cases.feed(codes(cases, *b_shape, dtype=b_type)),
                )
                a_zero, b_zero = cases.feed(np.array(7, a_type)), cases.feed(np.array(100, b_type))
                cases.expect(cases.op("MatMulInteger", a, b, a_zero, b_zero), "zero points", 0)
                cases.expect(cases.op("MatMulInteger", a, b), "none", 0)
            for columns in (3, 40):
                each = cases.feed(codes(cases, columns, dtype=b_type))
                a, b = (
                    cases.feed(codes(cases, 20, 63, dtype=a_type)),
                    cases.feed(codes(cases, 63, columns, dtype=b_type)),
                )
                cases.expect(cases.op("MatMulInteger", a, b, None, each), "one for each column", 0)
    cases.check(peer=False)


def test_as_onnx_runtime_computes_it() -> None:
    cases = Cases(2)
    for rows, depth, columns in ((1, 384, 384), (13, 130, 66), (64, 64, 256)):
        x = cases.normal(rows, depth)
        quantised = cases.op("DynamicQuantizeLinear", x, n_outputs=3)
        weights = cases.const(seven_bits(codes(cases, depth, columns)))
        product = cases.op(
            "MatMulInteger", quantised, weights, quantised[2], cases.const(np.int8(0))
        )
        factor = cases.op("Mul", quantised[1], cases.const(np.float32(0.01)))
        cases.expect(cases.op("Mul", cases.op("Cast", product, to=1), factor), "dynamic", 1e-5)
    cases.check()
