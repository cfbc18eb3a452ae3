"""The graph, its invariants, and the ways to change it."""

from whence.graph.check import Check, check_graph
from whence.graph.edit import Edit, Rewriter
from whence.graph.graph import Graph
from whence.graph.node import Node, NodeFlag, Ref
from whence.graph.printer import print_graph, print_node

__all__ = [
    "Check",
    "Edit",
    "Graph",
    "Node",
    "NodeFlag",
    "Ref",
    "Rewriter",
    "check_graph",
    "print_graph",
    "print_node",
]
