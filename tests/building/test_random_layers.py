"""Random networks of layers, interleaved and one after the other: the same to the last bit."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np

from tests.building.layers import Layers, small_cache
from tests.cpu_backend import cpu_backend
from whence.backends.cpu.generator import CpuGenerator
from whence.backends.cpu.instance import Instance
from whence.building.build import build, lower_graph
from whence.graph import Graph
from whence.graph.builder import Symbol
from whence.runtime.engine import Engine

SEEDS = range(276, 293)
"""A third of their networks have chains of three layers; in one of them, a layer reads the last row
of what another one makes.
"""


class Image(NamedTuple):
    value: Symbol
    channels: int
    height: int
    width: int


class Network:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        height, width = self.random.choice([(40, 40), (40, 29), (33, 40), (1, 900), (900, 1)])
        self.layers = Layers(16, height, width)
        self.images = [Image(self.layers.x, 16, height, width)]

    def grow(self, layers: int) -> Graph:
        steps = (*[self.convolve] * 6, self.pool, self.add, *[self.add_row] * 3, self.join)
        while len(self.images) <= layers:
            recent = self.random.random() < 0.9
            x = self.images[-1] if recent else self.random.choice(self.images)
            made = self.random.choice(steps)(x)
            if made is not None:
                self.images.append(made)
        middle = [each.value for each in self.images[1:-1] if self.random.random() < 0.1]
        return self.layers.finish(self.images[-1].value, *middle)

    def convolve(self, x: Image) -> Image | None:
        taken = self.random.choice([0, x.channels])
        # More weights than these are not read again for every slice.
        taps, dilation = self.random.choice([(1, 1), (2, 1)] if taken else [(3, 1), (3, 2), (5, 1)])
        made = self.random.choice([16, 16, 16, 32]) if taken else x.channels
        geometry = self._geometry(x, taps, dilation)
        if geometry is None:
            return None
        (height, width), attrs = geometry
        attrs["dilations"] = (dilation, dilation)
        return Image(self.layers.conv(x.value, taken, made, taps, **attrs), made, height, width)

    def pool(self, x: Image) -> Image | None:
        geometry = self._geometry(x, 2, 1)
        if geometry is None:
            return None
        (height, width), attrs = geometry
        op = self.random.choice(["MaxPool", "AveragePool"])
        attrs |= {"kernel_shape": (2, 2)}
        if op == "AveragePool":
            attrs["count_include_pad"] = self.random.randint(0, 1)
        return Image(self.layers.build.op(op, x.value, **attrs), x.channels, height, width)

    def add(self, x: Image) -> Image:
        other = self.random.choice([each for each in self.images if each[1:] == x[1:]])
        return x._replace(value=self.layers.build.op("Add", x.value, other.value))

    def add_row(self, x: Image) -> Image:
        """The last row of a value, to every row."""
        across = [each for each in self.images if (each[1], each[3]) == (x[1], x[3])]
        other = self.random.choice(across[-3:])
        at = other.height - 1
        bounds = (self.layers.build.const(np.array([each])) for each in (at, at + 1, 2))
        row = self.layers.build.op("Slice", other.value, *bounds)
        return x._replace(value=self.layers.build.op("Add", x.value, row))

    def join(self, x: Image) -> Image | None:
        other = self.random.choice([each for each in self.images if each[2:] == x[2:]])
        channels = x.channels + other.channels
        value = self.layers.build.op("Concat", x.value, other.value, axis=1)
        return x._replace(value=value, channels=channels) if channels <= 64 else None

    def _geometry(
        self, x: Image, taps: int, dilation: int
    ) -> tuple[tuple[int, int], dict[str, Any]] | None:
        """Sizes of what a window goes over, and how it goes."""
        steps = self.random.choice([(1, 1)] * 4 + [(2, 1), (2, 2)])
        reach = (taps - 1) * dilation
        pads = [self.random.choice([reach // 2, 0, min(1, taps - 1)]) for _ in range(4)]
        rooms = [size + pads[axis] + pads[axis + 2] - reach - 1 for axis, size in enumerate(x[2:])]
        height, width = (room // step + 1 for room, step in zip(rooms, steps, strict=True))
        if min(rooms) < 0:
            return None
        return (height, width), {"pads": tuple(pads), "strides": steps}


def test_results_are_those_of_one_layer_after_the_other(engine: Engine) -> None:
    alone = Engine(threads=1)
    found = 0
    for seed in SEEDS:
        network = Network(seed)
        graph, x = network.grow(5), network.layers.data()
        cache = network.random.choice([1 << 15, 1 << 16])
        generator = CpuGenerator(small_cache(cpu_backend(alone).toolchain, cache))
        chains = lower_graph(graph, generator).chains
        if all(chain.last - chain.first < 2 for chain in chains):
            continue
        found += 1
        program = build(graph, generator)
        instance = Instance(program, cpu_backend(alone))
        # What a run reads too early is what the run before it left there.
        instance.run([np.full_like(x, np.nan)])
        interleaved = instance.run([x])
        in_order = Instance(program, cpu_backend(engine)).run([x])
        for made, same, expected in zip(interleaved, in_order, graph.run([x]), strict=True):
            np.testing.assert_array_equal(made, same, err_msg=f"network {seed}")
            np.testing.assert_allclose(made, np.asarray(expected), rtol=1e-3, atol=1e-3)
    assert found
