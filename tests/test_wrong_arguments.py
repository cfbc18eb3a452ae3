"""What is no stream, model, graph or node where one is wanted is an error of whence's own, in one
line; so is a model whose values no machine could hold.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whence
from whence.errors import GraphError, WhenceError
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.runtime.engine import Engine
from whence.types import DType


def _graph() -> Graph:
    build = GraphBuilder()
    build.output("y", build.op("Relu", build.input("x", DType.F32, [2, 3])))
    return build.finish()


ANYTHING: Any = None
X = np.ones((2, 3), np.float32)
API: dict[str, Callable[[], object]] = {
    "load": lambda: whence.load(ANYTHING),
    "compile": lambda: whence.compile(ANYTHING),
    "compile for": lambda: whence.compile(_graph(), engine=3),  # type: ignore[arg-type]
    "prepare": lambda: whence.prepare(ANYTHING),
    "save": lambda: whence.save(ANYTHING, "x.onnx"),
    "save to": lambda: whence.save(_graph(), ANYTHING),
    "profile": lambda: whence.profile(ANYTHING),
    "engine": lambda: Engine(threads=ANYTHING),
    "stream": lambda: whence.Stream(ANYTHING),
    "entries": lambda: whence.num_entries(ANYTHING),
    "data": lambda: whence.get_profiling_data(ANYTHING, 1),
    "reset": lambda: whence.reset_profiling(ANYTHING),
}


@pytest.mark.parametrize("what", API)
def test_nothing_where_something_is_wanted(what: str) -> None:
    with pytest.raises(WhenceError) as caught:
        API[what]()
    assert "\n" not in str(caught.value)


def test_no_stream_and_no_array() -> None:
    model = whence.compile(_graph(), threads=1)
    with pytest.raises(WhenceError, match=r"a stream is made with whence\.Stream"):
        model.execute(ANYTHING, X)
    with pytest.raises(WhenceError, match=r"a stream is made with whence\.Stream"):
        model.perform(ANYTHING, X)
    with pytest.raises(WhenceError, match="input 'x' is no array"):
        model([[1.0], [1.0, 2.0]])


@pytest.mark.parametrize(
    "name",
    [
        "append",
        "prepend",
        "remove",
        "move_to_front",
        "consumers",
        "use_count",
        "successor",
        "predecessor",
        "producer",
        "type_of",
        "uses",
    ],
)
def test_no_node(name: str) -> None:
    graph = _graph()
    with pytest.raises(GraphError, match="is wanted, not NoneType"):
        getattr(graph, name)(None)


def test_values_that_no_machine_holds(tmp_path: Path) -> None:
    build = GraphBuilder()
    x, shape = build.input("x", DType.F32, [1]), build.const(np.array([1 << 40, 1 << 20]))
    build.output("y", build.op("Expand", x, shape, name="vast"))
    graph = build.finish()
    with pytest.raises(WhenceError, match=r"^operator 'vast' \(Expand\): .* of \d+ bytes$"):
        whence.compile(graph, threads=1)


def test_values_that_this_machine_does_not_hold() -> None:
    build = GraphBuilder()
    x, shape = build.input("x", DType.F32, [1]), build.const(np.array([1 << 30, 1 << 12]))
    build.output("y", build.op("Expand", x, shape))
    model = whence.compile(build.finish(), threads=1)
    with pytest.raises(WhenceError, match="there is no memory for"):
        model(np.ones(1, np.float32))
