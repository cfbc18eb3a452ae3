"""Softmax and the normalisations, on rows along memory and across it."""

from __future__ import annotations

import numpy as np
import pytest

import whence
from tests.kernels.harness import Cases
from whence.graph.builder import GraphBuilder
from whence.types import DType


def test_softmax_family_over_every_axis():
    cases = Cases()
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        for shape in (
            (7,),
            (3, 5),
            (2, 197),
            (2, 3, 4, 5),
            (1, 1000, 1, 1),
            (2, 6, 17, 31),
            (3, 1, 1),
            (2, 600, 2),
        ):
            for axis in range(len(shape)):
                cases.expect(cases.op(op, cases.normal(*shape), axis=axis), f"{op}_{shape}_{axis}")
    cases.check()


def test_softmax_of_extreme_values():
    cases = Cases()
    rows = np.array(
        [
            [1e38, -1e38, 0, 3],
            [-np.inf, 0, 1, 2],
            [-np.inf] * 4,
            [np.nan, 1, 2, 3],
            [np.inf, 1, 2, 3],
        ],
        np.float32,
    )
    cases.expect(cases.op("Softmax", cases.feed(rows), axis=-1))
    cases.expect(cases.op("Softmax", cases.feed(rows.T.copy()), axis=0))
    cases.check(peer=False)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_types(dtype: type):
    cases = Cases()
    limit = 1e-3 if dtype is np.float16 else 1e-12
    for axis in (0, 2):
        cases.expect(
            cases.op("Softmax", cases.normal(3, 5, 33, dtype=dtype), axis=axis),
            f"softmax_{axis}",
            limit,
        )
    x = cases.normal(4, 6, 10, dtype=dtype)
    cases.expect(
        cases.op(
            "LayerNormalization", x, cases.weights(10, dtype=dtype), cases.weights(10, dtype=dtype)
        ),
        "layer",
        limit * 4,
    )
    cases.expect(
        cases.op(
            "InstanceNormalization", x, cases.weights(6, dtype=dtype), cases.weights(6, dtype=dtype)
        ),
        "instance",
        limit * 4,
    )
    cases.check(peer=False)


def test_layer_normalisation():
    cases = Cases()
    for shape, axis in (
        ((32, 384), -1),
        ((2, 3, 4, 5), 1),
        ((2, 3, 4, 5), 2),
        ((2, 3, 4, 5), 3),
        ((5, 1), -1),
        ((1, 7, 1), 1),
    ):
        inner = shape[axis:]
        x, scale, bias = cases.normal(*shape), cases.weights(*inner), cases.weights(*inner)
        cases.expect(cases.op("LayerNormalization", x, scale, bias, axis=axis), f"{shape}_{axis}")
        cases.expect(
            cases.op("LayerNormalization", x, cases.normal(*inner), axis=axis, epsilon=1e-2),
            f"{shape}_{axis}_no_bias",
        )
        cases.expect(cases.op("RMSNormalization", x, scale, axis=axis), f"rms_{shape}_{axis}")
    cases.expect(
        cases.op(
            "LayerNormalization",
            cases.normal(4, 6, 10),
            cases.weights(1),
            cases.weights(6, 1),
            axis=1,
        ),
        "broadcast",
    )
    cases.check()


def test_layer_normalisation_also_gives_mean_and_deviation():
    cases = Cases()
    for shape, axis in (((6, 33), -1), ((2, 3, 4), 1)):
        y = cases.op(
            "LayerNormalization",
            cases.normal(*shape),
            cases.weights(*shape[axis:]),
            n_outputs=3,
            axis=axis,
        )
        for index in range(3):
            cases.expect(y[index], f"{shape}_{index}")
    cases.check()


def test_far_from_zero():
    cases = Cases()
    x = cases.feed(1000 + cases.rng.standard_normal((8, 64)).astype(np.float32))
    cases.expect(cases.op("LayerNormalization", x, cases.weights(64)), limit=1e-3)
    cases.check()


