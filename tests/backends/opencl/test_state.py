"""Models with state on a device: variables stay there between runs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import whence
from tests.runtime.stateful import GRAPHS, accumulator, calls, interpreted, unsized, window
from whence.backends.opencl.program import LaunchStep, OpenClProgram
from whence.graph import Graph
from whence.runtime.engine import Engine


@pytest.mark.parametrize("make", [*GRAPHS.values(), unsized], ids=[*GRAPHS.keys(), "unsized"])
def test_calls_equal_the_interpreter(make: Callable[[], Graph], engine: Engine) -> None:
    graph = make()
    inputs = calls(graph, 20)
    model = whence.compile(graph, engine=engine)
    for given, expected in zip(inputs, interpreted(graph, inputs), strict=True):
        made = model(*given)
        outputs = made if isinstance(made, tuple) else (made,)
        for one, other in zip(outputs, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-4)


def test_reset_and_clone(engine: Engine) -> None:
    model = whence.compile(accumulator(), engine=engine)
    twin = model.clone()
    x = np.ones(4, np.float32)
    assert [float(model(x)[0]) for _ in range(3)] == [1, 2, 3]
    assert float(twin(x)[0]) == 1
    model.reset()
    assert float(model(x)[0]) == 1
    np.testing.assert_array_equal(model.state["total"], x)


def test_the_device_does_it_all(engine: Engine) -> None:
    (program,) = whence.compile(window(), engine=engine).programs
    assert isinstance(program, OpenClProgram)
    assert all(isinstance(action, LaunchStep) for action in program.sequence)
