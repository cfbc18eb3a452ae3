"""Ten small models of the kinds that people run, with random weights: what is tried on machines
where larger ones would take too long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tests.kernels.harness import Cases
from whence.graph.builder import Symbol

_SAME = {"pads": (1, 1, 1, 1)}


def _filters(cases: Cases, *shape: int) -> Symbol:
    """Weights that leave values about as large as they were."""
    drawn = cases.rng.standard_normal(shape) * (2 / np.prod(shape[1:])) ** 0.5
    return cases.const(drawn.astype(np.float32))


def _conv(cases: Cases, x: Symbol, out: int, per_group: int, size: int = 3, **attrs: Any) -> Symbol:
    pads = {"pads": (size // 2,) * 4}
    weights, bias = _filters(cases, out, per_group, size, size), cases.weights(out)
    return cases.op("Conv", x, weights, bias, **{**pads, **attrs})


def _norm(cases: Cases, x: Symbol, channels: int) -> Symbol:
    scale, bias, mean = (cases.weights(channels) for _ in range(3))
    variance = cases.const(cases.rng.uniform(0.5, 1.5, channels).astype(np.float32))
    return cases.op("BatchNormalization", x, scale, bias, mean, variance)


def _linear(cases: Cases, x: Symbol, depth: int, columns: int) -> Symbol:
    weights = cases.rng.standard_normal((depth, columns)) / depth**0.5
    product = cases.op("MatMul", x, cases.const(weights.astype(np.float32)))
    return cases.op("Add", product, cases.weights(columns))


def _reshaped(cases: Cases, x: Symbol, *shape: int) -> Symbol:
    return cases.op("Reshape", x, cases.const(np.array(shape)))


def _classifier(cases: Cases) -> None:
    x = cases.op("Relu", _norm(cases, _conv(cases, cases.normal(1, 3, 20, 20), 16, 3), 16))
    x = cases.op("MaxPool", x, kernel_shape=(2, 2), strides=(2, 2))
    x = cases.op("Relu", _conv(cases, x, 32, 16, strides=(2, 2)))
    x = cases.op("Flatten", cases.op("GlobalAveragePool", x))
    cases.expect(cases.op("Softmax", _linear(cases, x, 32, 10)), "classifier")


def _residual(cases: Cases) -> None:
    """Wide enough for transformed convolutions."""
    x = cases.normal(1, 64, 16, 16)
    for _ in range(2):
        y = cases.op("Relu", _norm(cases, _conv(cases, x, 64, 64), 64))
        x = cases.op("Relu", cases.op("Add", _conv(cases, y, 64, 64), x))
    cases.expect(x, "residual", 5e-5)


def _mobile(cases: Cases) -> None:
    x = cases.op("HardSwish", _conv(cases, cases.normal(1, 3, 24, 24), 16, 3, strides=(2, 2)))
    y = cases.op("HardSwish", _conv(cases, x, 16, 1, group=16))
    gate = cases.op("Relu", _conv(cases, cases.op("GlobalAveragePool", y), 8, 16, 1))
    y = cases.op("Mul", y, cases.op("HardSigmoid", _conv(cases, gate, 16, 8, 1)))
    cases.expect(cases.op("Add", _conv(cases, y, 16, 16, 1), x), "mobile")


def _shuffle(cases: Cases) -> None:
    x = cases.op("Relu", _conv(cases, cases.normal(1, 24, 10, 10), 24, 8, 1, group=3))
    x = cases.op("Transpose", _reshaped(cases, x, 1, 3, 8, 10, 10), perm=(0, 2, 1, 3, 4))
    x = _conv(cases, _reshaped(cases, x, 1, 24, 10, 10), 24, 1, group=24)
    cases.expect(_conv(cases, x, 24, 8, 1, group=3), "shuffle")


def _branches(cases: Cases) -> None:
    x = cases.normal(1, 16, 11, 11)
    pooled = cases.op("AveragePool", x, kernel_shape=(3, 3), **_SAME)
    parts = [_conv(cases, x, 8, 16, 1), _conv(cases, x, 12, 16, 5), _conv(cases, pooled, 4, 16, 1)]
    joined = cases.op("Concat", *(cases.op("Relu", part) for part in parts), axis=1)
    cases.expect(_conv(cases, joined, 8, 24), "branches")


def _segmentation(cases: Cases) -> None:
    x = cases.op("Relu", _conv(cases, cases.normal(1, 3, 16, 16), 8, 3))
    low = cases.op("Relu", _conv(cases, x, 16, 8, strides=(2, 2)))
    weights = _filters(cases, 16, 8, 2, 2)
    up = cases.op("ConvTranspose", low, weights, cases.weights(8), strides=(2, 2))
    scales = cases.const(np.array([1, 1, 2, 2], np.float32))
    large = cases.op("Resize", low, None, scales, mode="linear")
    joined = cases.op("Concat", x, up, large, axis=1)
    cases.expect(cases.op("Sigmoid", _conv(cases, joined, 1, 32, 1)), "segmentation")


def _encoder(cases: Cases) -> None:
    x = cases.normal(1, 12, 48)
    heads = []
    for _ in range(3):
        part = _reshaped(cases, _linear(cases, x, 48, 48), 1, 12, 3, 16)
        heads.append(cases.op("Transpose", part, perm=(0, 2, 1, 3)))
    scores = cases.op("MatMul", heads[0], cases.op("Transpose", heads[1], perm=(0, 1, 3, 2)))
    weights = cases.op("Softmax", cases.op("Mul", scores, cases.const(np.float32(0.25))))
    mixed = cases.op("Transpose", cases.op("MatMul", weights, heads[2]), perm=(0, 2, 1, 3))
    x = cases.op("Add", x, _linear(cases, _reshaped(cases, mixed, 1, 12, 48), 48, 48))
    x = cases.op("LayerNormalization", x, cases.weights(48), cases.weights(48))
    hidden = cases.op("Gelu", _linear(cases, x, 48, 96))
    cases.expect(cases.op("Add", x, _linear(cases, hidden, 96, 48)), "encoder", 2e-5)


def _speech(cases: Cases) -> None:
    x = cases.normal(1, 8, 40)
    x = cases.op(
        "Relu", cases.op("Conv", x, _filters(cases, 16, 8, 3), dilations=(2,), pads=(2, 2))
    )
    w, r = (cases.const(cases.rng.uniform(-0.3, 0.3, (1, 48, 16)).astype(np.float32)) for _ in "wr")
    y = cases.op("GRU", cases.op("Transpose", x, perm=(2, 0, 1)), w, r, n_outputs=2, hidden_size=16)
    cases.expect(_linear(cases, y[1], 16, 5), "speech")


def _quantised_network(cases: Cases) -> None:
    def real(codes: Symbol, scale: float, zero: Any) -> Symbol:
        parameters = cases.const(np.float32(scale)), cases.const(zero)
        return cases.op("DequantizeLinear", codes, *parameters)

    def coded(x: Symbol, scale: float) -> Symbol:
        return cases.op(
            "QuantizeLinear", x, cases.const(np.float32(scale)), cases.const(np.uint8(0))
        )

    def weights(*shape: int) -> Symbol:
        drawn = cases.rng.integers(-128, 128, shape).astype(np.int8)
        return real(cases.const(drawn), 0.004, np.int8(0))

    x = coded(cases.op("Abs", cases.normal(1, 8, 12, 12)), 0.02)
    x = cases.op(
        "Relu", cases.op("Conv", real(x, 0.02, np.uint8(0)), weights(16, 8, 3, 3), **_SAME)
    )
    x = real(coded(x, 0.05), 0.05, np.uint8(0))
    x = cases.op("Relu", cases.op("Conv", x, weights(16, 1, 3, 3), group=16, **_SAME))
    x = real(coded(x, 0.05), 0.05, np.uint8(0))
    x = cases.op("Relu", cases.op("Conv", x, weights(24, 16, 1, 1)))
    # In integers a value beside a half may round to the next code.
    cases.expect(coded(x, 0.08), "quantised", 1)


def _hybrid(cases: Cases) -> None:
    x = cases.normal(7, 40)
    for depth, columns in ((40, 64), (64, 24)):
        small = cases.op("DynamicQuantizeLinear", x, n_outputs=3)
        weights = cases.const(cases.rng.integers(-128, 128, (depth, columns)).astype(np.int8))
        sums = cases.op("MatMulInteger", small[0], weights, small[2], cases.const(np.int8(0)))
        factor = cases.op("Mul", small[1], cases.const(np.float32(0.003)))
        x = cases.op("Relu", cases.op("Mul", cases.op("Cast", sums, to=1), factor))
    cases.expect(x, "hybrid")


WHOLE_MODELS: Mapping[str, Callable[[Cases], None]] = {
    "classifier": _classifier,
    "residual": _residual,
    "mobile": _mobile,
    "shuffle": _shuffle,
    "branches": _branches,
    "segmentation": _segmentation,
    "encoder": _encoder,
    "speech": _speech,
    "quantised_network": _quantised_network,
    "hybrid": _hybrid,
}
