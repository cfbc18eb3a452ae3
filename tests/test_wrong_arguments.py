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
from whence.errors import GraphError, InputError, WhenceError
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


OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "shapes": ({"shapes": [(2, 3)]}, "shapes= takes a dictionary, not list"),
    "dims": ({"dims": 3}, "dims= takes a dictionary, not int"),
    "state": ({"state": ["x"]}, "state= takes a dictionary, not list"),
    "outputs": ({"only_last": "y"}, "only_last= takes a dictionary, not str"),
    "axis": ({"only_last": {"y": "a"}}, "the axis of output 'y' is given as 'a'"),
    "size": ({"shapes": {"x": 2}}, "the shape of input 'x' is given as 2; a list of sizes"),
    "text": ({"shapes": {"x": "23"}}, "the shape of input 'x' is given as '23'; a list of sizes"),
    "half": ({"shapes": {"x": (2.5, 3)}}, r"the shape of input 'x' is given as \(2.5, 3\); a list"),
    "name": ({"shapes": {"z": (2, 3)}}, "a shape is given for 'z'; the model's inputs are 'x'"),
    "rank": ({"shapes": {"x": (2,)}}, r"shape \[2\] is given for input 'x', which is f32\[n,3\]"),
    "other": ({"shapes": {"x": (2, 4)}}, r"shape \[2, 4\] is given for input 'x', which is f32"),
    "less": ({"shapes": {"x": (-1, 3)}}, r"shape \[-1, 3\] is given for input 'x', which is f32"),
}


@pytest.mark.parametrize("what", OPTIONS)
def test_sizes_and_names_that_are_none(what: str) -> None:
    build = GraphBuilder()
    build.output("y", build.op("Relu", build.input("x", DType.F32, ["n", 3])))
    given, why = OPTIONS[what]
    with pytest.raises(InputError, match=f"^(only_last: )?{why}[^\n]*$"):
        whence.compile(build.finish(), threads=1, **given)


def test_a_number_may_be_one_of_numpy() -> None:
    two: Any = np.int64(2)
    model = whence.compile(_graph(), threads=1)
    assert [each.shape for each in model.run_many([X, X], streams=two)] == [(2, 3)] * 2


def test_no_stream_and_no_array() -> None:
    model = whence.compile(_graph(), threads=1)
    with pytest.raises(WhenceError, match=r"a stream is made with whence\.Stream"):
        model.execute(ANYTHING, X)
    with pytest.raises(WhenceError, match=r"a stream is made with whence\.Stream"):
        model.perform(ANYTHING, X)
    with pytest.raises(WhenceError, match="input 'x' is no array"):
        model([[1.0], [1.0, 2.0]])
    with pytest.raises(WhenceError, match="buffers are a dictionary by name, not NoneType"):
        model.bind(ANYTHING)
    with pytest.raises(WhenceError, match="None streams make no sense"):
        model.run_many([X], streams=ANYTHING)


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
