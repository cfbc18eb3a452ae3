"""Small models in real numbers, one for each family of kernels and some of each kind that people
run.

Weights are small multiples of powers of two, counted rather than drawn, so that what passes fold
into them is exact: the text of a kernel must not depend on a generator or on how a machine sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.types import DType


class Model:
    """A graph in the making, in few words."""

    def __init__(self, name: str) -> None:
        self._build = GraphBuilder(name)
        self._inputs = self._outputs = 0

    def input(self, *shape: int, dtype: DType = DType.F32) -> Symbol:
        self._inputs += 1
        return self._build.input(f"x{self._inputs}", dtype, shape)

    def weights(self, *shape: int, dtype: Any = np.float32) -> Symbol:
        return self.const(counted(shape, dtype))

    def const(self, value: Any) -> Symbol:
        return self._build.const(value)

    def ints(self, *values: int) -> Symbol:
        return self.const(np.array(values, np.int64))

    def op(self, op: str, *inputs: Symbol | None, **attrs: Any) -> Symbol:
        return self._build.op(op, *inputs, **attrs)

    def output(self, *values: Symbol) -> None:
        for value in values:
            self._outputs += 1
            self._build.output(f"y{self._outputs}", value)

    def conv(
        self, x: Symbol, out: int, per_group: int, size: int = 3, *, bias: bool = True, **attrs: Any
    ) -> Symbol:
        operands = [self.weights(out, per_group, size, size)]
        operands += [self.weights(out)] if bias else []
        return self.op("Conv", x, *operands, **{"pads": (size // 2,) * 4, **attrs})

    def linear(self, x: Symbol, depth: int, columns: int) -> Symbol:
        product = self.op("MatMul", x, self.weights(depth, columns))
        return self.op("Add", product, self.weights(columns))

    def finish(self) -> Graph:
        return self._build.finish()


def counted(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    """Values that are exact in every type: fractions with a denominator of 64, or whole numbers."""
    numbers = np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.int64)
    spread = (numbers * 37 + 11) % 127 - 63
    real = np.issubdtype(dtype, np.floating)
    values: np.ndarray = (spread / 64 if real else spread).astype(dtype).reshape(shape)
    return values


def _elementwise(m: Model) -> None:
    x, y = m.input(3, 5, 37), m.input(5, 1)
    for op in (
        "Exp",
        "Tanh",
        "Sigmoid",
        "Erf",
        "Sin",
        "Floor",
        "Round",
        "Gelu",
        "HardSwish",
        "Elu",
    ):
        m.output(m.op(op, x))
    for op in ("Log", "Sqrt", "Reciprocal", "Add", "Sub", "Mul", "Div", "Max", "Pow", "PRelu"):
        m.output(m.op(op, x, y) if op not in ("Log", "Sqrt", "Reciprocal") else m.op(op, x))
    m.output(m.op("Where", m.op("Greater", x, y), x, m.op("Softplus", y)))
    whole, other = m.input(3, 35, dtype=DType.I32), m.input(3, 35, dtype=DType.I32)
    for op in ("Add", "Mul", "Div", "Mod", "BitwiseXor"):
        m.output(m.op(op, whole, other))


def _casts(m: Model) -> None:
    x = m.input(3, 41)
    for number in (2, 3, 6, 7, 9, 10, 11, 16):
        m.output(m.op("Cast", m.op("Mul", x, m.const(np.float32(number))), to=number))
    for dtype in (DType.F16, DType.I8, DType.U8, DType.I64, DType.F64):
        m.output(m.op("Cast", m.input(3, 41, dtype=dtype), to=1))
    half = m.input(4, 30, dtype=DType.F16)
    m.output(m.op("Add", half, m.op("Relu", half)))


def _movement(m: Model) -> None:
    x = m.input(3, 8, 13)
    m.output(m.op("Add", m.op("Transpose", x, perm=(2, 0, 1)), m.input(13, 3, 8)))
    m.output(m.op("Transpose", m.input(2, 40, 50), perm=(0, 2, 1)))
    m.output(m.op("Concat", x, m.input(3, 2, 13), axis=1))
    m.output(m.op("Slice", x, m.ints(1, 12), m.ints(8, 0), m.ints(1, 2), m.ints(1, -3)))
    for mode in ("reflect", "edge", "constant"):
        m.output(m.op("Pad", x, m.ints(0, 1, 2, 0, 0, 3), mode=mode))
    m.output(m.op("Relu", m.op("DepthToSpace", m.input(1, 8, 3, 5), blocksize=2)))
    m.output(m.op("Expand", m.input(5, 1), m.ints(3, 5, 7)), m.op("Tile", x, m.ints(1, 2, 2)))
    parts = m.op("Split", m.input(6, 9), m.ints(4, 5), axis=1, n_outputs=2)
    m.output(m.op("Exp", parts[0]), m.op("Neg", parts[1]))


def _generated(m: Model) -> None:
    start, delta = m.input(dtype=DType.I64), m.input(dtype=DType.I64)
    m.output(m.op("Add", m.op("Mul", m.const(np.arange(9)), delta), start))
    m.output(m.op("EyeLike", m.input(4, 6), k=1, dtype=1))
    m.output(m.op("Trilu", m.input(2, 7, 9), m.const(np.array(1)), upper=0))
    m.output(m.op("OneHot", m.input(5, dtype=DType.I64), m.const(np.array(8)), m.input(2)))


def _reductions(m: Model) -> None:
    for op in ("ReduceSum", "ReduceMax", "ReduceL2", "ReduceMean", "ReduceLogSumExp"):
        for axes in ((0,), (2,), (0, 2)):
            m.output(m.op(op, m.input(5, 6, 37), m.ints(*axes), keepdims=0))
    m.output(m.op("ReduceProd", m.input(5, 9, dtype=DType.I32), m.ints(1)))
    m.output(m.op("ArgMax", m.input(5, 40), axis=1), m.op("ArgMin", m.input(5, 40), axis=0))
    m.output(m.op("CumSum", m.input(5, 40), m.const(np.array(1)), reverse=1))


def _top_k(m: Model) -> None:
    for largest, axis in ((1, 1), (0, 0)):
        y = m.op("TopK", m.input(40, 50), m.ints(7), axis=axis, largest=largest, n_outputs=2)
        m.output(y[0], y[1])


def _rows(m: Model) -> None:
    for axis in (0, 1, 2):
        m.output(m.op("Softmax", m.input(4, 9, 33), axis=axis))
    m.output(m.op("LogSoftmax", m.op("Mul", m.input(7, 33), m.const(np.float32(0.5)))))
    x, scale, bias = m.input(5, 6, 37), m.weights(37), m.weights(37)
    m.output(m.op("LayerNormalization", m.op("Add", x, m.input(5, 6, 37)), scale, bias))
    m.output(m.op("RMSNormalization", x, scale), m.op("LpNormalization", x, axis=1))
    image, each = m.input(2, 6, 7, 9), [m.weights(6), m.weights(6)]
    m.output(m.op("InstanceNormalization", image, *each))
    m.output(m.op("GroupNormalization", image, *each, num_groups=3))
    m.output(m.op("LRN", image, size=3, alpha=0.125))


def _products(m: Model) -> None:
    for rows, depth, columns in ((1, 70, 50), (13, 33, 17), (64, 64, 48), (200, 96, 96), (3, 5, 1)):
        m.output(m.op("MatMul", m.input(rows, depth), m.weights(depth, columns)))
        m.output(m.op("MatMul", m.input(rows, depth), m.input(depth, columns)))
    m.output(m.op("MatMul", m.input(3, 9, 20), m.input(3, 20, 11)))
    gemm = m.op("Gemm", m.input(24, 9), m.weights(30, 24), m.weights(30), transA=1, transB=1)
    m.output(m.op("Relu", gemm))
    m.output(m.op("Gelu", m.linear(m.input(50, 64), 64, 80)))
    m.output(m.op("Add", m.linear(m.input(17, 48), 48, 33), m.input(17, 33)))


def _large_products(m: Model) -> None:
    """Large enough for matrix units."""
    m.output(m.op("Relu", m.linear(m.input(256, 512), 512, 768)))
    m.output(m.op("Sigmoid", m.linear(m.input(4, 100, 384), 384, 384)))


def _convolutions(m: Model) -> None:
    x, six = m.input(1, 16, 20, 22), m.const(np.float32(6))
    m.output(m.op("Relu", m.conv(x, 32, 16)), m.op("Clip", m.conv(x, 24, 16, 1), None, six))
    m.output(m.op("LeakyRelu", m.conv(x, 32, 16, 5, strides=(2, 2)), alpha=0.125))
    m.output(m.op("Add", m.conv(x, 16, 16, 3, dilations=(2, 2), pads=(2, 2, 2, 2)), x))
    m.output(m.conv(m.input(1, 3, 32, 32), 16, 3, 7, strides=(2, 2)))
    m.output(m.conv(x, 32, 4, group=4), m.conv(m.input(1, 6, 9, 11), 9, 2, 1, group=3))
    line = m.input(1, 5, 40)
    m.output(m.op("Conv", line, m.weights(7, 5, 3), dilations=(2,)))
    m.output(m.op("Conv", m.input(1, 4, 5, 6, 7), m.weights(8, 4, 3, 3, 3), pads=(1,) * 6))
    m.output(m.op("ConvTranspose", x, m.weights(16, 8, 2, 2), strides=(2, 2)))
    m.output(m.op("ConvTranspose", x, m.weights(16, 8, 3, 3), pads=(1, 1, 1, 1)))


def _winograd(m: Model) -> None:
    for channels, size in ((64, 28), (128, 14)):
        x = m.input(1, channels, size, size)
        y = m.op("Relu", m.conv(x, channels, channels))
        m.output(m.op("Relu", m.op("Add", m.conv(y, channels, channels), x)))


def _large_convolutions(m: Model) -> None:
    """Large enough for matrix units."""
    x = m.input(1, 128, 28, 28)
    m.output(m.op("Relu", m.conv(x, 256, 128, 3, strides=(2, 2))), m.conv(x, 256, 128, 1))


def _depthwise(m: Model) -> None:
    x = m.input(1, 32, 18, 20)
    for size, stride in ((3, 1), (3, 2), (5, 1), (7, 2)):
        y = m.conv(x, 32, 1, size, group=32, strides=(stride, stride))
        m.output(m.op("HardSwish", y))
    m.output(m.op("Relu", m.conv(m.input(1, 19, 9, 9), 19, 1, group=19, bias=False)))


def _pools(m: Model) -> None:
    x = m.input(1, 6, 9, 11)
    window = {"kernel_shape": (3, 2), "strides": (2, 1), "pads": (1, 0, 1, 1)}
    m.output(m.op("MaxPool", x, **window), m.op("AveragePool", x, **window))
    m.output(m.op("AveragePool", x, count_include_pad=1, **window))
    m.output(m.op("GlobalAveragePool", x), m.op("GlobalMaxPool", x))
    y = m.op("Relu", m.conv(x, 16, 6))
    m.output(m.op("MaxPool", y, kernel_shape=(2, 2), strides=(2, 2)))
    m.output(m.op("LpPool", x, kernel_shape=(2, 2)))


def _resample(m: Model) -> None:
    x, scales = m.input(1, 6, 9, 11), m.const(np.array([1, 1, 2.0, 1.5], np.float32))
    for mode in ("nearest", "linear", "cubic"):
        m.output(m.op("Resize", x, None, scales, mode=mode))
    m.output(m.op("Resize", x, None, None, m.ints(1, 6, 4, 5), mode="linear", antialias=1))
    m.output(m.op("GridSample", x, m.input(1, 5, 4, 2)))


def _attention(m: Model) -> None:
    for heads, rows, keys, size in ((2, 33, 33, 32), (2, 5, 7, 8), (2, 1, 40, 16), (4, 64, 96, 64)):
        q, k = m.input(1, heads, rows, size), m.input(1, heads, keys, size)
        v = m.input(1, heads, keys, size)
        m.output(m.op("Attention", q, k, v))
    q, k, v = (m.input(1, 2, 12, 16) for _ in "qkv")
    m.output(m.op("Attention", q, k, v, is_causal=1))
    m.output(m.op("Attention", q, k, v, m.input(12, 12)))
    q, k, v = m.input(1, 4, 9, 16), m.input(1, 2, 20, 16), m.input(1, 2, 20, 16)
    m.output(m.op("Attention", q, k, v))
    turns = m.input(2, 5, 8), m.input(2, 5, 8)
    m.output(m.op("RotaryEmbedding", m.input(2, 3, 5, 16), *turns))


def _recurrent(m: Model) -> None:
    for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        for hidden, directions in ((17, 2), (64, 1)):
            x, rows = m.input(5, 2, 7), gates * hidden
            w, r = m.weights(directions, rows, 7), m.weights(directions, rows, hidden)
            b, start = m.weights(directions, 2 * rows), m.input(directions, 2, hidden)
            states = [start, m.input(directions, 2, hidden)] if op == "LSTM" else [start]
            attrs = {"direction": "bidirectional"} if directions == 2 else {}
            more = {"n_outputs": len(states) + 1, "hidden_size": hidden, **attrs}
            y = m.op(op, x, w, r, b, None, *states, **more)
            m.output(*(y[index] for index in range(len(states) + 1)))


def _scatter(m: Model) -> None:
    where = m.input(3, 2, dtype=DType.I64)
    for reduction in ("none", "add", "max"):
        m.output(m.op("ScatterND", m.input(5, 6), where, m.input(3), reduction=reduction))
    order = m.input(2, 3, dtype=DType.I64)
    m.output(m.op("ScatterElements", m.input(4, 3), order, m.input(2, 3), axis=0))
    m.output(m.op("GatherND", m.input(5, 6), where))
    m.output(m.op("GatherElements", m.input(4, 3), order, axis=0))
    m.output(m.op("Gather", m.input(3, 8, 13), m.input(2, 2, dtype=DType.I64), axis=1))
    m.output(m.op("Relu", m.op("Gather", m.weights(50, 24), m.input(7, dtype=DType.I64))))


def _classifier(m: Model) -> None:
    x = m.conv(m.input(1, 3, 32, 32), 16, 3)
    norm = m.weights(16), m.weights(16), m.weights(16), m.const(np.full(16, 1 - 2.0**-10, "f4"))
    x = m.op("Relu", m.op("BatchNormalization", x, *norm, epsilon=2.0**-10))
    x = m.op("MaxPool", x, kernel_shape=(2, 2), strides=(2, 2))
    x = m.op("Relu", m.conv(x, 32, 16, strides=(2, 2)))
    x = m.op("Flatten", m.op("GlobalAveragePool", x))
    m.output(m.op("Softmax", m.linear(x, 32, 10)))


def _mobile(m: Model) -> None:
    x = m.op("HardSwish", m.conv(m.input(1, 3, 24, 24), 16, 3, strides=(2, 2)))
    y = m.op("HardSwish", m.conv(x, 16, 1, group=16))
    gate = m.op("Relu", m.conv(m.op("GlobalAveragePool", y), 8, 16, 1))
    y = m.op("Mul", y, m.op("HardSigmoid", m.conv(gate, 16, 8, 1)))
    m.output(m.op("Add", m.conv(y, 16, 16, 1), x))


def _segmentation(m: Model) -> None:
    x = m.op("Relu", m.conv(m.input(1, 3, 16, 16), 8, 3))
    low = m.op("Relu", m.conv(x, 16, 8, strides=(2, 2)))
    up = m.op("ConvTranspose", low, m.weights(16, 8, 2, 2), m.weights(8), strides=(2, 2))
    scales = m.const(np.array([1, 1, 2, 2], np.float32))
    large = m.op("Resize", low, None, scales, mode="linear")
    joined = m.op("Concat", x, up, large, axis=1)
    m.output(m.op("Sigmoid", m.conv(joined, 1, 32, 1)))


def _encoder(m: Model) -> None:
    x, heads = m.input(1, 12, 48), []
    for _ in range(3):
        part = m.op("Reshape", m.linear(x, 48, 48), m.ints(1, 12, 3, 16))
        heads.append(m.op("Transpose", part, perm=(0, 2, 1, 3)))
    scores = m.op("MatMul", heads[0], m.op("Transpose", heads[1], perm=(0, 1, 3, 2)))
    weights = m.op("Softmax", m.op("Mul", scores, m.const(np.float32(0.25))))
    mixed = m.op("Transpose", m.op("MatMul", weights, heads[2]), perm=(0, 2, 1, 3))
    x = m.op("Add", x, m.linear(m.op("Reshape", mixed, m.ints(1, 12, 48)), 48, 48))
    x = m.op("LayerNormalization", x, m.weights(48), m.weights(48))
    hidden = m.op("Gelu", m.linear(x, 48, 96))
    m.output(m.op("Add", x, m.linear(hidden, 96, 48)))


REAL: Mapping[str, Callable[[Model], None]] = {
    "attention": _attention,
    "casts": _casts,
    "classifier": _classifier,
    "convolutions": _convolutions,
    "depthwise": _depthwise,
    "elementwise": _elementwise,
    "encoder": _encoder,
    "generated": _generated,
    "large_convolutions": _large_convolutions,
    "large_products": _large_products,
    "mobile": _mobile,
    "movement": _movement,
    "pools": _pools,
    "products": _products,
    "recurrent": _recurrent,
    "reductions": _reductions,
    "resample": _resample,
    "rows": _rows,
    "scatter": _scatter,
    "segmentation": _segmentation,
    "top_k": _top_k,
    "winograd": _winograd,
}
