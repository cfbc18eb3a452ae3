"""Long sums over open sizes are as exact as those over numbers."""

from __future__ import annotations

import numpy as np
import pytest

import whence
from whence.graph.builder import GraphBuilder
from whence.types import DType


@pytest.mark.parametrize("axes", [(2, 3), (0, 2, 3)])
def test_a_mean_over_an_image_of_open_size(axes: tuple[int, ...]) -> None:
    build = GraphBuilder("mean")
    weights = np.random.default_rng(0).uniform(0.5, 1, (32, 3, 1, 1)).astype(np.float32)
    x = build.input("x", DType.F32, ["batch", 3, "height", "width"])
    made = build.op("Conv", x, build.const(weights), kernel_shape=(1, 1))
    build.output("y", build.op("ReduceMean", made, build.const(np.array(axes)), keepdims=1))
    model = whence.compile(build.finish())
    for shape in ((2, 3, 320, 288), (1, 3, 161, 7), (3, 3, 2, 400)):
        image = np.random.default_rng(1).uniform(0.5, 1, shape).astype(np.float32)
        every = np.einsum("nchw,oc->nohw", image.astype(np.float64), weights[:, :, 0, 0])
        exact = every.mean(axes, keepdims=True)
        assert np.abs(model(image) / exact - 1).max() < 2e-6
