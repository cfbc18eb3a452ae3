"""Batch normalisation goes into the weights beside it, and nowhere else."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.passes.rewriting import operators, rewrite
from whence.graph.builder import GraphBuilder, Symbol
from whence.passes.fold.fold_batch_norm import FoldBatchNorm
from whence.types import DType

RNG = np.random.default_rng(7)


def weights(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def batch_norm(
    build: GraphBuilder, x: Symbol, channels: int, dtype: Any = np.float32, **attrs: Any
) -> Symbol:
    scale, bias, mean = (build.const(weights(channels, dtype=dtype)) for _ in range(3))
    variance = build.const((np.abs(weights(channels)) + 0.5).astype(dtype))
    return build.op("BatchNormalization", x, scale, bias, mean, variance, name="bn", **attrs)


@given(data=st.data())
def test_random_convolutions(data: st.DataObject) -> None:
    """Any rank, grouping and stride; before or after; the outputs stay and nothing is left of the
    normalisation.
    """
    spatial = data.draw(st.integers(1, 3), "spatial axes")
    group = data.draw(st.integers(1, 3), "group")
    c_in, c_out = (
        group * data.draw(st.integers(1, 3), "inputs"),
        group * data.draw(st.integers(1, 3), "outputs"),
    )
    transposed, first = data.draw(st.booleans(), "transposed"), data.draw(st.booleans(), "before")
    kernel = data.draw(st.tuples(*[st.integers(1, 3)] * spatial), "kernel")
    attrs: dict[str, Any] = {
        "group": group,
        "strides": data.draw(st.tuples(*[st.integers(1, 2)] * spatial), "strides"),
    }
    if not first and data.draw(st.booleans(), "padded"):
        attrs["pads"] = tuple(min(size - 1, 1) for size in kernel) * 2
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2, c_in, *[5] * spatial])
    w = (
        weights(c_in, c_out // group, *kernel)
        if transposed
        else weights(c_out, c_in // group, *kernel)
    )
    inputs = [
        build.const(w),
        *([build.const(weights(c_out))] if data.draw(st.booleans(), "bias") else []),
    ]
    op = "ConvTranspose" if transposed else "Conv"
    y = (
        build.op(op, batch_norm(build, x, c_in), *inputs, **attrs)
        if first
        else batch_norm(build, build.op(op, x, *inputs, **attrs), c_out)
    )
    build.output("y", y)
    graph = build.finish()
    rewrite(graph, FoldBatchNorm())
    assert operators(graph) == (["BatchNormalization", op] if first and transposed else [op])
