"""Do an operator's operands fit together, as far as their types and constants tell?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whence.errors import ModelError
from whence.graph.node import Node
from whence.ops.definition import TypeQuery
from whence.ops.operand_rules import check_indices, check_operands

if TYPE_CHECKING:
    from whence.graph.graph import Graph


def why_it_fails(graph: Graph, node: Node) -> str:
    """Why the operator is certain to fail on operands of these types, and these constants; empty
    when it may work.
    """
    types = tuple(None if ref is None else graph.type_of(ref) for ref in node.inputs)
    query = TypeQuery(
        node.op,
        node.attrs,
        types,
        tuple(graph.const_value(ref) for ref in node.inputs),
        len(node.outputs),
    )
    try:
        check_operands(query)
        check_indices(query)
    except ModelError as error:
        return str(error)
    return ""
