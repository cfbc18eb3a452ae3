"""Short-time Fourier transforms as convolutions."""

from __future__ import annotations

import numpy as np
import pytest

from whence.api import compile_model
from whence.errors import WhenceError
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.passes.equivalence import difference
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
    assert all(step.symbol for step in model.programs[0].steps)
    assert difference(graph.run([x])[0], model(x)) <= 1e-5


@pytest.mark.parametrize("length", [12, 64])
def test_the_first_and_the_middle_bin_of_real_numbers_are_real(length: int) -> None:
    """Exactly: who looks at signs, or scales by very much, sees the rounding of π."""
    graph = _stft([1, 100], 8, None, length)
    x = np.random.default_rng(0).standard_normal((1, 100)).astype(np.float32)
    made = np.asarray(compile_model(graph, threads=1)(x))
    np.testing.assert_allclose(made, graph.run([x])[0], atol=1e-4)
    np.testing.assert_array_equal(made[:, :, [0, -1], 1], 0)
