"""`check_graph`: every invariant, verified from the nodes alone, without trusting any index."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from whence.errors import GraphError, ProvenanceError
from whence.graph.graph import Graph
from whence.graph.node import Node
from whence.graph.state import GIVEN, why_state_is_wrong
from whence.ops.signature import why_wrong
from whence.provenance import NO_ORIGIN, union_of


class Check(enum.Flag):
    """What to check beyond the list, the ids and the references."""

    NONE = 0
    HASH = enum.auto()
    """Lookup by id, consumer index and operator counts agree with the list."""
    DEADNODES = enum.auto()
    """Every node has a consumer, or is retained. Used after dead nodes were removed."""
    NONCONST = enum.auto()
    """All constants stand before all other nodes. Used at the end of preparation."""
    ORIGIN = enum.auto()
    """Origins agree with the ledger, and no source operator is lost."""
    ALL = HASH | DEADNODES | NONCONST | ORIGIN


def check_graph(graph: Graph, flags: Check = Check.NONE, *, after: str = "") -> None:
    """Raise `GraphError` at the first broken invariant. `after` names the pass that ran last."""
    ids: set[int] = set()
    for nested in graph.nested():
        with _located(nested, after):
            nodes = _check_list(nested, ids)
            _check_refs(nested, nodes)
            if why := why_state_is_wrong(nested, nodes, is_outermost=nested is graph):
                raise GraphError(why)
            if Check.HASH in flags:
                _check_indexes(nested, nodes)
            if Check.DEADNODES in flags:
                _check_dead(nodes)
            if Check.NONCONST in flags:
                _check_partition(nodes)
    if Check.ORIGIN in flags:
        _check_origins(graph, after)


@contextmanager
def _located(graph: Graph, after: str) -> Iterator[None]:
    """What is wrong in here is told with the graph, and the pass that ran last."""
    try:
        yield
    except GraphError as error:
        where = f" after pass '{after}'" if after else ""
        name = f"graph {graph.name!r}" if graph.name else "graph"
        raise GraphError(f"{name}{where}: {error}") from None


def _check_list(graph: Graph, seen: set[int]) -> list[Node]:
    """The nodes in list order. `seen` are the ids met so far, in enclosing graphs too: the ledger
    knows a node by its id alone.
    """
    nodes: list[Node] = []
    previous, node = None, graph.first
    while node is not None:
        if node.id in seen:
            raise GraphError(
                f"id {node.id} is met twice: two nodes share it, a list has a loop, or a body is"
                " held by two nodes",
            )
        if node.id == 0:
            raise GraphError(f"{node!r} has id 0")
        if node._prev is not previous:
            raise GraphError(f"{node!r} is linked to the wrong predecessor")
        if previous is not None and not graph.precedes(previous, node):
            raise GraphError(f"order numbers of {previous!r} and {node!r} contradict the list")
        if node.graph is not graph:
            raise GraphError(f"{node!r} stands in the list, but belongs elsewhere")
        seen.add(node.id)
        nodes.append(node)
        previous, node = node, node._next
    if graph.last is not previous:
        raise GraphError("the last node is not the end of the list")
    return nodes


def _check_refs(graph: Graph, nodes: list[Node]) -> None:
    outputs: dict[int, int] = {}
    for node in nodes:
        for index, ref in enumerate(node.inputs):
            if ref is None:
                continue
            if ref.node not in outputs:
                later = any(other.id == ref.node for other in nodes)
                raise GraphError(
                    f"input {index} of {node!r} refers to {ref}, which"
                    f" {'stands later' if later else 'does not exist'}",
                )
            if not 0 <= ref.index < outputs[ref.node]:
                raise GraphError(
                    f"input {index} of {node!r} refers to output {ref.index} of a node with"
                    f" {outputs[ref.node]}",
                )
        outputs[node.id] = len(node.outputs)
        if not node.outputs and not node.retained:
            raise GraphError(f"{node!r} has no outputs and is not retained")
        if why := why_wrong(node.op, node.inputs, len(node.outputs), node.attrs):
            raise GraphError(f"{node!r}{why}")
        for name, body in node.bodies.items():
            if body.ledger is not graph.ledger:
                raise GraphError(f"body {name!r} of {node!r} has a ledger of its own")


def _check_indexes(graph: Graph, nodes: list[Node]) -> None:
    if len(graph) != len(nodes):
        raise GraphError(f"the list has {len(nodes)} nodes, the index {len(graph)}")
    uses: dict[int, dict[int, int]] = {node.id: {} for node in nodes}
    counts: dict[str, int] = {}
    for node in nodes:
        if graph.get(node.id) is not node:
            raise GraphError(f"lookup of id {node.id} does not find {node!r}")
        counts[node.op] = counts.get(node.op, 0) + 1
        for ref in node.inputs:
            if ref is not None:
                uses[ref.node][node.id] = uses[ref.node].get(node.id, 0) + 1
    for node in nodes:
        if node._uses != uses[node.id]:
            raise GraphError(
                f"consumers of {node!r} are indexed as {sorted(node._uses)}, but are"
                f" {sorted(uses[node.id])}",
            )
    if counts != graph.op_counts:
        raise GraphError("operator counts are wrong")
    for op, listed in graph._signature.items():
        if set(listed) != {node.id for node in nodes if node.op == op}:
            raise GraphError(f"the list of {op} nodes is wrong")
    if set(graph._holders) != {node.id for node in nodes if node.bodies}:
        raise GraphError("the list of nodes with nested graphs is wrong")


def _check_dead(nodes: list[Node]) -> None:
    used = {ref.node for node in nodes for ref in node.inputs if ref is not None}
    for node in nodes:
        if node.id not in used and not node.retained and node.op not in GIVEN:
            raise GraphError(f"{node!r} is dead: nothing reads it")


def _check_partition(nodes: list[Node]) -> None:
    first_other = None
    for node in nodes:
        if not node.is_const:
            first_other = first_other or node
        elif first_other is not None:
            raise GraphError(f"constant {node!r} stands after {first_other!r}")


def _check_origins(graph: Graph, after: str) -> None:
    ledger = graph.ledger
    derived = ledger.replay_origins()
    carried: Counter[int] = Counter()
    for nested in graph.nested():
        with _located(nested, after):
            for node in nested:
                carried.update(node.origin)
                expected = derived.get(node.id, NO_ORIGIN)
                if node.origin != expected:
                    raise GraphError(
                        f"{node!r} carries origin {sorted(node.origin)}, the ledger derives"
                        f" {sorted(expected)}"
                    )
    explained = union_of(stone.origin for stone in ledger.tombstones)
    lost = [
        source
        for source in ledger.sources
        if source.id not in carried and source.id not in explained
    ]
    if lost:
        by = f"pass '{after}'" if after else "something"
        others = f" and {len(lost) - 1} others" if len(lost) > 1 else ""
        raise ProvenanceError(
            f"{by} lost source operator {lost[0].id} {lost[0].name!r} ({lost[0].op}){others}"
        )
    with _located(graph, after):
        for source in ledger.sources:
            counted = ledger.node_count(source.id)
            if counted != carried[source.id]:
                raise GraphError(
                    f"the ledger counts {counted} nodes that carry source operator"
                    f" {source.name!r}, there are {carried[source.id]}"
                )
