"""The 32-bit prefilter Hexagon NN keeps on every node: which ids its inputs may refer to.

Our graph indexes consumers exactly and needs no prefilter. The function is kept because tools that
speak the seed's language print it, and because it documents what our index replaces: ids 5 and
0x1001 share a bit.
"""

from __future__ import annotations

from whence.graph.node import Node

_MULTIPLIER = 2654435761


def id_mask(node_id: int) -> int:
    """The one bit that stands for this id."""
    return 1 << ((node_id * _MULTIPLIER & 0xFFFFFFFF) >> 27)


def node_ref_hash(node: Node) -> int:
    """The bits of all ids the node reads."""
    bits = 0
    for ref in node.inputs:
        if ref is not None:
            bits |= id_mask(ref.node)
    return bits
