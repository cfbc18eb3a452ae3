"""Edits of which several passes make the like. Some take in constants which earlier folding made of
source operators: whoever absorbs such a constant inherits from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from whence.graph import Edit, Graph, Node, Ref, Rewriter
from whence.graph.maker import Maker
from whence.ops.definition import Attr
from whence.passes.pattern import is_closed
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


def become_one(
    rewriter: Rewriter, nodes: Sequence[Node], op: str, x: Ref, attrs: Mapping[str, Attr], rule: str
) -> bool:
    """Put `op` of x in the place of the nodes, the last of which makes the result, if nobody else
    needs any of them. True when done.
    """
    if not is_closed(nodes, nodes[-1]):
        return False
    edit = rewriter.edit(*nodes, rule=rule)
    return edit.finish(nodes[-1], edit.node(op, [x], attrs))
