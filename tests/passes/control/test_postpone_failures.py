"""What cannot work becomes an operator that says so, if a run may do without it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.structure import structure
from tests.passes.rewriting import edges_into, operators
from whence.errors import ModelError
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.passes.control.postpone_failures import PostponeFailures
from whence.passes.manager import CheckLevel, run_passes
from whence.types import DType

X = np.arange(6, dtype=np.float32)


def _graph(index: int, *, always: bool = False) -> Graph:
    build = GraphBuilder()
    x, c = build.input("x", DType.F32, [6]), build.input("c", DType.BOOL, [])
    found = build.op("Gather", x, build.const(np.array([0, index])), name="found")
    other = build.op(
        "Slice", x, build.const(np.array([0])), build.const(np.array([2])), name="other"
    )
    chosen = build.op("Choose", c, found, other)
    build.output("y", build.op("Add", found, chosen) if always else chosen)
    return build.finish()


def test_an_index_outside_its_axis_on_one_side_of_a_choice() -> None:
    graph = _graph(100)
    (report,) = run_passes(graph, [PostponeFailures()], check=CheckLevel.INVARIANTS)
    assert report.rules == {"what cannot work says so when it is needed": 1}
    assert sorted(operators(graph)) == ["Choose", "Fail", "Slice"]
    (fail,) = (node for node in graph if node.op == "Fail")
    assert list(edges_into(graph, fail).values()) == ["copy"]
    np.testing.assert_array_equal(graph.run([X, np.array(False)])[0], [0, 1])
    with pytest.raises(
        ModelError,
        match=r"^operator 'found' \(Gather\): index 100 is outside an axis of 6$",
    ):
        graph.run([X, np.array(True)])


@pytest.mark.parametrize(
    "graph", [_graph(5), _graph(100, always=True)], ids=["it works", "every run needs it"]
)
def test_what_is_left_alone(graph: Graph) -> None:
    before = structure(graph)
    run_passes(graph, [PostponeFailures()], check=CheckLevel.INVARIANTS)
    assert structure(graph) == before
