"""Variables and assignments as part of a graph."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.graph.structure import structure
from tests.runtime.stateful import GRAPHS, counter, window
from whence.errors import GraphError, InputError, WhenceError
from whence.graph import Check, Graph, Node, check_graph, print_graph
from whence.graph.builder import GraphBuilder
from whence.graph.state import initial_state
from whence.passes.manager import CheckLevel, run_passes
from whence.passes.pipeline import PORTABLE, PREPARE
from whence.types import DType, TensorType

_ONES = np.ones(4, np.float32)


def test_the_first_run_begins_with_the_initial_value_and_leaves_no_trace() -> None:
    graph = counter()
    for _ in range(2):
        np.testing.assert_array_equal(graph.run([_ONES])[0], _ONES)


def test_a_run_hands_its_state_to_the_next() -> None:
    graph = counter()
    state = initial_state(graph)
    seen = [float(graph.run([_ONES], state=state)[0][0]) for _ in range(4)]
    assert seen == [1, 2, 3, 4]
    np.testing.assert_array_equal(state["n"], 5 * _ONES)


def test_a_run_that_fails_leaves_the_state_as_it_was() -> None:
    build = GraphBuilder("failing")
    at = build.input("at", DType.I64, [])
    n = build.variable("n", np.zeros(1, np.float32))
    build.assign("n", build.op("Add", n, build.const(np.ones(1, np.float32))))
    table = build.const(np.arange(3, dtype=np.float32))
    build.output("y", build.op("Gather", table, at))
    graph = build.finish()
    state = initial_state(graph)
    graph.run([np.array(1)], state=state)
    with pytest.raises(WhenceError):
        graph.run([np.array(9)], state=state)
    assert float(state["n"][0]) == 1


def test_a_state_of_another_type_is_refused() -> None:
    with pytest.raises(InputError, match=r"'n' \(Variable\): its variable is f32\[4\]"):
        counter().run([_ONES], state={"n": np.zeros(3, np.float32)})
    with pytest.raises(InputError, match="not there"):
        counter().run([_ONES], state={})


def test_the_printed_graph_shows_it() -> None:
    text = print_graph(counter())
    assert "= Variable() initial=f32[4]{1.0, 1.0, 1.0, 1.0}  # n" in text
    assert "= Assign(%2) variable=n from[3]" in text


@pytest.mark.parametrize("make", GRAPHS.values(), ids=GRAPHS.keys())
@pytest.mark.parametrize("passes", [PORTABLE, PREPARE], ids=["portable", "prepare"])
def test_passes_keep_what_calls_leave(
    make: Callable[[], Graph], passes: tuple[object, ...]
) -> None:
    graph = make()
    names = [node.name for node in graph.variables]
    # Compares the outputs of two runs, and the state after them, at every pass.
    run_passes(graph, passes, check=CheckLevel.OUTPUTS)  # type: ignore[arg-type]
    check_graph(graph, Check.ALL)
    assert [node.name for node in graph.variables] == names
    assert sorted(str(node.attrs["variable"]) for node in graph.assigns) == sorted(names)


def test_equal_variables_are_not_merged_and_nothing_is_folded() -> None:
    build = GraphBuilder("twins")
    x = build.input("x", DType.F32, [4])
    a, b = (build.variable(name, np.zeros(4, np.float32)) for name in "ab")
    build.output("y", build.op("Sub", a, b))
    build.assign("a", build.op("Add", a, x))
    build.assign("b", build.op("Mul", build.op("Add", b, x), x))
    graph = build.finish()
    run_passes(graph, PREPARE, check=CheckLevel.OUTPUTS)
    assert len(graph.variables) == len(graph.assigns) == 2
    state = initial_state(graph)
    twos = 2 * _ONES
    assert [float(graph.run([twos], state=state)[0][0]) for _ in range(3)] == [0, -2, -8]


def test_what_only_the_next_run_needs_is_not_dead() -> None:
    build = GraphBuilder("counting")
    n = build.variable("n", np.zeros(1, np.float32))
    build.output("y", build.op("Relu", build.input("x", DType.F32, [1])))
    build.assign("n", build.op("Add", n, build.const(np.ones(1, np.float32))))
    graph = build.finish()
    run_passes(graph, PREPARE)
    assert graph.op_counts["Add"] == 1


def test_copies_and_structures_have_state() -> None:
    graph = window()
    twin = graph.copy()
    check_graph(twin, Check.ALL & ~Check.NONCONST)
    assert structure(twin) == structure(graph)
    assert [node.name for node in twin.variables] == ["past"]
    assert structure(counter()).count("Assign") == 1


def _variable(graph: Graph, name: str = "v", **changes: object) -> Node:
    kind = changes.pop("kind", TensorType(DType.F32, (4,)))
    return graph.append(Node(graph.new_id(), "Variable", (), (kind,), changes, name=name))  # type: ignore[arg-type]


def _assign(graph: Graph, value: Node, name: object) -> Node:
    return graph.append(Node(graph.new_id(), "Assign", (value.ref(),), (), {"variable": name}))  # type: ignore[dict-item]


def _twice(graph: Graph) -> None:
    value = _variable(graph)
    _assign(graph, value, "v")
    _assign(graph, value, "v")


def _other_type(graph: Graph) -> None:
    _variable(graph)
    _assign(graph, _variable(graph, "w", kind=TensorType(DType.F32, (5,))), "v")


def _same_name(graph: Graph) -> None:
    _variable(graph)
    _variable(graph)


_WRONG: dict[str, Callable[[Graph], object]] = {
    "two variables are called 'v'": _same_name,
    "is assigned to twice": _twice,
    "assigns f32\\[5\\] to a variable that is f32\\[4\\]": _other_type,
    "no variable before it is called so": lambda graph: _assign(graph, _variable(graph), "w"),
    "its size must be known": lambda graph: _variable(graph, kind=TensorType(DType.F32, ("n",))),
    "is not of its type": lambda graph: _variable(graph, initial=np.zeros(4, np.int8)),
}


@pytest.mark.parametrize("message", _WRONG)
def test_what_check_graph_refuses(message: str) -> None:
    graph = Graph("wrong")
    _WRONG[message](graph)
    with pytest.raises(GraphError, match=message):
        check_graph(graph)


def test_nested_graphs_have_no_state() -> None:
    outer = Graph("outer")
    body = Graph("body", outer.ledger, outer.inference)
    _variable(body)
    outer.append(
        Node(outer.new_id(), "Branch", (), (TensorType(DType.F32, (4,)),), bodies={"body": body})
    )
    with pytest.raises(GraphError, match="stands in a nested graph"):
        check_graph(outer)
