"""Outputs of which a caller reads only what is last along an axis.

A language model scores what could follow each token of a prompt, and who generates text reads the
scores of the last one. The others need not be computed: what is last is taken as far above the
output as operators compute row by row, so before the product with the whole vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from whence.errors import InputError
from whence.graph.change import Change
from whence.graph.graph import Graph
from whence.graph.node import Creation, Node, Ref
from whence.graph.state import BOUNDARY
from whence.ops.definition import TypeQuery
from whence.ops.registry import lookup, operators
from whence.ops.traits import Trait
from whence.provenance import EdgeKind
from whence.types import TensorType

_NAME = "only_last"
_ROW_WISE, _PRODUCTS = operators(Trait.ROW_WISE), operators(Trait.PRODUCT)
_MATRIX = 2


def only_last(graph: Graph, outputs: Mapping[str, int]) -> Graph:
    """Leave of the named outputs, in place, what is last along an axis, which then has one
    element.
    """
    by_name = {node.name: node for node in graph.outputs}
    for name, axis in outputs.items():
        if name not in by_name:
            raise InputError(
                f"{_NAME}: the model has no output {name!r}; it has"
                f" {', '.join(map(repr, by_name)) or 'none'}"
            )
        _shorten(graph, by_name[name], axis)
    return graph


def _shorten(graph: Graph, output: Node, axis: int) -> None:
    ref = output.first_input
    rank = _rank(graph, ref)
    if rank is None or not -rank <= axis < rank:
        raise InputError(
            f"{_NAME}: output {output.name!r} is {graph.type_of(ref)}, which has no axis {axis}"
        )
    # op(x)[last row] = op(x[last row])
    readers = [output]
    while _is_row_wise(graph, ref, rank, axis % rank):
        readers.append(graph.producer(ref))
        ref = readers[-1].first_input
    *rest, reader = readers
    graph.set_input(reader, 0, _last_of(graph, ref, axis % rank, reader).ref())
    for node in (reader, *reversed(rest)):
        if node is not output:
            _infer_again(graph, node)


def _last_of(graph: Graph, ref: Ref, axis: int, reader: Node) -> Node:
    """A new node before the reader: what is last of the value along the axis."""
    index = np.array([-1], np.int64)
    const = Node(graph.new_id(), "Const", (), (TensorType.of(index),), value=index)
    attrs = {"axis": axis}
    query = TypeQuery("Gather", attrs, (graph.type_of(ref), const.type), (None, index), 1)
    source = graph.producer(ref)
    parent = source if reader.op in BOUNDARY else reader
    node = Node(
        graph.new_id(),
        "Gather",
        (ref, const.ref()),
        graph.inference.infer(query),
        attrs,
        name=source.name,
        origin=parent.origin,
    )
    node.creation = Creation(((parent.id, EdgeKind.INSERT),), _NAME, _NAME)
    Change(graph, _NAME, _NAME, added=[node], consts=[const], before=reader).apply()
    return node


def _infer_again(graph: Graph, node: Node) -> None:
    """The types of a node that reads less than the file says; what that claims is not so."""
    graph.set_types(node, graph.inference.infer(graph.query(node)))
    graph.claims.pop(node.id, None)


def _is_row_wise(graph: Graph, ref: Ref, rank: int, axis: int) -> bool:
    """Is the value used once, and what is last of it computed from what is last of the producer's
    first operand, and from things that all rows share?
    """
    node = graph.producer(ref)
    first = node.input(0)
    if first is None or len(node.outputs) != 1 or len(graph.uses(ref)) != 1 or node.bodies:
        return False
    if _rank(graph, first) != rank:
        return False
    others = [_rank(graph, each) for each in node.inputs[1:] if each is not None]
    if node.op in _ROW_WISE:
        # A single matrix serves all rows; of several, each has rows of its own.
        shared = node.op not in _PRODUCTS or all(
            each is not None and each <= _MATRIX for each in others
        )
        return axis < rank - 1 and shared
    return not others and lookup(node.op).by_element


def _rank(graph: Graph, ref: Ref) -> int | None:
    kind = graph.tensor_type(ref)
    return None if kind is None else kind.rank
