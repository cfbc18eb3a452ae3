"""Edits that take in constants which earlier folding made of source operators: whoever absorbs such
a constant inherits from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from whence.graph import Edit, Graph, Node, Ref, Rewriter
from whence.graph.maker import Maker
from whence.provenance import EdgeKind


def consts_with_origin(graph: Graph, refs: Iterable[Ref | None]) -> list[Node]:
    """The constants among `refs` that earlier folding made of source operators."""
    producers = [graph.producer(ref) for ref in refs if ref is not None]
    return [node for node in producers if node.is_const and node.origin]


def absorbing(rewriter: Rewriter, nodes: Sequence[Node], rule: str) -> Edit:
    """A rewrite of `nodes` and of the constants that they read."""
    refs = [ref for node in nodes for ref in node.inputs]
    return rewriter.edit(*consts_with_origin(rewriter.graph, refs), *nodes, rule=rule)


def lowering(rewriter: Rewriter, node: Node, rule: str) -> Maker:
    """Makes the operators that `node`, together with the constants that it reads, becomes."""
    edit = rewriter.edit(node, rule=rule, kind=EdgeKind.LOWER)
    parents = (*consts_with_origin(rewriter.graph, node.inputs), node)
    return Maker(edit, parents, EdgeKind.SPLIT)
