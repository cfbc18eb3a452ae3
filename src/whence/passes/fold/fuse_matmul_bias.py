"""A matrix product and the sum after it are one Gemm."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whence.graph import Graph, Node, Rewriter
from whence.ops.attributes import get_float
from whence.ops.registry import one_of, operators
from whence.ops.traits import Trait
from whence.passes.base import RulePass
from whence.passes.operands import broadcasts_into, is_addition, is_float, other_operand
from whence.passes.origins import consts_with_origin
from whence.passes.pattern import only_user, rank_of, shape_of


@dataclass(frozen=True, slots=True)
class FuseMatmulBias(RulePass):
    """Fuses products of matrices with the addition that is their only consumer:

    1. MatMul(a, b) + c becomes Gemm(a, b, c), for matrices a and b;
    2. Gemm(a, b) + c becomes Gemm(a, b, c), when the Gemm adds nothing yet.

    c is any value, constant or not, that broadcasts to the shape of the product without changing
    it.
    """

    name = "fuse_matmul_bias"
    summary = "fuse a matrix product and an addition into Gemm"
    anchors = one_of("MatMul", "Gemm")

    def visit(self, node: Node, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        addition = only_user(graph, node, operators(Trait.ADDS))
        if (
            addition is None
            or not is_addition(addition)
            or not _adds_nothing(graph, node)
            or not is_float(graph, node.ref())
        ):
            return
        addend = other_operand(addition, node.ref())
        product = shape_of(graph, node.ref())
        if (
            product is None
            or len(product) != 2
            or not broadcasts_into(shape_of(graph, addend), product)
        ):
            return
        # a·b + c = gemm(a, b, c)
        rule = "gemm(a, b) + c = gemm(a, b, c)"
        if node.op == "MatMul":
            rule = "matmul(a, b) + c = gemm(a, b, c)"
        edit = rewriter.edit(*consts_with_origin(graph, node.inputs[2:]), node, addition, rule=rule)
        attrs = {name: value for name, value in node.attrs.items() if name != "beta"}
        made = edit.node("Gemm", (*node.inputs[:2], addend), attrs, addition.outputs)
        edit.finish(addition, made)


def _adds_nothing(graph: Graph, node: Node) -> bool:
    """Is it a product of two matrices and no more?"""
    if node.op == "MatMul":
        return all(rank_of(graph, ref) == 2 for ref in node.inputs)
    bias = graph.const_value(node.operand("C"))
    return (
        node.operand("C") is None
        or get_float(node.attrs, "beta", 1.0) == 0
        or (bias is not None and not np.any(bias))
    )
