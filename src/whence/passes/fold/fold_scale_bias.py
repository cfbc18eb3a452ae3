"""Multiplications and additions by constants, one per channel, go into the weights and the bias
beside them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whence.graph import Node, Rewriter
from whence.graph.search import is_single_consumer, producer_of
from whence.ops.attributes import get_int
from whence.ops.definition import OpClass
from whence.ops.registry import REGISTRY, one_of
from whence.passes.base import RulePass
from whence.passes.fold.linear import (
    LINEAR_OPS,
    Affine,
    along_axis,
    fold_into_consumer,
    linear_after,
    linear_of,
    rebuild,
)
from whence.passes.operands import (
    FLOATS,
    WithConst,
    is_addition,
    with_const,
)
from whence.passes.origins import consts_with_origin
from whence.passes.pattern import shape_of
from whence.types import DType


@dataclass(frozen=True, slots=True)
class FoldScaleBias(RulePass):
    """Folds Mul, Div, Add and Sub with a constant that is one number, or one per channel, into
    constant weights and bias:

    1. c·f(x), f(x)/c, f(x)+c, f(x)-c and c-f(x) into the Conv, ConvTranspose, Gemm or MatMul f,
       when f(x) has no other use;
    2. f(c·x), f(x+c) and the like into f, when f is the only use; an addition only where f pads
       nothing;
    3. like 1, into the scale and bias of an inference-mode BatchNormalization, which they follow
       where a Concat stands before it.

    An addition after a matrix product becomes the bias of a Gemm when both operands are matrices;
    with more axes it stays.
    """

    name = "fold_scale_bias"
    summary = "fold scales and biases per channel into weights"
    classes = OpClass.CONV | OpClass.MATMUL | OpClass.NORM
    anchors = one_of("Mul", "Div", "Add", "Sub", "Sum")

    def visit(self, node: Node, rewriter: Rewriter) -> None:
        operands = with_const(rewriter.graph, node)
        if operands is not None:
            for rule in (_fold_into_producer, _fold_into_batch_norm, _fold_into_consumer):
                if rule(node, operands, rewriter):
                    return


def _affine(node: Node, operands: WithConst, vector: np.ndarray) -> Affine | None:
    """What the node does to its variable operand."""
    one, zero = np.float64(1), np.float64(0)
    if node.op == "Mul":
        return Affine(vector, np.asarray(zero))
    if node.op == "Div" and not operands.const_first:
        with np.errstate(all="ignore"):
            return Affine(one / vector, np.asarray(zero))
    if is_addition(node):
        return Affine(np.asarray(one), vector)
    if node.op == "Sub":
        if operands.const_first:
            return Affine(np.asarray(-one), vector)
        return Affine(np.asarray(one), -vector)
    return None


def _fold_into_producer(node: Node, operands: WithConst, rewriter: Rewriter) -> bool:
    graph = rewriter.graph
    producer = producer_of(graph, operands.value, LINEAR_OPS)
    linear = (
        None
        if producer is None or not is_single_consumer(graph, producer, node)
        else linear_of(graph, producer)
    )
    if linear is None:
        return False
    vector = along_axis(
        operands.const, shape_of(graph, operands.value), linear.rank, linear.out_axis, linear.n_out
    )
    affine = None if vector is None else _affine(node, operands, vector)
    if affine is None or (affine.shifts and not linear.holds_bias):
        return False
    constants = linear.after(affine)
    if constants is None:
        return False
    # s·f(x, w, b) + t = f(x, s·w, s·b + t)
    rule = f"{_text(node, operands, 'f(x)')} = f'(x)"
    edit = rewriter.edit(linear.node, rule=rule, folded=(node,))
    x = linear.node.first_input
    return edit.finish(node, rebuild(edit, linear, constants, node, x, node.outputs))


def _fold_into_batch_norm(node: Node, operands: WithConst, rewriter: Rewriter) -> bool:
    graph = rewriter.graph
    bn, shape = graph.producer(operands.value), shape_of(graph, operands.value)
    if (
        bn.op != "BatchNormalization"
        or len(bn.outputs) != 1
        or not is_single_consumer(graph, bn, node)
        or get_int(bn.attrs, "training_mode", 0)
    ):
        return False
    scale, bias = graph.const_value(bn.operand("scale")), graph.const_value(bn.operand("B"))
    if (
        scale is None
        or bias is None
        or shape is None
        or len(shape) < 2
        or DType.of(scale) not in FLOATS
    ):
        return False
    vector = along_axis(operands.const, shape, len(shape), 1, scale.size)
    affine = None if vector is None else _affine(node, operands, vector)
    if affine is None:
        return False
    with np.errstate(all="ignore"):
        new_scale = (scale.astype(np.float64) * affine.scale).astype(scale.dtype)
        new_bias = (bias.astype(np.float64) * affine.scale + affine.shift).astype(bias.dtype)
    if not (np.isfinite(new_scale).all() and np.isfinite(new_bias).all()):
        return False
    # c·BN(x, scale, bias) + d = BN(x, c·scale, c·bias + d)
    edit = rewriter.edit(bn, rule=f"{_text(node, operands, 'BN(x)')} = BN'(x)", folded=(node,))
    inputs = (bn.inputs[0], edit.const(new_scale), edit.const(new_bias), *bn.inputs[3:])
    parents = (*consts_with_origin(graph, (*bn.inputs[1:3], *node.inputs)), bn, node)
    made = edit.node("BatchNormalization", inputs, bn.attrs, node.outputs, of=parents, name=bn.name)
    return edit.finish(node, made)


def _fold_into_consumer(node: Node, operands: WithConst, rewriter: Rewriter) -> bool:
    graph = rewriter.graph
    linear = linear_after(graph, node)
    shape = shape_of(graph, operands.value)
    if linear is None or shape is None or len(shape) != linear.rank:
        return False
    vector = along_axis(operands.const, shape, linear.rank, linear.in_axis, linear.n_in)
    # A constant per channel must meet as many channels: against one channel it would broadcast, and
    # the operator see more than x has.
    if vector is None or (vector.size > 1 and shape[linear.in_axis] != linear.n_in):
        return False
    affine = _affine(node, operands, vector)
    if affine is None or (affine.shifts and not linear.holds_bias):
        return False
    # f(s·x + t, w, b) = f(x, w·s, b + Σ w·t)
    rule = f"f({_text(node, operands, 'x')}) = f'(x)"
    return fold_into_consumer(rewriter, node, operands.value, affine, linear, rule)


def _text(node: Node, operands: WithConst, value: str) -> str:
    sign = REGISTRY[node.op].symbol
    return f"c{sign}{value}" if operands.const_first or node.op == "Mul" else f"{value}{sign}c"
