"""Several runs at once on one model."""

from __future__ import annotations

import itertools
import threading
import time

import numpy as np
import pytest

import whence
from whence.errors import InputError
from whence.graph.builder import GraphBuilder
from whence.runtime.run_many import run_in_order
from whence.types import DType

WEIGHTS = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)


def _model() -> whence.Executable:
    build = GraphBuilder("m")
    x = build.input("x", DType.F32, [32, 64])
    build.output("y", build.op("Softmax", build.op("MatMul", x, build.const(WEIGHTS))))
    return whence.compile(build.finish(), threads=1)


def test_every_call_gets_its_own_outputs_in_order() -> None:
    model = _model()
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal((32, 64)).astype(np.float32) for _ in range(40)]
    expected = [model(x) for x in inputs]
    for calls in (inputs, [(x,) for x in inputs], [{"x": x} for x in inputs]):
        made = list(model.run_many(calls, streams=4))
        for one, other in zip(made, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_calls_are_drawn_as_they_are_needed() -> None:
    x = np.ones((32, 64), np.float32)
    drawn = itertools.count()
    results = _model().run_many((x + next(drawn) for _ in itertools.repeat(None)), streams=2)
    for _ in range(5):
        next(results)
    assert next(drawn) < 20


def test_as_many_run_at_a_time_as_there_are_streams() -> None:
    meeting = threading.Barrier(3, timeout=30)

    def run(number: int) -> int:
        meeting.wait()
        return number

    assert list(run_in_order(run, range(6), 3)) == list(range(6))


def test_the_first_failure_is_raised_and_the_rest_is_given_up() -> None:
    done = []

    def run(number: int) -> int:
        if number == 2:
            raise ValueError("no")
        time.sleep(0.01)
        done.append(number)
        return number

    with pytest.raises(ValueError, match="no"):
        list(run_in_order(run, range(1000), 2))
    assert len(done) < 50


def test_what_makes_no_sense() -> None:
    with pytest.raises(InputError, match="-1 streams make no sense"):
        _model().run_many([], streams=-1)
