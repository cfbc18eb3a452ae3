"""From groups to fused operators: what each reads, makes and is called, in the order in which they
run.

`fuse` changes nothing in the graph: a `FuseEntry` points at the nodes it is made of. NNVM writes
results in place where a model assigns to a variable; no operator of ONNX does, so an entry always
makes new values, and sharing memory is left to the memory plan.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from whence.errors import GraphError
from whence.fusion.groups import FusibleGroups
from whence.fusion.naming import Names, structural_key
from whence.fusion.patterns import is_inlined
from whence.fusion.wiring import is_operator
from whence.graph import Graph, Node, Ref
from whence.graph.copying import copy_node
from whence.ops.definition import Pattern
from whence.ops.types.inference import Inference
from whence.provenance import NO_ORIGIN, Ledger, Origin
from whence.types import TensorType


@dataclass(frozen=True, slots=True)
class FuseEntry:
    """One fused operator: what becomes one kernel."""

    id: int
    """1, 2, ... in execution order. Tells entries apart that share code, so that a profile can tell
    layers apart.
    """
    name: str
    """The name of the code, an identifier: `fuse_conv_relu`. Entries with one `key` have one
    name.
    """
    key: str
    """Equal for entries that the same code serves."""
    members: tuple[Node, ...]
    """In execution order."""
    root: Node
    anchor: Node
    """The member whose loop nest the kernel takes: the reduction, convolution, product or pool,
    else the root.
    """
    pattern: Pattern
    """The least local pattern in the group."""
    inputs: tuple[Ref, ...]
    """What is read from outside, `input0`, `input1`, ..., in the order in which the members first
    read it.
    """
    consts: tuple[Node, ...]
    """Constants that are part of the code: parameters and single elements, in the order in which
    they are first read.
    """
    outputs: tuple[Ref, ...]
    """The root's outputs, then the results of other members that are needed outside."""
    flatten: bool
    """Every value in it has one shape, so that the kernel may see them all as one-dimensional."""
    origin: Origin

    @property
    def is_static(self) -> bool:
        """Is every dimension of every value in it a number?"""
        return all(
            isinstance(kind, TensorType) and kind.is_static
            for node in self.members
            for kind in node.outputs
        )

    def __contains__(self, node: object) -> bool:
        return isinstance(node, Node) and any(member is node for member in self.members)


@dataclass(frozen=True, slots=True)
class FusedGraph:
    """A graph as fused operators, each after those it reads from."""

    graph: Graph
    groups: FusibleGroups
    entries: tuple[FuseEntry, ...]
    _entry_of: Mapping[int, int] = field(repr=False)

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[FuseEntry]:
        return iter(self.entries)

    def entry_of(self, node_id: int) -> FuseEntry | None:
        """The entry an operator is in; `None` for inputs, constants and outputs."""
        index = self._entry_of.get(node_id)
        return None if index is None else self.entries[index]

    @property
    def outputs(self) -> tuple[Ref, ...]:
        """What the graph's outputs read, in the order of the model's signature, then what is
        assigned to variables.
        """
        return tuple(ref for node in self.graph.results for ref in node.inputs if ref is not None)


def fuse(graph: Graph, groups: FusibleGroups) -> FusedGraph:
    """The fused operators of `graph` under `groups`. Raises `GraphError` when a group would have to
    wait for itself.
    """
    members: dict[int, list[Node]] = {}
    for node in graph:
        if is_operator(node):
            members.setdefault(groups.root(node.id), []).append(node)
    names = Names()
    entries: list[FuseEntry] = []
    entry_of: dict[int, int] = {}
    for root in _execution_order(graph, groups, members):
        entry_of.update((node.id, len(entries)) for node in members[root])
        entries.append(_entry(graph, groups, len(entries) + 1, graph[root], members[root], names))
    return FusedGraph(graph, groups, tuple(entries), entry_of)


