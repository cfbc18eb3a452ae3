"""Models of windows over images whose batch, height and width are open."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.types import DType, TensorType

Shape = tuple[int, int, int]
"""Images, height, width."""
SHAPES: tuple[Shape, ...] = (
    (2, 20, 20), (3, 7, 9), (2, 2, 2), (2, 33, 5), (4, 3, 40), (2, 16, 17), (5, 2, 13),
    (2, 11, 100), (2, 64, 3), (3, 6, 6), (2, 12, 24), (2, 13, 25), (7, 4, 4), (2, 5, 61),
    (2, 31, 31), (2, 32, 32), (3, 9, 2), (2, 18, 7), (2, 7, 18), (2, 2, 50),
)  # fmt: skip
"""Wide and narrow ones, narrower than a tile, odd and even."""


class _Model:
    """A graph in the making, with weights of about the same size for any kernel."""

    def __init__(self, channels: int) -> None:
        self.build = GraphBuilder("windows")
        self.x = self.build.input("x", DType.F32, ["batch", channels, "height", "width"])
        self._dice = np.random.default_rng(0)
        self._outputs = 0

    def weights(self, *shape: int) -> Any:
        values = self._dice.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        return self.build.const(values.astype(np.float32))

    def conv(self, x: Any, made: int, taken: int, size: int = 3, **attrs: Any) -> Any:
        reach = (size - 1) * attrs.get("dilations", (1, 1))[0] // 2
        attrs = {"kernel_shape": (size, size), "pads": (reach,) * 4, **attrs}
        operands = self.weights(made, taken, size, size), self.weights(made)
        return self.build.op("Relu", self.build.op("Conv", x, *operands, **attrs))

    def output(self, y: Any) -> None:
        self._outputs += 1
        self.build.output(f"y{self._outputs}", y)

    def finish(self) -> Graph:
        return self.build.finish()


def convolutions() -> Graph:
    m = _Model(16)
    m.output(m.build.op("Add", m.conv(m.x, 16, 16), m.x))
    m.output(m.conv(m.x, 24, 16, 1))
    m.output(m.conv(m.x, 24, 16, strides=(2, 2)))
    m.output(m.conv(m.x, 16, 16, 1, strides=(2, 2)))
    m.output(m.conv(m.x, 16, 16, 5, pads=(2, 2, 1, 3)))
    m.output(m.conv(m.x, 16, 16, dilations=(2, 2)))
    m.output(m.conv(m.conv(m.x, 32, 16, 1), 32, 16, group=2))
    return m.finish()


def depthwise() -> Graph:
    m = _Model(3)
    x = m.conv(m.x, 32, 3)
    m.output(m.conv(x, 32, 1, group=32))
    gate = m.build.op("Sigmoid", m.conv(m.build.op("GlobalAveragePool", x), 32, 32, 1))
    m.output(m.build.op("Mul", m.conv(x, 32, 1, 5, group=32), gate))
    m.output(m.conv(m.conv(x, 32, 1, strides=(2, 2), group=32), 16, 32, 1))
    return m.finish()


def transformed() -> Graph:
    """So many channels that transforming tiles is worth it."""
    m = _Model(128)
    m.output(m.conv(m.x, 128, 128))
    return m.finish()


def pools() -> Graph:
    m = _Model(16)
    x = m.conv(m.x, 16, 16, 1)
    pool, two, around = m.build.op, (2, 2), (1, 1, 1, 1)
    m.output(pool("MaxPool", x, kernel_shape=(3, 3), strides=two, pads=around))
    m.output(pool("MaxPool", x, kernel_shape=(5, 5), pads=(2, 2, 2, 2)))
    m.output(pool("MaxPool", x, kernel_shape=two, strides=two, ceil_mode=1))
    m.output(pool("AveragePool", x, kernel_shape=(3, 3), pads=around))
    attrs: dict[str, Any] = {"kernel_shape": (3, 3), "strides": two, "pads": around}
    m.output(pool("AveragePool", x, count_include_pad=1, **attrs))
    m.output(m.conv(pool("AveragePool", x, kernel_shape=two, strides=two), 16, 16, 1))
    return m.finish()


def plain() -> Graph:
    """What has no kernels on blocks of channels: few channels, transposed, other types."""
    m = _Model(5)
    m.output(m.conv(m.x, 1, 5, 1))
    two, around = (2, 2), (1, 1, 1, 1)
    m.output(m.build.op("ConvTranspose", m.x, m.weights(5, 3, 2, 2), strides=two))
    m.output(m.build.op("ConvTranspose", m.x, m.weights(5, 3, 3, 3), strides=two, pads=around))
    double = m.build.op("Cast", m.x, to=11)
    m.output(m.build.op("MaxPool", double, kernel_shape=(3, 3), strides=two, pads=around))
    m.output(m.build.op("AveragePool", m.x, kernel_shape=(3, 2), pads=(1, 0, 1, 1)))
    m.output(m.build.op("LpPool", m.x, kernel_shape=(2, 2), strides=two))
    rows = m.build.op("ReduceMean", m.x, m.build.const(np.array([2])), keepdims=0)
    m.output(m.build.op("Conv", rows, m.weights(7, 5, 3), pads=(1, 1), kernel_shape=(3,)))
    return m.finish()


def resized() -> Graph:
    m = _Model(16)
    x, build = m.conv(m.x, 16, 16, strides=(2, 2)), m.build
    scales = {each: build.const(np.array([1, 1, each, each], np.float32)) for each in (2, 0.5, 1.5)}
    m.output(build.op("Resize", x, None, scales[2], mode="nearest"))
    attrs: dict[str, Any] = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}
    m.output(build.op("Resize", x, None, scales[1.5], nearest_mode="floor", **attrs))
    m.output(build.op("Resize", x, None, scales[2], mode="linear"))
    sizes = build.op("Shape", m.x)
    corners: dict[str, Any] = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    spatial = build.op("Slice", sizes, build.const(np.array([2])), build.const(np.array([4])))
    both = build.op("Concat", build.op("Shape", x, end=2), spatial, axis=0)
    m.output(build.op("Add", build.op("Resize", x, None, None, both, **corners), m.x))
    m.output(build.op("Resize", m.x, None, None, both, mode="linear"))
    m.output(build.op("Resize", m.x, None, scales[0.5], mode="linear"))
    return m.finish()


def quantised() -> Graph:
    """Convolutions and pools of codes, as a file has them: real operators between codes."""
    m = _Model(16)
    build, scale, zero = m.build, np.float32(2**-5), np.uint8(120)

    def real(codes: Any, factor: float, shift: Any) -> Any:
        given = build.const(np.float32(factor)), build.const(shift)
        return build.op("DequantizeLinear", codes, *given)

    def coded(x: Any) -> Any:
        codes = build.op("QuantizeLinear", x, build.const(scale), build.const(zero))
        return real(codes, float(scale), zero)

    def conv(x: Any, *shape: int, **attrs: Any) -> Any:
        codes = np.random.default_rng(0).integers(-60, 60, shape).astype(np.int8)
        size = shape[-1]
        attrs = {"kernel_shape": (size, size), "pads": (size // 2,) * 4, **attrs}
        factor = 2.0**-6 / np.sqrt(np.prod(shape[1:]))
        return coded(build.op("Conv", x, real(build.const(codes), factor, np.int8(0)), **attrs))

    x = conv(coded(m.x), 24, 16, 3, 3)
    m.output(x)
    m.output(conv(x, 16, 24, 1, 1))
    m.output(conv(x, 24, 1, 3, 3, group=24))
    m.output(conv(x, 24, 1, 5, 5, group=24, strides=(2, 2)))
    around: dict[str, Any] = {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}
    m.output(coded(build.op("MaxPool", x, **around)))
    return m.finish()


def selections() -> Graph:
    """Places of the largest elements along axes that are open."""
    m = _Model(5)
    build = m.build
    m.output(build.op("ArgMax", m.x, axis=3, keepdims=0))
    m.output(build.op("ArgMin", m.x, axis=2, select_last_index=1))
    m.output(build.op("ArgMax", m.x, axis=1))
    best = build.op("TopK", m.x, build.const(np.array([2])), axis=3, n_outputs=2)
    m.output(best[0])
    m.output(best[1])
    first = build.const(np.array([[0, 1], [1, 4], [1, 0]]))
    rows = build.op("GatherND", m.x, build.const(np.array([[1, 2], [0, 4], [1, 1]])))
    m.output(build.op("ScatterND", m.x, first, rows))
    places = build.op("ArgMax", m.x, axis=2)
    largest = build.op("ReduceMax", m.x, build.const(np.array([2])))
    m.output(build.op("ScatterElements", m.x, places, build.op("Neg", largest), axis=2))
    return m.finish()


def integer_products() -> Graph:
    """A row of codes for each pixel, with a scale that is found at run time. Weights have seven
    bits: more overflow in ONNX Runtime on processors without dot products of bytes.
    """
    m = _Model(16)
    build, dice = m.build, np.random.default_rng(1)
    x = build.op("Transpose", m.x, perm=(0, 2, 3, 1))
    codes = build.op("DynamicQuantizeLinear", x, n_outputs=3)
    weights = build.const(dice.integers(-60, 60, (16, 40)).astype(np.int8))
    sums = build.op("MatMulInteger", codes[0], weights, codes[2], build.const(np.int8(0)))
    m.output(build.op("Mul", build.op("Cast", sums, to=1), codes[1]))
    m.output(build.op("MatMulInteger", codes[0], weights, codes[2]))
    return m.finish()


MODELS: Mapping[str, Callable[[], Graph]] = {
    "convolutions": convolutions,
    "depthwise": depthwise,
    "transformed": transformed,
    "pools": pools,
    "plain": plain,
    "resized": resized,
    "quantised": quantised,
    "integer products": integer_products,
    "selections": selections,
}


def tolerance(name: str) -> float:
    """How far results of a model may be off. Rounding to codes, a tie may go either way."""
    return 2.0**-5 if name == "quantised" else 1e-4


def image(graph: Graph, shape: Shape) -> np.ndarray:
    """A random input of this shape."""
    (given,) = graph.inputs
    assert isinstance(given.type, TensorType)
    assert given.type.shape is not None
    channels = given.type.shape[1]
    assert isinstance(channels, int)
    batch, height, width = shape
    return np.random.default_rng(0).standard_normal((batch, channels, height, width), np.float32)
