"""The structure of a graph as text: equal texts mean equal computations, whatever the ids, names,
order and history.

Nodes are numbered as a walk from the outputs reaches them, and only what outputs need appears. The
names of a model's own inputs and outputs are part of it; those of a nested graph are not, only
their places are.
"""

from __future__ import annotations

import hashlib

import numpy as np

from whence.graph.escaping import escape
from whence.graph.graph import Graph
from whence.graph.node import Node, Ref
from whence.ops.definition import Attr
from whence.types import TensorType


def structure(graph: Graph, *, values: bool = True) -> str:
    """One line a node in a canonical order. With `values`, constants show their contents (large
    ones a digest).
    """
    return "\n".join(_lines(graph, values, nested=False))


def _lines(graph: Graph, values: bool, nested: bool) -> list[str]:
    numbers: dict[int, int] = {}
    order: list[Node] = []
    for result in graph.results:
        _visit(graph, result, numbers, order)
    labels = {
        node.id: repr(place if nested else node.name)
        for ends in (graph.inputs, graph.outputs)
        for place, node in enumerate(ends)
    } | {node.id: repr(node.name) for node in graph.variables}
    head = "inputs " + ", ".join(
        f"{labels[node.id]}:{escape(str(node.type))}" for node in graph.inputs
    )
    return [head, *(_line(node, numbers, labels, values) for node in order)]


def _visit(graph: Graph, root: Node, numbers: dict[int, int], order: list[Node]) -> None:
    # An explicit stack: chains of a million nodes are deeper than Python's.
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if node.id in numbers:
            continue
        if ready:
            numbers[node.id] = len(numbers)
            order.append(node)
            continue
        stack.append((node, True))
        stack.extend(
            (graph[ref.node], False)
            for ref in reversed(node.inputs)
            if ref is not None and ref.node not in numbers
        )


def _line(node: Node, numbers: dict[int, int], labels: dict[int, str], values: bool) -> str:
    def name(ref: Ref | None) -> str:
        return (
            "-" if ref is None else f"%{numbers[ref.node]}" + (f".{ref.index}" if ref.index else "")
        )

    types = escape(", ".join(map(str, node.outputs)))
    parts = [
        f"%{numbers[node.id]} {types} = {escape(node.op)}({', '.join(map(name, node.inputs))})"
    ]
    if node.id in labels:
        parts.append(labels[node.id])
    if node.value is not None and values:
        parts.append(_contents(node.value))
    parts.extend(f"{escape(key)}={_exact(value)}" for key, value in sorted(node.attrs.items()))
    parts.extend(
        f"{escape(key)}={{{'; '.join(_lines(body, values, nested=True))}}}"
        for key, body in sorted(node.bodies.items())
    )
    return " ".join(parts)


def _exact(value: Attr) -> str:
    if isinstance(value, np.ndarray):
        return f"{TensorType.of(value)}{_contents(value)}"
    return repr(value)


def _contents(value: np.ndarray) -> str:
    if value.size <= 8:
        return str(value.reshape(-1).tolist())
    data = repr(value.tolist()).encode() if value.dtype.kind in "OUST" else value.tobytes()
    return "sha:" + hashlib.sha256(data).hexdigest()[:12]