def _execution_order(
    graph: Graph, groups: FusibleGroups, members: Mapping[int, list[Node]]
) -> list[int]:
    """The roots, each group after those it reads from, and otherwise as the roots stand in the
    list.
    """
    by_rank = [node.id for node in graph if node.id in members]
    rank = {root: index for index, root in enumerate(by_rank)}
    readers: dict[int, set[int]] = {root: set() for root in members}
    waiting = dict.fromkeys(members, 0)
    for root, nodes in members.items():
        for producer in {
            groups.root(ref.node)
            for node in nodes
            for ref in node.inputs
            if ref is not None and is_operator(graph[ref.node])
        } - {root}:
            readers[producer].add(root)
            waiting[root] += 1
    ready = [rank[root] for root, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        root = by_rank[heapq.heappop(ready)]
        order.append(root)
        for reader in readers[root]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, rank[reader])
    if len(order) != len(members):
        stuck = graph[next(root for root, count in waiting.items() if count > 0)]
        raise GraphError(
            f"the fused group of operator '{stuck.name}' ({stuck.op}) would have to wait for itself"
        )
    return order


def _entry(
    graph: Graph, groups: FusibleGroups, number: int, root: Node, members: list[Node], names: Names
) -> FuseEntry:
    inside = {node.id for node in members}
    inputs: dict[Ref, None] = {}
    consts: dict[int, Node] = {}
    for node in members:
        for index, ref in enumerate(node.inputs):
            if ref is None or ref.node in inside:
                continue
            if is_inlined(graph, node, index):
                consts[ref.node] = graph[ref.node]
            else:
                inputs[ref] = None
    outputs = dict.fromkeys(root.ref(index) for index in range(len(root.outputs)))
    for node in members:
        outside = {
            ref
            for reader in graph.consumers(node)
            if reader.id not in inside
            for ref in reader.inputs
            if ref is not None and ref.node == node.id
        }
        outputs.update(dict.fromkeys(sorted(outside)))
    anchor, pattern = graph[groups.anchor(root.id)], groups.pattern_of(root.id)
    key = structural_key(
        graph, members, tuple(inputs), tuple(consts.values()), tuple(outputs), anchor
    )
    return FuseEntry(
        id=number,
        name=names.name(key, members),
        key=key,
        members=tuple(members),
        root=root,
        anchor=anchor,
        pattern=pattern,
        inputs=tuple(inputs),
        consts=tuple(consts.values()),
        outputs=tuple(outputs),
        flatten=pattern is Pattern.ELEMWISE,
        origin=NO_ORIGIN.union(*(node.origin for node in members)),
    )


def subgraph(fused: FusedGraph, entry: FuseEntry) -> Graph:
    """The entry as a graph of its own, to print it or to run it by reference: inputs `input0`, ...,
    outputs `output0`, ...

    Its nodes are copies with new ids and without origins; nested graphs are shared with the
    original.
    """
    graph = Graph(entry.name, Ledger(), Inference())
    placed: dict[Ref, Ref] = {}

    def add(original: Node, inputs: Sequence[Ref | None] = ()) -> Node:
        copy = copy_node(original, graph.new_id(), inputs)
        copy.origin = NO_ORIGIN
        return graph.append(copy)

    for const in entry.consts:
        placed[const.ref()] = add(const).ref()
    for index, ref in enumerate(entry.inputs):
        kinds, name = (fused.graph.type_of(ref),), f"input{index}"
        node = graph.append(Node(graph.new_id(), "Input", (), kinds, name=name))
        # A constant that is part of the code for one member and data for another is known by its
        # value.
        placed.setdefault(ref, node.ref())
    for member in entry.members:
        copy = add(member, [None if ref is None else placed[ref] for ref in member.inputs])
        placed.update((member.ref(index), copy.ref(index)) for index in range(len(member.outputs)))
    for index, ref in enumerate(entry.outputs):
        graph.append(Node(graph.new_id(), "Output", (placed[ref],), (), name=f"output{index}"))
    return graph
