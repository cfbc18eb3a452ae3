"""Products of matrices whose rows were numbered through, only to be counted by axes again."""

from __future__ import annotations

from dataclasses import dataclass

from whence.graph import Graph, Node, Rewriter
from whence.graph.search import unique_consumer
from whence.ops.attributes import get_float, get_int
from whence.ops.definition import Attr
from whence.ops.registry import one_of
from whence.passes.base import RulePass
from whence.passes.layout.axes import reshape_target
from whence.passes.operands import is_float
from whence.passes.pattern import same_dim, shape_of


@dataclass(frozen=True, slots=True)
class ReshapeBeforeProduct(RulePass):
    """Moves a reshape that divides the rows of a product to before it, where it mostly meets the
    one that numbered them through:

    1. reshape(gemm(a, b, c)) becomes FusedMatMul(reshape(a), b, c), when a is not transposed and c
       is the same for all rows;
    2. reshape(matmul(a, b)) becomes MatMul(reshape(a), b), for one matrix b.

    Nothing then stands between the product and the activations and sums after it.
    """

    name = "reshape_before_product"
    summary = "reshape the rows of a product before it instead of after"
    anchors = one_of("Gemm", "MatMul")

    def visit(self, node: Node, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        reshape = unique_consumer(graph, node, "Reshape")
        if reshape is None or not is_float(graph, node.ref()) or not _is_by_rows(graph, node):
            return
        rows, total, wanted = (
            shape_of(graph, ref) for ref in (node.inputs[0], node.ref(), reshape.ref())
        )
        if (
            not rows
            or not total
            or not wanted
            or len(rows) != len(total)
            or len(wanted) < 3
            or not same_dim(wanted[-1], total[-1])
        ):
            return
        target = reshape_target(rows, (*wanted[:-1], rows[-1]))
        if target is None:
            return
        # reshape(a·b + c) = reshape(a)·b + c
        op, attrs = "MatMul", dict[str, Attr]()
        if node.op == "Gemm":
            op = "FusedMatMul"
            attrs["trans_b"] = get_int(node.attrs, "transB", 0)
            attrs["alpha"] = get_float(node.attrs, "alpha", 1.0)
        edit = rewriter.edit(
            node, reshape, rule=f"reshape({node.op.lower()}(a)) = {op}(reshape(a))"
        )
        before = edit.node("Reshape", [node.inputs[0], edit.sizes(target)], of=(reshape,))
        made = edit.node(op, [before.ref(), *node.inputs[1:]], attrs, reshape.outputs, of=(node,))
        edit.finish(reshape, made)


def _is_by_rows(graph: Graph, node: Node) -> bool:
    """Does every row of the result follow from the same row of `a` alone, in the same way?"""
    if node.op == "MatMul":
        right = shape_of(graph, node.operand("B"))
        return right is not None and len(right) == 2
    bias = shape_of(graph, node.operand("C"))
    same_for_all = (
        bias is not None
        and all(dim == 1 for dim in bias[:-1])
        and get_float(node.attrs, "beta", 1.0) == 1.0
    )
    return not get_int(node.attrs, "transA", 0) and (node.operand("C") is None or same_for_all)
