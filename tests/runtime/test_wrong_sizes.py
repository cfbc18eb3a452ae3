"""Calls with sizes that a model does not work with name the input, the dimension and both sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from whence import api
from whence.errors import InputError, WhenceError
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.runtime.engine import Engine
from whence.types import DType


def positions(limit: int = 8) -> Graph:
    """Embeddings of positions, cut off at the length of the sequence: there are 8."""
    build = GraphBuilder("positions")
    x = build.input("x", DType.F32, ["batch", "sequence", 4])
    table = build.const(np.arange(limit * 4, dtype=np.float32).reshape(1, limit, 4))
    length = build.op("Shape", x, start=1, end=2)
    zero, one = (build.const(np.array([value], np.int64)) for value in (0, 1))
    cut = build.op("Slice", table, zero, length, one, one, name="cut")
    build.output("y", build.op("Add", x, cut, name="embedded"))
    return build.finish()


def looked_up() -> Graph:
    """The same by indices that are counted up."""
    build = GraphBuilder("looked_up")
    x = build.input("x", DType.F32, ["batch", "sequence", 4])
    table = build.const(np.arange(8 * 4, dtype=np.float32).reshape(8, 4))
    length = build.op("Shape", x, start=1, end=2)
    scalar = build.op("Squeeze", length)
    zero, one = (build.const(np.array(value, np.int64)) for value in (0, 1))
    places = build.op("Range", zero, scalar, one)
    build.output("y", build.op("Add", x, build.op("Gather", table, places, name="look")))
    return build.finish()


def given(batch: int, sequence: int) -> np.ndarray:
    return np.ones((batch, sequence, 4), np.float32)


def test_beyond_a_maximum_when_it_is_compiled(engine: Engine) -> None:
    model = api.compile_model(positions(), engine=engine)
    model(given(2, 8))
    for batch in (1, 2):
        with pytest.raises(
            InputError,
            match=r"input 'x' has size 9 in dimension 'sequence', and the model works with at most 8:",
        ):
            model(given(batch, 9))
    # And the model is as it was.
    np.testing.assert_array_equal(model(given(2, 5))[0, 4], 1 + np.arange(16, 20))


def test_beyond_a_maximum_when_it_runs(engine: Engine) -> None:
    model = api.compile_model(looked_up(), engine=engine)
    model(given(2, 8))
    with pytest.raises(InputError, match=r"'x' has size 9 in dimension 'sequence'.*'look'.*only 8"):
        model(given(2, 9))
    model(given(2, 7))


def test_the_same_of_a_file_and_of_sizes_that_are_fixed(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "positions.onnx"
    api.save(positions(), path)
    model = api.compile_model(path, engine=engine)
    wrong = r"input 'x' has size 9 in dimension 'sequence', and the model works with at most 8:"
    with pytest.raises(InputError, match=wrong):
        model(given(2, 9))
    with pytest.raises(InputError, match=wrong):
        api.compile_model(path, engine=engine, dims={"batch": 2, "sequence": 9})


@pytest.mark.parametrize("size", [-1, -5])
def test_negative_sizes(tmp_path: Path, size: int) -> None:
    path = tmp_path / "positions.onnx"
    api.save(positions(), path)
    with pytest.raises(InputError, match=f"dimension 'sequence' is given as {size}"):
        api.compile_model(path, dims={"sequence": size})
    with pytest.raises(
        InputError, match=r"is given for input 'x', which is f32\[batch,sequence,4\]"
    ):
        api.compile_model(path, shapes={"x": (2, size, 4)})


def test_zero_where_the_model_cannot_work_with_it(engine: Engine) -> None:
    build = GraphBuilder("most")
    x = build.input("x", DType.F32, ["batch", "sequence"])
    build.output("y", build.op("ArgMax", x, axis=1, name="most"))
    model = api.compile_model(build.finish(), engine=engine)
    with pytest.raises(WhenceError, match=r"dimension 'sequence' of input 'x' has size 0"):
        model(np.ones((2, 0), np.float32))
