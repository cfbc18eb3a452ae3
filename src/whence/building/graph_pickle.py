"""What explains a program, as bytes, or as a copy in which open sizes are numbers.

Pickled, because it is a web of graphs, nodes and records that only whence reads and that changes
with its source, whose digest is in the key of the entry. `building/restricted_unpickler.py` reads
it.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import numpy as np

from whence.building.restricted_unpickler import load
from whence.extent import evaluate, is_symbolic
from whence.graph import Graph, Node
from whence.ops.types.inference import Inference
from whence.provenance import Ledger

PROTOCOL = 5
_state = attrgetter(
    "id", "op", "inputs", "outputs", "attrs", "name", "origin", "value", "bodies", "flags"
)
"""The row of a node."""


def dump(what: object) -> bytes:
    """The bytes of a graph, or of anything made of graphs, their nodes and plain records."""
    file = io.BytesIO()
    _GraphPickler(file, PROTOCOL).dump(what)
    return file.getvalue()


def evaluated(what: Any, sizes: Mapping[str, int]) -> Any:
    """A copy for these sizes of the dimensions; constants are shared with it."""
    file = io.BytesIO()
    pickler = _Evaluator(file, sizes)
    pickler.dump(what)
    return load(file.getbuffer(), pickler.shared)


class _GraphPickler(pickle.Pickler):
    # Nodes are linked in a list as long as the graph, and pickle would follow it by recursion. So a
    # graph is written as the rows of its nodes, and a node as its number in its graph.
    def reducer_override(self, obj: object) -> Any:
        if isinstance(obj, Graph):
            return _graph, (
                obj.name,
                obj.ledger,
                dict(obj.metadata),
                [_state(node) for node in obj],
                obj._signature,
                dict(obj.dimensions),
            )
        if isinstance(obj, Node):
            if obj.graph is None:
                raise pickle.PicklingError(f"{obj!r} is in no graph")
            return _node, (obj.graph, obj.id)
        return NotImplemented


class _Evaluator(_GraphPickler):
    def __init__(self, file: io.BytesIO, sizes: Mapping[str, int]) -> None:
        super().__init__(file, PROTOCOL)
        self._sizes = sizes
        self.shared: list[np.ndarray] = []

    def persistent_id(self, obj: object) -> int | None:
        # Nobody writes to a constant, and there may be gigabytes of them.
        if type(obj) is not np.ndarray or obj.dtype == np.object_:
            return None
        self.shared.append(obj)
        return len(self.shared) - 1

    def reducer_override(self, obj: object) -> Any:
        if is_symbolic(obj):
            return int, (evaluate(obj, self._sizes),)  # type: ignore[arg-type]
        return super().reducer_override(obj)


def _graph(
    name: str,
    ledger: Ledger,
    metadata: dict[str, str],
    nodes: list[tuple[Any, ...]],
    signature: dict[str, dict[int, None]],
    dimensions: dict[str, int],
) -> Graph:
    graph = Graph(name, ledger, Inference())
    graph.metadata = metadata
    graph.dimensions = dimensions
    for *given, label, origin, value, bodies, flags in nodes:
        graph._adopt(
            Node(*given, name=label, origin=origin, value=value, bodies=bodies, flags=flags)
        )
    # The order of the signature is not that of the list when an input was put in or moved later.
    graph._signature = signature
    return graph


def _node(graph: Graph, node_id: int) -> Node:
    return graph[node_id]
