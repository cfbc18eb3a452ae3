"""A few cases of every family of kernels, to be compiled for other machines than the tests of the
families run on.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tests.kernels.harness import Cases
from tests.kernels.test_attention import _qkv
from tests.kernels.test_integer_conv import codes, conv, requantised
from tests.kernels.test_packed import exact_rows, product
from tests.kernels.test_recurrent import _layer

_ONNX_TYPES = {np.float32: 1, np.uint8: 2, np.int8: 3, np.int32: 6, np.int64: 7, np.float16: 10}


def _elementwise(cases: Cases) -> None:
    x, y = cases.normal(3, 5, 37), cases.normal(5, 1)
    for op in ("Exp", "Tanh", "Sigmoid", "Erf", "Sin", "Floor", "Round", "Gelu", "HardSwish"):
        cases.expect(cases.op(op, x), op)
    positive = cases.feed(np.abs(cases.rng.standard_normal((4, 33))).astype(np.float32) + 0.1)
    for op in ("Log", "Sqrt", "Reciprocal"):
        cases.expect(cases.op(op, positive), op)
    for op in ("Add", "Sub", "Mul", "Div", "Max", "PRelu"):
        cases.expect(cases.op(op, x, y), op)
    cases.expect(cases.op("Where", cases.op("Greater", x, y), x, y), "Where")
    whole = cases.feed(cases.rng.integers(-50, 50, (3, 35)).astype(np.int32))
    divisor = cases.feed(cases.rng.integers(1, 9, (3, 35)).astype(np.int32))
    for op in ("Add", "Mul", "Div", "Mod"):
        cases.expect(cases.op(op, whole, divisor), f"int32_{op}", 0)


def _casts(cases: Cases) -> None:
    small = cases.feed((cases.rng.standard_normal((3, 41)) * 50).astype(np.float32))
    for kind, number in _ONNX_TYPES.items():
        source = cases.op("Abs", small) if kind is np.uint8 else small
        cases.expect(cases.op("Cast", source, to=number), f"to_{kind.__name__}", 0)
    for kind in (np.float16, np.int8, np.uint8, np.int32, np.int64):
        given = cases.feed(cases.rng.integers(0, 100, (3, 41)).astype(kind))
        cases.expect(cases.op("Cast", given, to=1), f"from_{kind.__name__}", 0)
    half = cases.normal(4, 30, dtype=np.float16)
    cases.expect(cases.op("Add", half, cases.op("Relu", half)), "half", 2e-3)


def _movement(cases: Cases) -> None:
    x = cases.normal(3, 8, 13)
    turned = cases.op("Transpose", x, perm=(2, 0, 1))
    cases.expect(cases.op("Add", turned, cases.normal(13, 3, 8)), "transposed")
    cases.expect(cases.op("Concat", x, cases.normal(3, 2, 13), axis=1), "concatenated")
    bounds = [cases.const(np.array(value)) for value in ([1, 12], [8, 0], [1, 2], [1, -3])]
    cases.expect(cases.op("Slice", x, *bounds), "sliced")
    cases.expect(cases.op("Pad", x, cases.const(np.array([0, 1, 2, 0, 0, 3])), mode="reflect"), "p")
    cases.expect(cases.op("Gather", x, cases.feed(np.array([[3, 0], [7, -1]])), axis=1), "gathered")
    blocks = cases.op("DepthToSpace", cases.normal(1, 8, 3, 5), blocksize=2)
    cases.expect(cases.op("Relu", blocks), "depth_to_space")


def _reductions(cases: Cases) -> None:
    for op, axes in itertools.product(("ReduceSum", "ReduceMax", "ReduceL2"), ([0], [2], [0, 2])):
        x, axis = cases.normal(5, 6, 37), cases.const(np.array(axes))
        cases.expect(cases.op(op, x, axis, keepdims=0), f"{op}_{axes}")
    cases.expect(cases.op("ArgMax", cases.normal(5, 40), axis=1), "argmax")
    cases.expect(cases.op("CumSum", cases.normal(5, 40), cases.const(np.array(1))), "running")
    y = cases.op("TopK", cases.normal(4, 50), cases.const(np.array([7])), n_outputs=2)
    for index in (0, 1):
        cases.expect(y[index], f"top_{index}")


def _rows(cases: Cases) -> None:
    for axis in (0, 1, 2):
        cases.expect(cases.op("Softmax", cases.normal(4, 9, 33), axis=axis), f"softmax_{axis}")
    x, scale, bias = cases.normal(5, 6, 37), cases.weights(37), cases.weights(37)
    cases.expect(cases.op("LayerNormalization", x, scale, bias), "layer")
    cases.expect(cases.op("RMSNormalization", x, scale), "rms")
    image, each = cases.normal(2, 6, 7, 9), [cases.weights(6), cases.weights(6)]
    cases.expect(cases.op("InstanceNormalization", image, *each), "instance", 1e-4)
    cases.expect(cases.op("GroupNormalization", image, *each, num_groups=3), "groups", 1e-4)
    cases.expect(cases.op("LRN", image, size=3, alpha=0.1), "lrn")


def _products(cases: Cases) -> None:
    for rows, depth, columns in ((1, 70, 50), (13, 33, 17), (64, 64, 48), (3, 5, 1)):
        a, name = cases.normal(rows, depth), f"{rows}_{depth}_{columns}"
        cases.expect(cases.op("MatMul", a, cases.weights(depth, columns)), name)
        cases.expect(cases.op("MatMul", a, cases.normal(depth, columns)), f"run_time_{name}")
    cases.expect(cases.op("MatMul", cases.normal(3, 9, 20), cases.normal(3, 20, 11)), "batched")
    a, b, c = cases.normal(9, 24), cases.weights(30, 24), cases.weights(30)
    cases.expect(cases.op("Relu", cases.op("Gemm", a, b, c, transB=1, alpha=0.5)), "gemm")


def _windows(cases: Cases) -> None:
    x, same = cases.normal(1, 6, 9, 11), {"pads": (1, 1, 1, 1)}
    cases.expect(cases.op("Conv", x, cases.weights(10, 6, 3, 3), cases.weights(10), **same), "conv")
    cases.expect(cases.op("Conv", x, cases.weights(6, 1, 3, 3), group=6, strides=(2, 2)), "depth")
    cases.expect(cases.op("Conv", x, cases.weights(9, 2, 1, 1), group=3), "groups")
    line = cases.normal(1, 5, 40)
    cases.expect(cases.op("Conv", line, cases.weights(7, 5, 3), dilations=(2,)), "line")
    cases.expect(cases.op("ConvTranspose", x, cases.weights(6, 4, 2, 2), strides=(2, 2)), "turned")
    window = {"kernel_shape": (3, 2), "strides": (2, 1), "pads": (1, 0, 1, 1)}
    for op in ("MaxPool", "AveragePool"):
        cases.expect(cases.op(op, x, **window), op)
    cases.expect(cases.op("GlobalAveragePool", x), "global")
    scales = cases.const(np.array([1, 1, 2.0, 1.5], np.float32))
    for mode in ("nearest", "linear", "cubic"):
        cases.expect(cases.op("Resize", x, None, scales, mode=mode), mode)


def _attention(cases: Cases) -> None:
    for shape in ((1, 2, 33, 33, 32), (2, 2, 5, 7, 8), (1, 2, 1, 40, 16), (1, 1, 6, 20, 5, 7)):
        cases.expect(cases.op("Attention", *_qkv(cases, *shape)), str(shape))
    cases.expect(cases.op("Attention", *_qkv(cases, 1, 2, 12, 12, 16), is_causal=1), "causal")
    cases.expect(cases.op("Attention", *_qkv(cases, 1, 4, 9, 20, 16, 16, 2)), "shared_heads")
    angles = cases.rng.uniform(0, 6, (2, 5, 8))
    turns = [cases.feed(part(angles).astype(np.float32)) for part in (np.cos, np.sin)]
    cases.expect(cases.op("RotaryEmbedding", cases.normal(2, 3, 5, 16), *turns), "rotary")


def _recurrent(cases: Cases) -> None:
    for op in ("RNN", "GRU", "LSTM"):
        _layer(cases, op, 5, 2, 7, 17, direction="bidirectional", states=True)


def _scatter(cases: Cases) -> None:
    where = cases.feed(np.array([[0, 2], [4, 1], [2, 5]]))
    for reduction in ("none", "add", "max"):
        y = cases.op("ScatterND", cases.normal(5, 6), where, cases.normal(3), reduction=reduction)
        cases.expect(y, reduction)
    order = cases.feed(np.array([[1, 0, 2], [2, 1, 0]]))
    y = cases.op("ScatterElements", cases.normal(4, 3), order, cases.normal(2, 3), axis=0)
    cases.expect(y, "elements")
    cases.expect(cases.op("GatherND", cases.normal(5, 6), where), "gathered")


def _quantised(cases: Cases) -> None:
    for kind in (np.int8, np.uint8):
        scale, zero = cases.const(np.float32(0.03)), cases.const(kind(9))
        small = cases.op("QuantizeLinear", cases.normal(6, 37), scale, zero)
        cases.expect(small, f"quantised_{kind.__name__}", 0)
        cases.expect(cases.op("DequantizeLinear", small, scale, zero), f"back_{kind.__name__}")
    y = cases.op("DynamicQuantizeLinear", cases.normal(4, 30), n_outputs=3)
    cases.expect(y[0], "dynamic", 0)
    table = cases.const(codes(cases, 256))
    cases.expect(cases.op("LookUp", cases.feed(codes(cases, 5, 41)), table), "table", 0)


def _integer_products(cases: Cases) -> None:
    for kind in (np.int8, np.uint8):
        name = kind.__name__
        same: dict[str, Any] = {"pads": (1, 1, 1, 1)}
        full = conv(cases, (1, 7, 9, 12), (24, 3, 3, 12), kind, **same)
        cases.expect(requantised(cases, full, 24), f"conv_{name}", 0)
        depth = conv(cases, (1, 7, 9, 24), (24, 3, 3, 1), kind, group=24, **same)
        cases.expect(requantised(cases, depth, 24), f"depthwise_{name}", 0)
        one = conv(cases, (1, 7, 9, 12), (37, 1, 1, 12), kind, np.uint8, 3, 100)
        cases.expect(requantised(cases, one, 37, rounding="single"), f"pointwise_{name}", 0)
        a, b = cases.feed(codes(cases, 10, 35, dtype=kind)), codes(cases, 35, 21)
        cases.expect(cases.op("MatMulInteger", a, cases.const(b)), f"constant_{name}", 0)
        cases.expect(cases.op("MatMulInteger", a, cases.feed(b)), f"run_time_{name}", 0)
        x = cases.feed(codes(cases, 1, 9, 10, 21, dtype=kind))
        for op in ("ChannelsLastMaxPool", "ChannelsLastAveragePool"):
            y = cases.op(op, x, kernel_shape=(3, 3), strides=(2, 2), **same)
            cases.expect(y, f"{op}_{name}", 0)
    # Where 16 bits would not hold the sum of two products.
    wide = cases.feed(np.full((1, 1, 8, 64), 255, np.uint8))
    for weight in (127, -128):
        filters = cases.const(np.full((16, 1, 1, 64), weight, np.int8))
        cases.expect(cases.op("IntegerConv", wide, filters), f"extreme_{weight}", 0)


def _packed_products(cases: Cases) -> None:
    for bits, rows, level in ((4, 1, 4), (4, 5, 4), (2, 1, 4), (8, 3, 4), (4, 1, 0), (8, 5, 0)):
        a = cases.feed(exact_rows(cases, rows, 100, block=32))
        y = product(cases, a, 40, 100, bits=bits, zeros=rows > 1, level=level)
        cases.expect(y, f"{bits}_{rows}_{level}")


FAMILIES: Mapping[str, Callable[[Cases], None]] = {
    "elementwise": _elementwise,
    "casts": _casts,
    "movement": _movement,
    "reductions": _reductions,
    "rows": _rows,
    "products": _products,
    "windows": _windows,
    "attention": _attention,
    "recurrent": _recurrent,
    "scatter": _scatter,
    "quantised": _quantised,
    "integer_products": _integer_products,
    "packed_products": _packed_products,
}


def every_family() -> Cases:
    """All of them as one graph."""
    cases = Cases(7)
    for add in FAMILIES.values():
        add(cases)
    return cases
