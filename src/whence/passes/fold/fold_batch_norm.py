"""Batch normalisation with constant statistics is one multiplication and one addition per channel;
weights can take in both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from whence.graph import Graph, Node, Rewriter
from whence.graph.search import is_single_consumer
from whence.ops.attributes import get_float, get_int
from whence.ops.registry import operators
from whence.ops.traits import Trait
from whence.passes.base import RulePass
from whence.passes.fold.linear import (
    LINEAR_OPS,
    Affine,
    FoldedConstants,
    Linear,
    fold_into_consumer,
    linear_after,
    linear_of,
    rebuild,
)
from whence.passes.layout.axes import perm_of
from whence.passes.pattern import shape_of
from whence.provenance import EdgeKind
from whence.types import Shape, same_dim

_RESHAPES = operators(Trait.RESHAPE)
_MAX_STEPS = 8


@dataclass(frozen=True, slots=True)
class FoldBatchNorm(RulePass):
    """Folds inference-mode BatchNormalization with constant parameters into neighbours with
    constant weights:

    1. into the Conv, ConvTranspose, Gemm or MatMul before it, when that has no other consumer, also
       through transposes and reshapes that keep the channels together;
    2. into the only consumer after it, where no padding comes between.

    With s = scale / sqrt(variance + epsilon) and t = bias - mean·s, it is s·x + t. One that has no
    such neighbour stays as it is.
    """

    name = "fold_batch_norm"
    summary = "fold batch normalisation into the weights of its neighbours"
    anchors = frozenset({"BatchNormalization"})

    def visit(self, node: Node, rewriter: Rewriter) -> None:
        affine = affine_of(rewriter.graph, node)
        if affine is not None and not _fold_into_producer(node, affine, rewriter):
            _fold_into_consumer(node, affine, rewriter)


def affine_of(graph: Graph, node: Node) -> Affine | None:
    """Scale and shift of every channel, when the statistics are constant."""
    constants = [graph.const_value(ref) for ref in node.inputs[1:]]
    values = [
        value.astype(np.float64) for value in constants if value is not None and value.ndim == 1
    ]
    if (
        len(values) != 4
        or len({value.size for value in values}) != 1
        or len(node.outputs) != 1
        or get_int(node.attrs, "training_mode", 0)
    ):
        return None
    scale, bias, mean, variance = values
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + get_float(node.attrs, "epsilon", 1e-5))
    return Affine(factor, bias - mean * factor)


def _fold_into_producer(bn: Node, affine: Affine, rewriter: Rewriter) -> bool:
    found = _linear_before(rewriter.graph, bn)
    if found is None:
        return False
    linear, between = found
    constants = linear.after(affine) if linear.n_out == affine.scale.size else None
    if constants is None:
        return False
    x = linear.node.first_input
    if constants.bias is not None and not linear.holds_bias:
        # BN(W·x) = W'·x + t with W' = W·s: a product of stacks of matrices has no bias, so the
        # addition stays.
        edit = rewriter.edit(
            linear.node, *between, bn, rule="BN(matmul(x, w)) = matmul(x, w·s) + t"
        )
        only_weights = FoldedConstants(constants.weights, None)
        product = rebuild(edit, linear, only_weights, bn, x, linear.node.outputs)
        result = edit.node(
            "Add",
            (product.ref(), edit.const(constants.bias)),
            {},
            linear.node.outputs,
            of=(bn,),
            kind=EdgeKind.LOWER,
        )
    else:
        # BN(conv(x)) = conv'(x) with w' = w·s, b' = (b - mean)·s + beta
        edit = rewriter.edit(
            linear.node,
            *between,
            rule="BN(conv(x, w, b)) = conv(x, w·s, (b-mean)·s+beta)",
            folded=(bn,),
        )
        result = rebuild(edit, linear, constants, bn, x, linear.node.outputs)
    for step in between:
        result = edit.node(
            step.op, (result.ref(), *step.inputs[1:]), step.attrs, step.outputs, of=(step,)
        )
    return edit.finish(bn, result)


def _fold_into_consumer(bn: Node, affine: Affine, rewriter: Rewriter) -> bool:
    linear = linear_after(rewriter.graph, bn)
    if (
        linear is None
        or linear.in_axis != 1
        or linear.n_in != affine.scale.size
        or not linear.holds_bias
    ):
        return False
    # conv(BN(x)) = conv'(x) with w' = w·s per input channel, b' = b + Σ w·t; not with padding,
    # which is zero after BN, not before.
    rule = "conv(BN(x), w, b) = conv(x, w·s, b+Σw·t)"
    return fold_into_consumer(rewriter, bn, bn.first_input, affine, linear, rule)


def _linear_before(graph: Graph, bn: Node) -> tuple[Linear, list[Node]] | None:
    """The linear operator whose output channels are the channels of `bn`, and the transposes and
    reshapes between the two, in order, when each node on the way has one consumer.
    """
    user, axis, between = bn, 1, list[Node]()
    for _ in range(_MAX_STEPS):
        ref = user.input(0)
        node = None if ref is None else graph.producer(ref)
        if node is None or not is_single_consumer(graph, node, user):
            return None
        if node.op in LINEAR_OPS:
            linear = linear_of(graph, node)
            if linear is not None and linear.out_axis == axis:
                return linear, between[::-1]
            return None
        before = _axis_before(graph, node, axis)
        if before is None:
            return None
        between.append(node)
        user, axis = node, before
    return None


def _axis_before(graph: Graph, node: Node, axis: int) -> int | None:
    """The axis of input 0 that is `axis` of the output, when the node only moves elements and keeps
    that axis whole.
    """
    before, after = shape_of(graph, node.input(0)), shape_of(graph, node.ref())
    if before is None or after is None or axis >= len(after):
        return None
    if node.op == "Transpose":
        perm = perm_of(graph, node)
        return None if perm is None else perm[axis]
    return _axis_in(before, after, axis) if node.op in _RESHAPES else None


def _axis_in(before: Shape, after: Shape, axis: int) -> int | None:
    """The same axis before a reshape: as long as it is, with as many elements behind each of its
    positions.
    """
    size, behind = after[axis], _count(after[axis + 1 :])
    if not isinstance(size, int) or same_dim(size, 1) or behind is None:
        return None
    return next(
        (
            index
            for index, dim in enumerate(before)
            if same_dim(dim, size) and same_dim(_count(before[index + 1 :]), behind)
        ),
        None,
    )


def _count(dims: Shape) -> int | None:
    numbers = [dim for dim in dims if isinstance(dim, int)]
    return math.prod(numbers) if len(numbers) == len(dims) else None
