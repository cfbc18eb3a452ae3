"""Running one pass in a test, with everything checked that holds for every pass."""

from __future__ import annotations

from tests.graph.structure import structure
from whence.graph import Check, Graph, Node, check_graph
from whence.passes.base import Pass
from whence.passes.equivalence import EquivalenceProbe
from whence.passes.manager import CheckLevel, run_passes
from whence.passes.simplify.gather_consts import GatherConsts
from whence.passes.simplify.remove_dead_nodes import RemoveDeadNodes
from whence.provenance import Reason


def rewrite(graph: Graph, *passes: Pass, tolerance: float = 1e-4) -> dict[str, int]:
    """Run the passes and return how often each rule was applied.

    The graph must keep its invariants and its outputs, lose no operator, and not change when the
    passes run once more.
    """
    probe = EquivalenceProbe(graph)
    assert probe.comparable, probe.why_not
    reports = run_passes(graph, passes, check=CheckLevel.INVARIANTS)
    probe.compare(graph, passes[-1].name, tolerance)
    once = structure(graph)
    assert all(
        report.changes == 0 for report in run_passes(graph, passes, check=CheckLevel.INVARIANTS)
    )
    assert structure(graph) == once
    run_passes(graph, (RemoveDeadNodes(), GatherConsts()), check=CheckLevel.INVARIANTS)
    assert structure(graph) == once
    check_graph(graph, Check.ALL)
    return {rule: count for report in reports for rule, count in report.rules.items()}


def is_left_alone(graph: Graph, *passes: Pass) -> bool:
    """Do the passes change nothing?"""
    before = structure(graph)
    return rewrite(graph, *passes) == {} and structure(graph) == before


def operators(graph: Graph) -> list[str]:
    """The operators in list order, without inputs, constants and outputs."""
    return [node.op for node in graph if node.op not in {"Input", "Const", "Output"}]


def only(graph: Graph, op: str) -> Node:
    """The only node of this operator."""
    (node,) = (node for node in graph if node.op == op)
    return node


def edges_into(graph: Graph, node: Node) -> dict[str, str]:
    """The kind of the ledger's edge from each source operator that became this node directly, by
    the operator's name.
    """
    ledger = graph.ledger
    return {
        ledger.source(edge.parent).name: edge.kind.value
        for edge in ledger.edges
        if edge.child == node.id and edge.parent <= ledger.n_sources
    }


def carried(graph: Graph, node: Node) -> tuple[list[str], list[str]]:
    """The names of the source operators whose work the node does, and of those that are folded into
    its constants.
    """
    ledger = graph.ledger
    folded = ledger.folded_origins()[node.id]
    names = {source: ledger.source(source).name for source in sorted(node.origin)}
    return [name for source, name in names.items() if source not in folded], [
        name for source, name in names.items() if source in folded
    ]


def tombstone_reasons(graph: Graph) -> dict[str, Reason]:
    """Why each source operator that has a tombstone has it."""
    ledger = graph.ledger
    return {
        ledger.source(source).name: stone.reason
        for stone in ledger.tombstones
        for source in stone.origin
    }
