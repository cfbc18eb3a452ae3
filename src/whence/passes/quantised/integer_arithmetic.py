"""Quantised operators compute on their codes.

1. quantise(f(dequantise(x), ...)) = f on integers, for the operators below; the rules and their
   arithmetic are in `integer_*.py`
2. a QuantizeLinear that was made for LiteRT's arithmetic follows LiteRT's reference kernels bit for
   bit, any other ONNX Runtime's
3. what no rule covers stays dequantise, compute, quantise

The result is in operators of `ops/quantised/integer.py` and in plain ones on integers, so that
fusion makes one kernel of a sum and all that follows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from whence.graph import Node, Rewriter
from whence.ops.definition import OpClass
from whence.ops.registry import one_of
from whence.passes.base import RulePass
from whence.passes.operands import CONVOLUTIONS, PRODUCTS
from whence.passes.quantised.integer_codes import ON_CODES, rewrite_max_pool, rewrite_on_codes
from whence.passes.quantised.integer_convolutions import rewrite_conv_integer, rewrite_convolution
from whence.passes.quantised.integer_elementwise import (
    rewrite_multiplication,
    rewrite_prelu,
    rewrite_requantisation,
    rewrite_sum,
    rewrite_wide_unary,
)
from whence.passes.quantised.integer_hybrid import HYBRIDS, rewrite_hybrid
from whence.passes.quantised.integer_matmul import rewrite_product, rewrite_real_product
from whence.passes.quantised.integer_reductions import (
    REDUCTIONS,
    rewrite_average_pool,
    rewrite_reduction,
)
from whence.passes.quantised.integer_resize import rewrite_resize
from whence.passes.quantised.integer_softmax import rewrite_softmax
from whence.passes.quantised.integer_tables import rewrite_table
from whence.passes.quantised.quantised_op import QuantisedOp, quantised_op

_Rule = Callable[[QuantisedOp, Rewriter], bool]

_RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(ON_CODES, rewrite_on_codes),
    **dict.fromkeys(CONVOLUTIONS, rewrite_convolution),
    **dict.fromkeys(PRODUCTS, rewrite_product),
    **dict.fromkeys(REDUCTIONS, rewrite_reduction),
    "ChannelsLastAveragePool": rewrite_average_pool,
    # Of a product and its bias.
    "Add": rewrite_product,
}
_LITERT_RULES: Mapping[str, _Rule] = {
    "Add": rewrite_sum,
    "Clip": rewrite_wide_unary,
    "LeakyRelu": rewrite_wide_unary,
    "Mul": rewrite_multiplication,
    "PRelu": rewrite_prelu,
    "Resize": rewrite_resize,
    "Softmax": rewrite_softmax,
    "Relu": rewrite_wide_unary,
    "Sub": rewrite_sum,
}


@dataclass(frozen=True, slots=True)
class IntegerArithmetic(RulePass):
    """Turn dequantise, compute, quantise into arithmetic on codes."""

    name = "integer_arithmetic"
    summary = "compute quantised operators on integers"
    classes = OpClass.QUANTISE
    rounds_otherwise = True
    anchors = HYBRIDS | one_of("QuantizeLinear", "ConvInteger", "MaxPool")

    def visit(self, node: Node, rewriter: Rewriter) -> None:
        if node.op == "ConvInteger":
            rewrite_conv_integer(node, rewriter)
        elif node.op == "MaxPool":
            rewrite_max_pool(node, rewriter)
        elif node.op == "QuantizeLinear":
            _visit_quantiser(node, rewriter)
        elif not rewrite_hybrid(node, rewriter) and node.op == "MatMul":
            _visit_product(node, rewriter)


def _visit_quantiser(last: Node, rewriter: Rewriter) -> None:
    match = quantised_op(rewriter.graph, last)
    if match is not None:
        tables = [_RULES, _LITERT_RULES] if match.is_fixed_point else [_RULES]
        rules = [table.get(match.op.op) for table in tables]
        if any(rule is not None and rule(match, rewriter) for rule in rules):
            return
    if not rewrite_table(last, rewriter):
        rewrite_requantisation(last, rewriter)


def _visit_product(node: Node, rewriter: Rewriter) -> None:
    """A product that is quantised again, with or without an addition, is left to its
    QuantizeLinear.
    """
    graph = rewriter.graph
    users = graph.consumers(node)
    behind = [after for user in users if user.op == "Add" for after in graph.consumers(user)]
    if not any(each.is_a("QuantizeLinear", "Relu", "Clip") for each in (*users, *behind)):
        rewrite_real_product(node, rewriter)
