"""An index that is outside its axis ends the run with an error that names the operator; nothing
else is read or written in its place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from whence.api import compile_model
from whence.errors import ModelError
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.ops.definition import Attr
from whence.runtime.engine import Engine
from whence.types import DType

DATA = np.arange(15, dtype=np.float32).reshape(5, 3) + 100
UPDATES = np.ones((2, 3), np.float32)


def _graph(op: str, dtype: DType = DType.I64, *, fused: bool = False) -> Graph:
    build = GraphBuilder()
    shape = (2, 1) if op.endswith("ND") else (2, 3)
    x, i = build.input("x", DType.F32, [5, 3]), build.input("i", dtype, shape)
    updates = [build.const(UPDATES)] if op.startswith("Scatter") else []
    if fused:
        # Computed on the way, in the same kernel.
        i = build.op("Sub", build.op("Add", i, build.const(np.array(3))), build.const(np.array(3)))
    y = build.op(op, x, i, *updates, name="looked")
    build.output("y", build.op("Relu", y) if fused else y)
    return build.finish()


OPS = ["Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"]


@pytest.mark.parametrize("fused", [False, True], ids=["given", "computed"])
@pytest.mark.parametrize("op", OPS)
def test_an_index_outside_its_axis_is_an_error(op: str, fused: bool, engine: Engine) -> None:
    graph = _graph(op, fused=fused)
    model = compile_model(graph, engine=engine)
    shape = (2, 1) if op.endswith("ND") else (2, 3)
    for good in (-5, -1, 0, 4):
        indices = np.full(shape, good)
        np.testing.assert_array_equal(model(DATA, indices), graph.run([DATA, indices])[0])
    for bad in (5, -6, 10**12, -(2**63), 2**63 - 1):
        indices = np.zeros(shape, np.int64)
        indices.reshape(-1)[-1] = bad
        with pytest.raises(ModelError, match=rf"^operator 'looked' \({op}\): .* outside its axis"):
            model(DATA, indices)
    # The next run is as if nothing had happened.
    indices = np.zeros(shape, np.int64)
    np.testing.assert_array_equal(model(DATA, indices), graph.run([DATA, indices])[0])


def test_indices_of_32_bits(engine: Engine) -> None:
    model = compile_model(_graph("Gather", DType.I32), engine=engine)
    indices = np.array([[0, 1, 2], [3, 4, -5]], np.int32)
    np.testing.assert_array_equal(model(DATA, indices), DATA[indices])
    with pytest.raises(ModelError, match="outside its axis"):
        model(DATA, np.full((2, 3), 2**31 - 1, np.int32))


def test_one_hot_has_no_place_for_it(engine: Engine) -> None:
    build = GraphBuilder()
    i = build.input("i", DType.I64, [4])
    depth, values = build.const(np.array(3)), build.const(np.array([5, 7], np.float32))
    build.output("y", build.op("OneHot", i, depth, values))
    made = compile_model(build.finish(), engine=engine)(np.array([0, 3, -1, -4]))
    off = [5, 5, 5]
    np.testing.assert_array_equal(made, [[7, 5, 5], off, [5, 5, 7], off])


def test_lengths_of_sequences(engine: Engine) -> None:
    build = GraphBuilder()
    x, lengths = build.input("x", DType.F32, [5, 3]), build.input("n", DType.I64, [3])
    build.output(
        "y", build.op("ReverseSequence", x, lengths, name="looked", time_axis=0, batch_axis=1)
    )
    graph = build.finish()
    model = compile_model(graph, engine=engine)
    good = np.array([5, 1, 3])
    np.testing.assert_array_equal(model(DATA, good), graph.run([DATA, good])[0])
    with pytest.raises(ModelError, match=r"^operator 'looked' \(ReverseSequence\)"):
        model(DATA, np.array([5, 6, 3]))


def recurrent_layer(op: str, layout: int) -> Graph:
    build = GraphBuilder()
    gates, rng = {"RNN": 1, "GRU": 3, "LSTM": 4}[op], np.random.default_rng(0)
    x = build.input("x", DType.F32, [2, 5, 3] if layout else [5, 2, 3])
    lengths = build.input("n", DType.I32, [2])
    w, r = (
        build.const(rng.standard_normal((2, 4 * gates, columns)).astype(np.float32))
        for columns in (3, 4)
    )
    attrs: dict[str, Attr] = {"direction": "bidirectional", "hidden_size": 4, "layout": layout}
    build.output("y", build.op(op, x, w, r, None, lengths, name="looked", attrs=attrs))
    return build.finish()


@pytest.mark.parametrize("layout", [0, 1], ids=["time first", "batch first"])
@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
def test_lengths_of_the_sequences_of_a_recurrent_layer(
    op: str, layout: int, engine: Engine
) -> None:
    graph = recurrent_layer(op, layout)
    model = compile_model(graph, engine=engine)
    x = np.ones((2, 5, 3) if layout else (5, 2, 3), np.float32)
    for good in ([5, 3], [0, 1]):
        lengths = np.array(good, np.int32)
        np.testing.assert_allclose(
            model(x, lengths), graph.run([x, lengths])[0], rtol=1e-5, atol=1e-6
        )
    for bad in ([6, 1], [2, -1], [2**31 - 1, 0], [0, -(2**31)]):
        lengths = np.array(bad, np.int32)
        with pytest.raises(ModelError, match=rf"^operator 'looked' \({op}\): .*not lengths of"):
            model(x, lengths)
        with pytest.raises(ModelError, match=rf"^operator 'looked' \({op}\): .*not lengths of"):
            graph.run([x, lengths])


def test_positions_of_an_embedding(engine: Engine) -> None:
    build = GraphBuilder()
    x, at = build.input("x", DType.F32, [1, 2, 3, 4]), build.input("p", DType.I64, [1, 3])
    caches = [build.const(np.ones((6, 2), np.float32)) for _ in range(2)]
    build.output("y", build.op("RotaryEmbedding", x, *caches, at, name="looked"))
    model = compile_model(build.finish(), engine=engine)
    given: Any = np.ones((1, 2, 3, 4), np.float32)
    model(given, np.array([[0, 5, 3]]))
    with pytest.raises(ModelError, match=r"^operator 'looked' \(RotaryEmbedding\)"):
        model(given, np.array([[0, 6, 3]]))


def test_many_rows_on_several_threads(engine: Engine) -> None:
    """Whichever worker finds it."""
    build = GraphBuilder()
    x, i = build.input("x", DType.F32, [50, 256]), build.input("i", DType.I64, [4000])
    build.output("y", build.op("Gather", x, i, name="looked"))
    model = compile_model(build.finish(), engine=engine)
    data = np.random.default_rng(0).standard_normal((50, 256)).astype(np.float32)
    indices = np.random.default_rng(1).integers(-50, 50, 4000)
    for place in (0, 1999, 3999):
        np.testing.assert_array_equal(model(data, indices), data[indices])
        bad = indices.copy()
        bad[place] = 50
        with pytest.raises(ModelError, match="outside its axis"):
            model(data, bad)


def test_a_branch_that_is_not_taken_looks_nowhere(engine: Engine) -> None:
    """A side of a choice between elements is not looked at where the other is taken."""
    build = GraphBuilder()
    x, i = build.input("x", DType.F32, [5]), build.input("i", DType.I64, [3])
    rows = build.op("Gather", x, i)
    build.output("y", build.op("Concat", rows, build.op("Abs", x), axis=0))
    model = compile_model(build.finish(), engine=engine)
    data = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(
        model(data, np.array([4, -5, 0])), np.concatenate([data[[4, 0, 0]], data])
    )


@pytest.mark.parametrize("data", ["constant", "computed", "repeated"])
@pytest.mark.parametrize("op", ["Gather", "GatherElements", "GatherND"])
def test_an_index_is_checked_where_nothing_depends_on_it(
    op: str, data: str, engine: Engine
) -> None:
    build = GraphBuilder()
    shape = (3, 1) if op.endswith("ND") else (3,)
    i = build.input("i", DType.I64, shape)
    if data == "constant":
        x = build.const(np.array([7.0], np.float32))
    elif data == "computed":
        x = build.op("Relu", build.input("x", DType.F32, [1]))
    else:
        x = build.op("Expand", build.input("x", DType.F32, [1]), build.const(np.array([4])))
    build.output("y", build.op(op, x, i, name="looked"))
    model = compile_model(build.finish(), engine=engine)
    given = {} if data == "constant" else {"x": np.array([7.0], np.float32)}
    np.testing.assert_array_equal(model(i=np.full(shape, -1), **given).reshape(-1), [7.0] * 3)
    indices = np.zeros(shape, np.int64)
    indices[1] = 4
    with pytest.raises(ModelError, match=rf"^operator 'looked' \({op}\): .* outside its axis"):
        model(i=indices, **given)
