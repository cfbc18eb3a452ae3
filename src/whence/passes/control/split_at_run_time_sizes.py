"""What reads a value whose size only a run knows is compiled when the run knows it.

1. g(f(x)) = Continuation(g)(f(x)) where the shape of f(x) follows from the data: NonZero,
   NonMaxSuppression, a Range or Slice whose limits are computed, what a loop gives

2. Range(a, b, 1) = Range(a, a + n, 1) and ConstantOfShape([n]) = ConstantOfShape(Shape(Rows(n))),
   where n is the size of Rows(n), which only has a size

f runs by its reference, and g, which is everything that reads such values and what stands between,
is a nested graph whose inputs have open sizes. Where f only says how many rows are meant (Prefix,
Rows), it does not run either: the continuation is entered with these rows. It is compiled for the
sizes of the first run, and like any model with open sizes serves others too (`runtime/bodies.py`);
behind a size that is not known even then it is split again. What reads and makes values of known
sizes stays where it is.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

import numpy as np

from whence.graph import Graph, Node, Ref, Rewriter
from whence.graph.change import Change
from whence.graph.copying import copy_node
from whence.graph.display_name import display_name
from whence.graph.guards import guards_of_nodes
from whence.graph.maker import Maker
from whence.graph.node import Creation
from whence.graph.state import BOUNDARY
from whence.ops.definition import Attr, OpClass
from whence.ops.registry import classes_of
from whence.ops.tensor.counted import FIRST_ROWS, PREFIX, ROWS, SIZES
from whence.passes.base import Pass
from whence.provenance import EdgeKind
from whence.provenance.ledger import Entry
from whence.types import DType, TensorType, ValueType

CONTINUATION = "Continuation"
_SIZE = "what fills so many elements needs only their number"
_RULE = "what needs a size that only a run knows is compiled by itself"
_WORTH_IT = OpClass.CONV | OpClass.MATMUL | OpClass.RECURRENT | OpClass.NORM | OpClass.POOL
_FEWEST = 8
"""Operators that are worth compiling, where none of them takes long by itself."""


@dataclass(frozen=True, slots=True)
class SplitAtRunTimeSizes(Pass):
    name = "split_at_run_time_sizes"
    summary = "compile what follows a data-dependent size when a run knows it"

    def run(self, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        if any(_is_unsized(node.type) for node in graph.inputs):
            # The body of a loop or a branch, or a model that is not compiled yet.
            return
        late = _readers_of_unsized(graph)
        if late and _is_worth_it(late) and _run_together(graph, late):
            if _only_sizes(rewriter, late):
                late = _readers_of_unsized(graph)
            if _run_together(graph, late):
                _outline(rewriter, late)


def _is_unsized(kind: ValueType) -> bool:
    """Is it a tensor of numbers whose size is not known when the model is compiled?"""
    return isinstance(kind, TensorType) and not kind.is_static and kind.dtype is not DType.STRING


def _readers_of_unsized(graph: Graph) -> list[Node]:
    """The operators that read a value whose size only a run knows, and those on the way from one of
    them to another, in order.
    """
    if not any(_is_unsized(kind) for node in graph for kind in node.outputs):
        return []
    behind: set[int] = set()
    reading: set[int] = set()
    nodes = [node for node in graph if node.op not in BOUNDARY]
    for node in nodes:
        if any(ref is not None and _is_unsized(graph.type_of(ref)) for ref in node.inputs):
            reading.add(node.id)
            behind.add(node.id)
        elif any(ref is not None and ref.node in behind for ref in node.inputs):
            behind.add(node.id)
    before: set[int] = set()
    for node in reversed(nodes):
        if node.id in reading or node.id in before:
            before.update(ref.node for ref in node.inputs if ref is not None)
    return [node for node in nodes if node.id in reading or node.id in behind & before]


def _run_together(graph: Graph, nodes: Sequence[Node]) -> bool:
    """Does every run need all of them or none? In a graph of their own, what stands under another
    condition than the others would run always.
    """
    guards = guards_of_nodes(graph)
    return len({guards.get(node.id, ()) for node in nodes}) == 1


def _is_worth_it(nodes: Sequence[Node]) -> bool:
    return len(nodes) >= _FEWEST or any(classes_of(node.op) & _WORTH_IT for node in nodes)


def _only_sizes(rewriter: Rewriter, late: Sequence[Node]) -> bool:
    """Rule 2, where only these nodes read the result: then they need no more than its size."""
    graph = rewriter.graph
    inside = {node.id for node in late}
    filling = [
        node
        for node in graph
        if node.is_a("Range", "ConstantOfShape")
        and node.id not in inside
        and _is_unsized(node.type)
        and all(each.id in inside for each in graph.consumers(node))
    ]
    made = [_by_size(rewriter, node) for node in filling]
    return any(made)


def _by_size(rewriter: Rewriter, node: Node) -> bool:
    graph = rewriter.graph
    kind = graph.tensor_type(node.inputs[0])
    if kind is None:
        return False
    edit = rewriter.edit(node, rule=_SIZE)
    make = Maker(edit)
    if node.op == "ConstantOfShape":
        if kind.shape != (1,):
            return False
        size = make("Shape", make(ROWS, node.inputs[0]))
        edit.replace(node.ref(), make("ConstantOfShape", size, **node.attrs))
    else:
        start, limit, step = node.inputs[:3]
        if graph.const_value(start) is None or kind.dtype is not DType.I64 or kind.shape:
            return False
        if graph.const_value(step) != 1:
            return False
        length = make("Max", make("Sub", limit, start), edit.const(np.array(0, np.int64)))
        size = make("Shape", make(ROWS, length))
        scalar = make("Squeeze", size, edit.const(np.array([0], np.int64)))
        edit.replace(node.ref(), make("Range", start, make("Add", scalar, start), step))
    return edit.apply()


def _outline(rewriter: Rewriter, nodes: Sequence[Node]) -> None:
    """Move the nodes into a nested graph. No way leads from one of them to another through
    others.
    """
    graph = rewriter.graph
    inside = {node.id for node in nodes}
    taken = dict.fromkeys(
        ref for node in nodes for ref in node.inputs if ref is not None and ref.node not in inside
    )
    behind = _behind(graph, inside)
    given = dict.fromkeys(
        ref for node in behind for ref in node.inputs if ref is not None and ref.node in inside
    )
    if not given:
        return
    body, inner = _body(rewriter, nodes, list(taken), list(given))
    inputs, attrs, replaced = _entries(graph, list(taken), inside, body)
    types = tuple(graph.type_of(ref) for ref in given)
    node = Node(graph.new_id(), CONTINUATION, inputs, types, attrs, bodies={"body": body})
    # What is behind may stand anywhere after what it reads, and the continuation reads more.
    for each in behind:
        _move_to_end(graph, each)
    # Graphs that go over to a copy must not be found at the node that leaves.
    for each in nodes:
        each.bodies = {}
    change = Change(
        graph,
        rewriter.pass_name,
        _RULE,
        added=[node],
        before=behind[0],
        redirects={ref: node.ref(index) for index, ref in enumerate(given)},
        removed=[*nodes, *replaced],
    )
    rewriter.applied(change, change.apply())
    graph.ledger.record_step(
        Entry(copy.id, ((each.id, EdgeKind.COPY),), rewriter.pass_name, _RULE)
        for each, copy in zip(nodes, inner, strict=True)
    )


def _entries(
    graph: Graph, taken: list[Ref], inside: Container[int], body: Graph
) -> tuple[list[Ref], dict[str, Attr], list[Node]]:
    """What a continuation reads in place of values that have no more than a size to be made; its
    attributes, which list the places of these among `taken`; and the operators that are replaced.
    How many rows are meant of those in `FIRST_ROWS` comes before all that is taken.
    """
    counts: list[Ref] = []
    first: list[int] = []
    sizes: list[int] = []
    replaced: list[Node] = []
    for place, ref in enumerate(taken):
        node = graph[ref.node]
        if node.op not in (PREFIX, ROWS) or node.retained:
            continue
        if not all(each.id in inside for each in graph.consumers(node)):
            continue
        taken[place], *count = (each for each in node.inputs if each is not None)
        counts += count
        (first if count else sizes).append(place)
        if not count:
            # For who is told that it cannot be.
            body.inputs[place].name = display_name(node)
        replaced.append(node)
    attrs: dict[str, Attr] = {"captures": len(taken), FIRST_ROWS: tuple(first), SIZES: tuple(sizes)}
    return [*counts, *taken], attrs, replaced


def _behind(graph: Graph, inside: Container[int]) -> list[Node]:
    """What depends on these nodes and is none of them, in order."""
    found: dict[int, Node] = {}
    for node in graph:
        if node.id not in inside and any(
            ref is not None and (ref.node in inside or ref.node in found) for ref in node.inputs
        ):
            found[node.id] = node
    return list(found.values())


def _body(
    rewriter: Rewriter, nodes: Sequence[Node], taken: Sequence[Ref], given: Sequence[Ref]
) -> tuple[Graph, list[Node]]:
    """A graph with copies of the nodes, and the copies."""
    graph = rewriter.graph
    body = Graph(f"{graph.name} continued", graph.ledger, graph.inference)
    inner: dict[Ref, Ref] = {}
    for index, ref in enumerate(taken):
        entry = Node(body.new_id(), "Input", (), (graph.type_of(ref),), name=f"in{index}")
        inner[ref] = body.append(entry).ref()
    copies = []
    for node in nodes:
        inputs = [None if ref is None else inner[ref] for ref in node.inputs]
        copy = copy_node(node, body.new_id(), inputs)
        copy.creation = Creation(((node.id, EdgeKind.COPY),), rewriter.pass_name, _RULE)
        copies.append(body.append(copy))
        for index in range(len(node.outputs)):
            inner[node.ref(index)] = copy.ref(index)
    for index, ref in enumerate(given):
        body.append(Node(body.new_id(), "Output", (inner[ref],), (), name=f"out{index}"))
    return body, copies


def _move_to_end(graph: Graph, node: Node) -> None:
    last = graph.last
    if last is not None and last is not node:
        graph._relink(node, last, None)
