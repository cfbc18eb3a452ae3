"""`check_fused`: every promise of a fused graph, verified from the graph alone."""

from __future__ import annotations

from whence.errors import GraphError
from whence.fusion.fuse import FusedGraph, FuseEntry
from whence.fusion.patterns import is_inlined
from whence.fusion.wiring import is_operator
from whence.graph import Ref
from whence.graph.state import SOURCES
from whence.provenance import NO_ORIGIN


def check_fused(fused: FusedGraph) -> None:
    """Raise `GraphError` at the first broken promise.

    1. Every operator is a member of exactly one entry, and members stand in list order.
    2. Root and anchor are members; the entry's origin is the union of its members'.
    3. What an entry reads from outside is listed once and was made before; what others need of it
       is among its outputs.
    4. Entries have one name exactly when they have one key; their ids are 1, 2, ...
    5. Every edge between two entries has a reason for not being fused, and no edge inside one has.
    """
    graph = fused.graph
    made: set[Ref] = {node.ref() for node in graph if node.op in SOURCES}
    placed: dict[int, FuseEntry] = {}
    names: dict[str, str] = {}
    keys: dict[str, str] = {}
    for number, entry in enumerate(fused.entries, 1):
        if entry.id != number:
            raise _fail(entry, f"it stands at place {number}")
        if (
            names.setdefault(entry.name, entry.key) != entry.key
            or keys.setdefault(entry.key, entry.name) != entry.name
        ):
            raise _fail(entry, "names and keys do not correspond")
        _check_members(fused, entry, placed)
        _check_reads(fused, entry, made)
        made.update(entry.outputs)
    for node in graph:
        if is_operator(node) and node.id not in placed:
            raise GraphError(f"operator '{node.name}' ({node.op}) is in no fused group")
    missing = [ref for ref in fused.outputs if ref not in made]
    if missing:
        raise GraphError(f"the graph's output {missing[0]} is made by no fused group")
    _check_missed(fused, placed)


def _fail(entry: FuseEntry, problem: str) -> GraphError:
    return GraphError(
        f"fused group {entry.id} '{entry.name}' with operator '{entry.root.name}'"
        f" ({entry.root.op}): {problem}"
    )


def _check_members(fused: FusedGraph, entry: FuseEntry, placed: dict[int, FuseEntry]) -> None:
    if not entry.members:
        raise _fail(entry, "it has no members")
    for earlier, later in zip(entry.members, entry.members[1:], strict=False):
        if not fused.graph.precedes(earlier, later):
            raise _fail(entry, f"{later!r} stands before {earlier!r} in the graph")
    for node in entry.members:
        if node.graph is not fused.graph or not is_operator(node):
            raise _fail(entry, f"{node!r} is no operator of the graph")
        if node.id in placed:
            raise _fail(entry, f"{node!r} is in group {placed[node.id].id} already")
        if fused.entry_of(node.id) is not entry:
            raise _fail(entry, f"{node!r} is not found in it")
        placed[node.id] = entry
    for role, node in (("root", entry.root), ("anchor", entry.anchor)):
        if node not in entry:
            raise _fail(entry, f"its {role} {node!r} is not a member")
    if entry.origin != NO_ORIGIN.union(*(node.origin for node in entry.members)):
        raise _fail(entry, f"its origin {sorted(entry.origin)} is not that of its members")


def _check_reads(fused: FusedGraph, entry: FuseEntry, made: set[Ref]) -> None:
    graph = fused.graph
    inside = {node.id for node in entry.members}
    read = [
        (ref, is_inlined(graph, node, index))
        for node in entry.members
        for index, ref in enumerate(node.inputs)
        if ref is not None and ref.node not in inside
    ]
    if list(dict.fromkeys(ref for ref, inlined in read if not inlined)) != list(entry.inputs):
        raise _fail(
            entry, "its inputs are not what its members read, in the order in which they read it"
        )
    if list(dict.fromkeys(ref.node for ref, inlined in read if inlined)) != [
        const.id for const in entry.consts
    ]:
        raise _fail(entry, "its constants are not those its members read")
    for ref in entry.inputs:
        if ref not in made:
            raise _fail(entry, f"it reads {ref}, which is made later or not at all")
    needed = {
        ref
        for node in entry.members
        for reader in graph.consumers(node)
        if reader.id not in inside
        for ref in reader.inputs
        if ref and ref.node == node.id
    }
    produced = set(entry.outputs)
    if (
        len(produced) != len(entry.outputs)
        or not needed <= produced
        or any(ref.node not in inside for ref in produced)
    ):
        raise _fail(entry, "its outputs are not what others read of it")


def _check_missed(fused: FusedGraph, placed: dict[int, FuseEntry]) -> None:
    told = {(missed.producer, missed.consumer) for missed in fused.groups.missed}
    apart = {
        (ref.node, node_id)
        for node_id, entry in placed.items()
        for ref in fused.graph[node_id].inputs
        if ref is not None and ref.node in placed and placed[ref.node] is not entry
    }
    if told != apart or len(told) != len(fused.groups.missed):
        producer, consumer = sorted(told ^ apart)[0] if told != apart else (0, 0)
        raise GraphError(
            "the reasons for edges that were not fused are not complete and unique: see the edge"
            f" from %{producer} to %{consumer}"
        )
