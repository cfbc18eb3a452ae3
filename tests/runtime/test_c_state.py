"""State in exported models: each stream has its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.runtime.stateful import GRAPHS, accumulator, calls, codes, interpreted
from tests.runtime.test_c_api import DEFAULT, INVALID_ARGUMENTS, PROFILING, SUCCESS, Model
from whence.graph import Graph
from whence.runtime.engine import Engine


@pytest.mark.parametrize("make", GRAPHS.values(), ids=GRAPHS.keys())
def test_executions_of_a_stream_equal_the_interpreter(
    make: Callable[[], Graph], engine: Engine, tmp_path: Path
) -> None:
    graph = make()
    model = Model(graph, engine, tmp_path)
    inputs = calls(graph, 50)
    stream = model.stream(PROFILING)
    for given, expected in zip(inputs, interpreted(graph, inputs), strict=True):
        status, made = model.execute(stream, given)
        assert status == SUCCESS
        assert model.code.whence_stream_wait(stream) == SUCCESS
        for one, other in zip(made, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-4)


def test_streams_do_not_see_each_other_and_can_be_reset(engine: Engine, tmp_path: Path) -> None:
    model = Model(accumulator(), engine, tmp_path)
    one, other = model.stream(DEFAULT), model.stream(DEFAULT)
    x = np.ones(4, np.float32)

    def step(stream: object) -> float:
        status, (y,) = model.execute(stream, [x])  # type: ignore[arg-type]
        assert status == SUCCESS
        assert model.code.whence_stream_wait(stream) == SUCCESS
        return float(y[0])

    assert [step(one), step(one), step(other), step(one)] == [1, 2, 1, 3]
    assert model.code.whence_reset_state(one) == SUCCESS
    assert [step(one), step(other)] == [1, 2]
    assert model.code.whence_reset_state(None) == INVALID_ARGUMENTS


def test_the_header_lists_the_variables(engine: Engine, tmp_path: Path) -> None:
    assert "seen  i8[3], 3 bytes" in Model(codes(), engine, tmp_path).header.read_text()


def test_a_reset_comes_after_what_was_submitted_before_it(engine: Engine, tmp_path: Path) -> None:
    model = Model(accumulator(), engine, tmp_path)
    stream = model.stream(DEFAULT)
    x = np.ones(4, np.float32)
    before = [model.execute(stream, [x]) for _ in range(50)]
    assert model.code.whence_reset_state(stream) == SUCCESS
    after = [model.execute(stream, [x]) for _ in range(50)]
    assert model.code.whence_stream_wait(stream) == SUCCESS
    for made in (before, after):
        assert [float(y[0]) for _, (y,) in made] == list(range(1, 51))
