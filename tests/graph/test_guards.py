"""What runs under which conditions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whence.graph import Graph, Node
from whence.graph.builder import GraphBuilder, Symbol
from whence.graph.guards import RunUnit, find_guards
from whence.types import DType


def _guards(graph: Graph, order: Sequence[str] = ()) -> dict[str, str]:
    """By name of the node, as text. The nodes run in the order of the list, or as said."""
    nodes = {node.name: node for node in graph if node.op not in ("Input", "Const", "Output")}
    names = list(order or nodes)
    results = [ref for node in graph.outputs for ref in node.inputs if ref is not None]
    found = find_guards([_work(nodes[name]) for name in names], results)
    texts = [
        " ".join(f"{'' if wanted else '!'}{graph[ref.node].name}" for ref, wanted in guards)
        for guards in found
    ]
    return dict(zip(names, texts, strict=True))


def _work(node: Node) -> RunUnit:
    return RunUnit((node,), [ref for ref in node.inputs if ref is not None], [node.ref()])


def _builder() -> tuple[GraphBuilder, Symbol, Symbol]:
    build = GraphBuilder("choices")
    return build, build.input("c", DType.BOOL, ()), build.input("x", DType.F32, [4])


def test_each_side_runs_when_it_is_taken() -> None:
    build, c, x = _builder()
    both = build.op("Exp", x, name="both")
    one = build.op("Relu", build.op("Neg", both, name="inner"), name="one")
    build.output(
        "y", build.op("Choose", c, one, build.op("Abs", both, name="other"), name="choice")
    )
    found = _guards(build.finish())
    assert found == {"both": "", "inner": "c", "one": "c", "other": "!c", "choice": ""}


def test_what_somebody_else_needs_runs_always() -> None:
    build, c, x = _builder()
    one = build.op("Relu", x, name="one")
    build.output("y", build.op("Choose", c, one, x, name="choice"))
    build.output("z", build.op("Neg", one, name="else"))
    assert set(_guards(build.finish()).values()) == {""}


def test_guards_nest() -> None:
    build, c, x = _builder()
    d = build.op(
        "Less",
        build.op("ReduceSum", x, keepdims=0, name="sum"),
        build.const(np.float32(0)),
        name="d",
    )
    inner = build.op(
        "Choose", d, build.op("Relu", x, name="a"), build.op("Neg", x, name="b"), name="inner"
    )
    build.output("y", build.op("Choose", c, inner, x, name="outer"))
    found = _guards(build.finish())
    assert found["sum"] == found["d"] == found["inner"] == "c"
    assert found["a"] == "c d"
    assert found["b"] == "c !d"


def test_a_condition_guards_only_what_runs_after_it_and_what_feeds_that_is_there() -> None:
    build, _, x = _builder()
    early = build.op("Relu", build.op("Neg", x, name="earlier"), name="early")
    late = build.op("Abs", early, name="late")
    d = build.op(
        "Less",
        build.op("ReduceSum", x, keepdims=0, name="sum"),
        build.const(np.float32(0)),
        name="d",
    )
    build.output("y", build.op("Choose", d, late, x, name="choice"))
    graph = build.finish()
    found = _guards(graph, ["sum", "d", "earlier", "early", "late", "choice"])
    assert found["earlier"] == found["early"] == found["late"] == "d"
    found = _guards(graph, ["earlier", "early", "sum", "d", "late", "choice"])
    assert (found["earlier"], found["early"], found["late"]) == ("", "", "d")
    # Nor is what feeds something passed over that is not.
    found = _guards(graph, ["sum", "earlier", "early", "late", "d", "choice"])
    assert set(found.values()) == {""}
