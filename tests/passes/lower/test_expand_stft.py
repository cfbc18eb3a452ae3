"""Short-time Fourier transforms as convolutions."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.rewriting import is_left_alone, operators, rewrite
from whence.api import compile_model
from whence.errors import WhenceError
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.passes.equivalence import difference
from whence.passes.lower.expand_stft import ExpandStft
from whence.types import DType


def _stft(
    shape: list[int],
    step: int,
    window: int | None,
    length: int | None = None,
    *,
    dtype: DType = DType.F32,
    onesided: int = 1,
) -> Graph:
    build = GraphBuilder()
    x = build.input("x", dtype, shape)
    hann = None if window is None else build.const(np.hanning(window).astype(dtype.numpy))
    frame = None if length is None else build.const(np.int64(length))
    build.output(
        "y",
        build.op(
            "STFT", x, build.const(np.int64(step)), hann, frame, onesided=onesided, name="spectrum"
        ),
    )
    return build.finish()


@pytest.mark.parametrize(
    ("shape", "step", "window", "length"),
    [
        ([2, 400], 50, 64, None),
        ([1, 300, 1], 7, 33, 33),
        ([1, 128], 16, None, 32),
        ([1, 40], 1, None, None),
    ],
)
@pytest.mark.parametrize("onesided", [0, 1])
def test_a_transform_is_a_convolution(
    shape: list[int], step: int, window: int | None, length: int | None, onesided: int
) -> None:
    graph = _stft(shape, step, window, length, onesided=onesided)
    rewrite(graph, ExpandStft())
    assert operators(graph) == ["Reshape", "Conv", "Transpose", "Reshape"]
    assert all(node.origin == {1} for node in graph if node.op not in {"Input", "Const", "Output"})


def test_what_stays() -> None:
    assert is_left_alone(_stft([1, 100, 2], 10, 20), ExpandStft())
    assert is_left_alone(_stft([1, 100], 10, 20, dtype=DType.F64), ExpandStft())


def test_a_window_that_is_no_list_is_refused() -> None:
    build = GraphBuilder()
    x, step = build.input("x", DType.F32, [1, 100]), build.const(np.int64(5))
    build.output("y", build.op("STFT", x, step, build.const(np.float32(1)), name="spectrum"))
    with pytest.raises(WhenceError, match="spectrum"):
        compile_model(build.finish(), threads=1)(np.ones((1, 100), np.float32))


def test_compiled() -> None:
    graph = _stft([1, 4000], 160, 512)
    x = np.random.default_rng(0).standard_normal((1, 4000)).astype(np.float32)
    model = compile_model(graph, threads=2)
    assert model.programs[0].native_steps == len(model.programs[0].steps)
    assert difference(graph.run([x])[0], model(x)) <= 1e-5
