"""Is an operator what it is said to be? Do its operands fit together, as far as their types and
constants tell, and do its outputs have the types that follow from them?

Kernels trust types. So every type is inferred again before kernels are made, when all is known that
they rely on, and what contradicts it is refused, whatever pass or file declared it.
"""

from __future__ import annotations

from collections.abc import Sequence

from whence.errors import ModelError
from whence.extent import estimate
from whence.graph.change import contradict
from whence.graph.display_name import display_name
from whence.graph.graph import Graph
from whence.graph.node import Node
from whence.ops.operands.rules import check_indices, check_operands
from whence.ops.registry import operators
from whence.ops.traits import Trait
from whence.types import TensorType, ValueType

# They neither add nor drop an element, whatever shapes they are given.
_SAME_ELEMENTS = operators(Trait.RESHAPE)


# More than any machine has, and few enough that sums of sizes fit into 64 bits.
_MOST_BYTES = 1 << 46


def why_it_fails(graph: Graph, node: Node) -> str:
    """Why the operator is certain to fail on operands of these types, and these constants; empty
    when it may work.
    """
    query = graph.query(node)
    try:
        check_operands(query)
        check_indices(query)
        if node.outputs and not node.bodies and not node.is_a("Input", "Const"):
            _check_outputs(node, graph.inference.infer(query))
            _check_elements(node, query.types)
            _check_size(node)
    except ModelError as error:
        return str(error)
    return ""


def check_claim(graph: Graph, node: Node, found: Sequence[ValueType]) -> None:
    """Raise `ModelError` when the file declares something else of the node's outputs than what was
    found out about them.
    """
    for claimed, kind in zip(graph.claims[node.id], found, strict=True):
        if claimed is not None and contradict(claimed, kind):
            raise ModelError(
                f"operator {display_name(node)} makes {kind}, and the model declares {claimed}"
            )


def _check_outputs(node: Node, found: Sequence[ValueType]) -> None:
    for known, kind in zip(node.outputs, found, strict=True):
        if contradict(known, kind):
            raise ModelError(f"{node.op}: it makes {kind}, and is said to make {known}")


def _check_size(node: Node) -> None:
    for kind in node.outputs:
        nbytes = kind.nbytes if isinstance(kind, TensorType) else None
        if nbytes is not None and estimate(nbytes) > _MOST_BYTES:
            raise ModelError(f"{node.op}: its result would be {kind}, of {nbytes} bytes")


def _check_elements(node: Node, types: Sequence[ValueType | None]) -> None:
    if node.op not in _SAME_ELEMENTS or not types:
        return
    before, after = types[0], node.outputs[0]
    if isinstance(before, TensorType) and isinstance(after, TensorType):
        counts = before.elements, after.elements
        if None not in counts and counts[0] != counts[1]:
            raise ModelError(f"{node.op}: {before} does not have as many elements as {after}")
