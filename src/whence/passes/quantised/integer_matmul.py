"""Matrix products of codes.

1. q(matmul(dq(a), dq(b)) + dq(c)) = tail(matmul_integer(a, b) + c), likewise for Gemm
2. matmul(dq(a), dq(b)) = float(matmul_integer(a, b)) · scales, where the product is not quantised
   again and b is constant

Codes of 16 bits are multiplied and summed in 64 bits.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from whence.graph import Graph, Node, Ref, Rewriter
from whence.graph.edit import Edit
from whence.graph.maker import Maker
from whence.graph.search import is_single_consumer
from whence.ops.attributes import get_int
from whence.passes.layout.axes import last_two_swapped
from whence.passes.operands import PRODUCTS
from whence.passes.origins import absorbing
from whence.passes.parameters import only_multiplies
from whence.passes.pattern import static_shape_of
from whence.passes.quantised.integer_sums import (
    WEIGHTS,
    bias_of,
    biased,
    combined_scales,
    makers_of_sums,
    scale_of,
    tail,
    whole_bytes,
    zero_points,
)
from whence.passes.quantised.quantised_op import (
    BYTES,
    CODES,
    QuantisedOp,
    QuantisedOperand,
    operand_of,
    scales_along,
)
from whence.types import DType


class _Product(NamedTuple):
    """A product of codes, and what is added to it."""

    node: Node
    a: QuantisedOperand
    b: QuantisedOperand
    transposed: bool
    """The last two axes of b are the other way round."""
    bias: Ref | None
    addition: Node | None
    """The Add that adds the bias, when the product does not."""

    @property
    def nodes(self) -> list[Node]:
        added = [] if self.addition is None else [self.addition]
        return list(dict.fromkeys([self.a.node, self.b.node, self.node, *added]))


def _product(graph: Graph, node: Node, addition: Node | None = None) -> _Product | None:
    """The product `node` when it is one of codes, with `addition` after it."""
    a, b = (operand_of(graph, ref) for ref in node.inputs[:2])
    if (
        a is None
        or b is None
        or not a.coding.is_single
        or a.coding.dtype not in CODES
        or a.shape is None
        or b.shape is None
    ):
        return None
    if (
        b.coding.dtype not in (CODES if b.value is None else WEIGHTS | CODES)
        or min(len(a.shape), len(b.shape)) < 2
        or not only_multiplies(node)
    ):
        return None
    transposed = bool(get_int(node.attrs, "transB", 0))
    if scales_along(b, len(b.shape) - (2 if transposed else 1)) is None or (
        not b.coding.is_single and len(b.shape) != 2
    ):
        return None
    bias = node.operand("C")
    if addition is not None:
        bias = addition.inputs[1 - addition.inputs.index(node.ref())]
    if bias is not None:
        shape, columns = static_shape_of(graph, bias), b.shape[-2 if transposed else -1]
        if shape is None or shape[-1:] != (columns,) or math.prod(shape) != columns:
            return None
    return _Product(node, a, b, transposed, bias, addition)


def _find(graph: Graph, node: Node) -> _Product | None:
    """The product that `node` is, or that it adds a vector to."""
    if node.op in PRODUCTS:
        return _product(graph, node)
    for ref in node.inputs if node.op == "Add" else ():
        producer = None if ref is None else graph.producer(ref)
        if (
            producer is not None
            and producer.op == "MatMul"
            and is_single_consumer(graph, producer, node)
            and node.inputs.count(ref) == 1
        ):
            found = _product(graph, producer, node)
            if found is not None:
                return found
    return None


# q(matmul(dq(a), dq(b)) + dq(c)) = tail(matmul_integer(a, b) + c)
def rewrite_product(match: QuantisedOp, rewriter: Rewriter) -> bool:
    """True when the rule applied."""
    graph = rewriter.graph
    product = _find(graph, match.op)
    if product is None:
        return False
    a, b = product.a, product.b
    bias = bias_of(graph, product.bias, a, b, is_fixed_point=match.is_fixed_point)
    if bias is None:
        return False
    is_wide = DType.I16 in {a.coding.dtype, b.coding.dtype}
    # Of 16 bits, LiteRT scales the products with constants in double precision, the others in
    # integers. LiteRT's fully connected layers, which have constant weights, round once; its
    # products of two tensors twice.
    is_layer = b.value is not None and len(b.shape or ()) == 2
    scales = combined_scales(match, a, b, in_double=is_wide or not b.coding.is_single)
    scale = scale_of(match, scales, in_double=is_wide and b.value is not None)
    if scale is None:
        return False
    rule = f"quantise({product.node.op}(dequantise(x))) = integer sums, scaled"
    edit = absorbing(rewriter, list(dict.fromkeys([*product.nodes, *match.matched])), rule)
    of = makers_of_sums(product.nodes, bias)
    sums = biased(edit, _sums(edit, product, of), bias, of)
    made = tail(edit, match, sums, scale, rounding="single" if is_layer else "double")
    return edit.finish(match.last.ref(), made)


# matmul(dq(a), dq(b)) = float(matmul_integer(a, b)) · scales
def rewrite_real_product(node: Node, rewriter: Rewriter) -> None:
    graph = rewriter.graph
    product = _product(graph, node)
    if (
        product is None
        or product.b.value is None
        or product.a.value is not None
        or product.bias is not None
    ):
        return
    if product.a.coding.dtype not in BYTES or product.b.coding.dtype not in WEIGHTS:
        return
    rule = "matmul(dequantise(a), dequantise(b)) = integer sums · scales"
    edit = absorbing(rewriter, product.nodes, rule)
    sums = _sums(edit, product, product.nodes)
    scales = np.asarray(product.a.coding.step * product.b.coding.scale, np.float32)
    real = edit.node("Cast", [sums], {"to": int(DType.F32)}).ref()
    made = edit.node(
        "Mul",
        [real, edit.const(scales.reshape(()) if scales.size == 1 else scales)],
        types=node.outputs,
    )
    edit.finish(node, made)


def _sums(edit: Edit, product: _Product, of: list[Node]) -> Ref:
    a, b, make = product.a, product.b, Maker(edit, of)
    is_wide = DType.I16 in {a.coding.dtype, b.coding.dtype}
    codes = b.codes
    if b.value is not None:
        transposed = np.swapaxes(b.value, -1, -2) if product.transposed else b.value
        codes = edit.const(
            np.ascontiguousarray(transposed.astype(np.int64))
            if is_wide
            else whole_bytes(transposed),
            name=edit.graph[b.codes.node].name,
        )
    elif product.transposed:
        codes = make("Transpose", codes, perm=last_two_swapped(len(b.shape or ())))
    factors, zeros = [a.codes, codes], list[Ref | None]()
    for operand in (a, b):
        dtype = operand.coding.dtype if operand.coding.dtype in BYTES else DType.I8
        zeros.append(zero_points(edit, operand, (DType.I64 if is_wide else dtype).numpy))
    if not is_wide:
        return edit.node("MatMulInteger", [*factors, *zeros], of=of, name=product.node.name).ref()
    for index, zero in enumerate(zeros):
        whole = factors[index]
        if edit.value_of(whole) is None:
            whole = make.cast(whole, DType.I64)
        factors[index] = whole if zero is None else make("Sub", whole, zero)
    return edit.node("MatMul", factors, of=of, name=product.node.name).ref()
