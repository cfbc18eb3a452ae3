"""Transposes and scalar factors around products of matrices, which Gemm does by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from whence.graph import Edit, Graph, Node, Ref, Rewriter
from whence.graph.search import is_single_consumer, producer_of, unique_consumer
from whence.ops.attributes import get_float, get_int
from whence.ops.definition import Attr
from whence.ops.registry import one_of, operators
from whence.ops.traits import Trait
from whence.passes.base import RulePass
from whence.passes.layout.axes import perm_of
from whence.passes.operands import is_exact_attribute, is_float, scalar_factor
from whence.passes.origins import consts_with_origin
from whence.passes.pattern import dtype_of, rank_of

_FLAGS = ("transA", "transB")
_SCALES = operators(Trait.SCALES)


@dataclass(frozen=True, slots=True)
class FoldMatmulTranspose(RulePass):
    """Folds what surrounds a Gemm, or a MatMul of two matrices, into the attributes of a Gemm:

    1. a transpose of an operand into transA or transB, also when others read it too;
    2. a transpose of the result, by swapping the operands, when nothing else reads the result and C
       is absent or constant;
    3. a constant number times an operand into alpha, when nothing else reads that multiple;
    4. a constant number times the result into alpha and beta, when nothing else reads the result.
    """

    name = "fold_matmul_transpose"
    summary = "fold transposes and scalar factors into Gemm"
    anchors = one_of("Gemm", "MatMul")

    def visit(self, node: Node, rewriter: Rewriter) -> None:
        if not _is_of_matrices(rewriter.graph, node):
            return
        for rule in (_transposed_operand, _transposed_result, _scaled_operand, _scaled_result):
            if rule(node, rewriter):
                return


def _is_of_matrices(graph: Graph, node: Node) -> bool:
    return is_float(graph, node.ref()) and all(rank_of(graph, ref) == 2 for ref in node.inputs[:2])


def _gemm(
    edit: Edit,
    node: Node,
    inputs: Sequence[Ref | None],
    changes: Mapping[str, Attr],
    last: Node,
) -> bool:
    """Put a Gemm in the place of `last`; attributes that have their default value are left out."""
    defaults: dict[str, Attr] = {"transA": 0, "transB": 0, "alpha": 1.0, "beta": 1.0}
    attrs = {
        name: value
        for name, value in {**node.attrs, **changes}.items()
        if value != defaults.get(name)
    }
    return edit.finish(last, edit.node("Gemm", inputs, attrs, last.outputs, name=node.name))


def _transposed_operand(node: Node, rewriter: Rewriter) -> bool:
    graph = rewriter.graph
    for index, flag in enumerate(_FLAGS):
        transpose = producer_of(graph, node.inputs[index], "Transpose")
        if transpose is None or perm_of(graph, transpose) != (1, 0):
            continue
        # gemm(a^T, b) = gemm(a, b) with transA transposed over; likewise b
        inputs = (*node.inputs[:index], transpose.inputs[0], *node.inputs[index + 1 :])
        edit = rewriter.edit(
            transpose, node, rule=f"gemm with transposed {'ab'[index]} = gemm with {flag}"
        )
        return _gemm(edit, node, inputs, {flag: 1 - get_int(node.attrs, flag, 0)}, node)
    return False


def _transposed_result(node: Node, rewriter: Rewriter) -> bool:
    graph = rewriter.graph
    transpose = unique_consumer(graph, node, "Transpose")
    bias = graph.const_value(node.operand("C"))
    if (
        transpose is None
        or perm_of(graph, transpose) != (1, 0)
        or (node.operand("C") is not None and (bias is None or bias.ndim > 2))
    ):
        return False
    # (a·b + c)^T = b^T·a^T + c^T
    edit = rewriter.edit(
        *consts_with_origin(graph, node.inputs[2:]),
        node,
        transpose,
        rule="gemm(a, b, c)^T = gemm(b^T, a^T, c^T)",
    )
    swapped: list[Ref | None] = [node.operand("B"), node.operand("A")]
    if bias is not None:
        matrix = bias.reshape((1,) * (2 - bias.ndim) + bias.shape)
        swapped.append(edit.const(np.ascontiguousarray(matrix.T)))
    changes: dict[str, Attr] = {
        "transA": 1 - get_int(node.attrs, "transB", 0),
        "transB": 1 - get_int(node.attrs, "transA", 0),
    }
    return _gemm(edit, node, swapped, changes, transpose)


def _scaled_operand(node: Node, rewriter: Rewriter) -> bool:
    graph = rewriter.graph
    for index in range(2):
        scaling = producer_of(graph, node.inputs[index], _SCALES)
        if scaling is None or not is_single_consumer(graph, scaling, node):
            continue
        found = scalar_factor(graph, scaling)
        changes = {} if found is None else _scaled(graph, node, found[1], ("alpha",))
        if found is None or not changes:
            continue
        # gemm(s·a, b, c) = s·alpha·a·b + beta·c
        inputs = (*node.inputs[:index], found[0], *node.inputs[index + 1 :])
        edit = rewriter.edit(
            *consts_with_origin(graph, scaling.inputs),
            scaling,
            node,
            rule=f"gemm with s·{'ab'[index]} = gemm with s·alpha",
        )
        return _gemm(edit, node, inputs, changes, node)
    return False


def _scaled_result(node: Node, rewriter: Rewriter) -> bool:
    graph = rewriter.graph
    scaling = unique_consumer(graph, node, _SCALES)
    found = None if scaling is None else scalar_factor(graph, scaling)
    if scaling is None or found is None or found[0] != node.ref():
        return False
    changes = _scaled(
        graph, node, found[1], ("alpha",) if node.operand("C") is None else ("alpha", "beta")
    )
    if not changes:
        return False
    # s·(alpha·a·b + beta·c) = s·alpha·a·b + s·beta·c
    edit = rewriter.edit(
        *consts_with_origin(graph, scaling.inputs),
        node,
        scaling,
        rule="s·gemm(a, b, c) = gemm with s·alpha, s·beta",
    )
    return _gemm(edit, node, node.inputs, changes, scaling)


def _scaled(graph: Graph, node: Node, factor: float, names: Sequence[str]) -> dict[str, Attr]:
    """The named attributes times `factor`; nothing when an attribute cannot hold one."""
    dtype = dtype_of(graph, node.ref())
    numbers = {name: get_float(node.attrs, name, 1.0) * factor for name in names}
    fits = all(is_exact_attribute(number, dtype) for number in numbers.values())
    return dict(numbers) if fits else {}
