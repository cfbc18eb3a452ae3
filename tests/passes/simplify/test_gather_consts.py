"""Constants go to the front, in the order they had."""

from __future__ import annotations

import numpy as np

from tests.graph.structure import structure
from whence.graph import Check, Graph, Node, Ref, check_graph
from whence.passes.manager import CheckLevel, run_passes
from whence.passes.simplify.gather_consts import GatherConsts
from whence.types import DType, TensorType


def scattered(count: int) -> Graph:
    """x + c0 + c1 + ... with each constant just before its reader."""
    graph = Graph()
    kind = TensorType(DType.F32, (2,))
    value: Ref = graph.append(Node(graph.new_id(), "Input", (), (kind,), name="x")).ref()
    for number in range(count):
        constant = graph.append(
            Node(
                graph.new_id(),
                "Const",
                (),
                (kind,),
                value=np.full(2, number, np.float32),
                name=f"c{number}",
            )
        )
        value = graph.append(Node(graph.new_id(), "Add", (value, constant.ref()), (kind,))).ref()
    graph.append(Node(graph.new_id(), "Output", (value,), (), name="y"))
    return graph


def test_constants_stand_first_and_keep_their_order() -> None:
    graph = scattered(5)
    before = structure(graph)
    expected = graph.run([np.zeros(2, np.float32)])
    (report,) = run_passes(graph, [GatherConsts()], check=CheckLevel.INVARIANTS)
    assert report.rules == {"a constant may stand before everything": 5}
    assert [node.name for node in graph][:6] == ["c0", "c1", "c2", "c3", "c4", "x"]
    check_graph(graph, Check.ALL)
    assert structure(graph) == before
    np.testing.assert_array_equal(graph.run([np.zeros(2, np.float32)]), expected)


def test_a_late_constant_goes_behind_the_earlier_ones() -> None:
    graph = scattered(2)
    run_passes(graph, [GatherConsts()])
    late = Node(
        graph.new_id(),
        "Const",
        (),
        (TensorType(DType.F32, (2,)),),
        value=np.zeros(2, np.float32),
        name="late",
    )
    graph.insert_before(graph.outputs[0], late)
    run_passes(graph, [GatherConsts()])
    assert [node.name for node in graph if node.is_const] == ["c0", "c1", "late"]


def test_each_constant_moves_once_however_many_there_are(monkeypatch) -> None:
    graph = scattered(2000)
    moves = 0
    relink = Graph._relink

    def counting(self: Graph, node: Node, before: Node | None, after: Node | None) -> None:
        nonlocal moves
        moves += 1
        relink(self, node, before, after)

    monkeypatch.setattr(Graph, "_relink", counting)
    run_passes(graph, [GatherConsts()])
    assert moves == 2000
