"""Layers of images that no cache of a core holds: what is interleaved where one thread runs it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from whence.api import prepare
from whence.codegen.toolchain import Toolchain
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.types import DType


def small_cache(toolchain: Toolchain, size: int = 1 << 14) -> Toolchain:
    """The same compiler, for a machine whose second-level cache is this small."""
    return Toolchain(replace(toolchain.target, l2=size), toolchain.cache)


class Layers:
    """A network of convolutions with random weights."""

    def __init__(self, channels: int, height: int, width: int, images: int = 1) -> None:
        self.build = GraphBuilder("layers")
        self._random = np.random.default_rng(1)
        self.shape = (images, channels, height, width)
        self.x = self.build.input("x", DType.F32, list(self.shape))

    def conv(self, x: Symbol, taken: int, made: int, size: int = 1, **attrs: Any) -> Symbol:
        """With a Relu behind it; of one channel each where it takes 0."""
        shape = (made, taken or 1, size, size)
        weights = self._random.normal(0, (max(taken, 1) * size * size) ** -0.5, shape)
        around = {"pads": (size // 2,) * 4, "group": 1 if taken else made, **attrs}
        constants = (weights, self._random.standard_normal(made))
        operands = (self.build.const(each.astype(np.float32)) for each in constants)
        value = self.build.op("Conv", x, *operands, **around)
        return self.build.op("Relu", value)

    def inverted_residual(self, x: Symbol, narrow: int, wide: int, stride: int = 1) -> Symbol:
        """Expand, go over each channel, and project, as in MobileNetV2."""
        expanded = self.conv(x, narrow, wide)
        filtered = self.conv(expanded, 0, wide, 3, strides=(stride, stride))
        made = self.conv(filtered, wide, narrow)
        return self.build.op("Add", made, x) if stride == 1 else made

    def finish(self, *outputs: Symbol) -> Graph:
        for number, value in enumerate(outputs):
            self.build.output(f"y{number}", value)
        return prepare(self.build.finish())

    def data(self) -> np.ndarray:
        return np.random.default_rng(0).standard_normal(self.shape).astype(np.float32)