def test_channel_normalisations():
    cases = Cases()
    for shape in ((2, 6, 5), (1, 4, 7, 9), (2, 8, 3, 4, 5), (3, 4, 1)):
        scale, bias = cases.weights(shape[1]), cases.weights(shape[1])
        x = cases.normal(*shape)
        cases.expect(cases.op("InstanceNormalization", x, scale, bias), f"instance_{shape}", 1e-4)
        for groups in (1, 2, shape[1]):
            cases.expect(
                cases.op("GroupNormalization", x, scale, bias, num_groups=groups),
                f"group_{shape}_{groups}",
                1e-4,
            )
    cases.check()


def test_the_rest():
    cases = Cases()
    for shape in ((5, 9), (2, 3, 40), (3, 4, 1)):
        for axis in range(len(shape)):
            for p in (1, 2):
                cases.expect(
                    cases.op("LpNormalization", cases.normal(*shape), axis=axis, p=p),
                    f"lp_{shape}_{axis}_{p}",
                )
    for axes in ((0, 2, 3), (1,), (2, 3), (0, 1, 2, 3)):
        cases.expect(
            cases.op("MeanVarianceNormalization", cases.normal(2, 3, 4, 5), axes=axes),
            f"mvn_{axes}",
        )
    for size, beta in ((1, 0.75), (3, 0.5), (5, 0.75)):
        cases.expect(
            cases.op("LRN", cases.normal(2, 7, 3, 5), size=size, beta=beta, alpha=0.1, bias=2.0),
            f"lrn_{size}",
        )
    cases.check()


def test_axes_that_are_an_empty_list_are_the_default_ones():
    cases = Cases()
    cases.expect(cases.op("MeanVarianceNormalization", cases.normal(2, 3, 4, 5), axes=()))
    cases.check(peer=False)


def test_a_response_to_the_power_of_zero():
    cases = Cases()
    cases.expect(cases.op("LRN", cases.normal(2, 7, 3, 5), size=3, alpha=0.0, beta=0.0, bias=0.0))
    cases.check(peer=False)


def test_a_whole_power_of_a_negative_response():
    cases = Cases()
    for beta in (-1.0, 2.0):
        x = cases.normal(2, 7, 3, 5)
        cases.expect(cases.op("LRN", x, size=3, alpha=1e-4, beta=beta, bias=-1.0), f"lrn_{beta}")
    cases.check(peer=False)


def test_an_even_neighbourhood():
    cases = Cases()
    cases.expect(cases.op("LRN", cases.normal(2, 7, 3, 5), size=4, alpha=0.1))
    cases.check(peer=False)


def test_a_row_of_zeros_stays_one():
    cases = Cases()
    cases.expect(cases.op("LpNormalization", cases.feed(np.zeros((2, 5), np.float32))))
    cases.check(peer=False)


def test_fused_before_and_after():
    cases = Cases()
    x = cases.normal(6, 40)
    before = cases.op("Exp", cases.op("Mul", x, cases.normal(6, 40)))
    y = cases.op("LpNormalization", before, axis=1)
    cases.expect(cases.op("Relu", cases.op("Add", y, cases.weights(40))), "along")
    y = cases.op("LpNormalization", cases.op("Tanh", x), axis=0)
    cases.expect(cases.op("Sigmoid", cases.op("Mul", y, cases.weights(6, 1))), "across")
    cases.check()


@pytest.mark.parametrize(
    ("x_type", "scale_type"),
    [(DType.BF16, DType.F32), (DType.F32, DType.F16), (DType.F64, DType.F32)],
)
def test_rms_normalisation_has_the_elements_of_its_scale(x_type: DType, scale_type: DType) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 8)).astype(x_type.numpy)
    scale = rng.standard_normal(8).astype(scale_type.numpy)
    build = GraphBuilder()
    inputs = build.input("x", x_type, [3, 8]), build.input("scale", scale_type, [8])
    build.output("y", build.op("RMSNormalization", *inputs))
    graph = build.finish()
    wide = x.astype(np.float64)
    exact = wide / np.sqrt(np.square(wide).mean(-1, keepdims=True) + 1e-5) * scale
    for found in (graph.run([x, scale])[0], whence.compile(graph)(x, scale)):
        assert np.asarray(found).dtype == scale_type.numpy
        limit = 1e-3 if scale_type is DType.F16 else 1e-6
        np.testing.assert_allclose(np.asarray(found, np.float64), exact, rtol=limit, atol=limit)
