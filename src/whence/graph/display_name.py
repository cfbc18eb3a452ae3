"""What messages call a node: by the operator of the user's file that it stands for, whatever passes
made of it.
"""

from __future__ import annotations

from whence.graph.node import Node


def display_name(node: Node) -> str:
    """`'y' (If)`: the name, and the type that the file gives the operator of that name."""
    sources = node.graph.ledger.sources if node.graph is not None else []
    op = next(
        (source.op for number in node.origin if (source := sources[number - 1]).name == node.name),
        node.op,
    )
    # Both are the model's: what could break the line is escaped.
    return f"{node.name!r} ({op if op.isprintable() else repr(op)})"
