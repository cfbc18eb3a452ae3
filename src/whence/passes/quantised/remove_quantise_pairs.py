"""Dequantising only to quantise again the same way is no work at all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whence.graph import Node, Rewriter
from whence.graph.search import is_single_consumer, producer_of
from whence.ops.registry import operators
from whence.ops.traits import Trait
from whence.passes.base import RulePass
from whence.passes.operands import float_info
from whence.passes.quantised.quantised_op import Coding, any_coding_of
from whence.provenance import Reason
from whence.types import DType, TensorType

_MOVES = operators(Trait.MOVES)
_ORDERED = frozenset({"MaxPool"})
"""Operators that compare but do not compute: they give the same result on codes as on numbers, for
codes they take.
"""
_MAX_STEPS = 16


@dataclass(frozen=True, slots=True)
class RemoveQuantisePairs(RulePass):
    """Removes what a DequantizeLinear and a later QuantizeLinear with the same constant scale, zero
    point and type undo of each other:

    1. q(dq(x)) is x. So a chain q, dq, q, dq of one kind becomes q, dq.
    2. q(move(dq(x))) is move(x), for operators that move or select elements, with one scale for the
       whole tensor.

    dq(q(x)) rounds, and stays.
    """

    name = "remove_quantise_pairs"
    summary = "remove dequantise and quantise pairs that cancel"
    anchors = frozenset({"QuantizeLinear"})

    def visit(self, node: Node, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        between: list[Node] = []
        user = node
        while len(between) <= _MAX_STEPS:
            producer = producer_of(graph, user.input(0))
            if producer is None:
                return
            if producer.op == "DequantizeLinear":
                _cancel(producer, between[::-1], node, rewriter)
                return
            if (
                producer.op not in _MOVES | _ORDERED
                or len(producer.outputs) != 1
                or not is_single_consumer(graph, producer, user)
            ):
                return
            between.append(producer)
            user = producer


def _is_exact(coding: Coding) -> bool:
    """Does every code survive being made a number and rounded back?"""
    # The rounding error of code · scale / scale must stay below half a step for the largest code,
    # and nothing overflow or vanish.
    real = float_info(coding.real.numpy)
    scale = coding.scale.astype(np.float64)
    reach = 2.0**coding.dtype.bits
    is_ordinary = bool(
        np.all(scale >= float(real.tiny)) and np.all(scale <= float(real.max) / reach)
    )
    return coding.dtype.is_integer and reach * float(real.eps) < 0.5 and is_ordinary


def _cancel(first: Node, between: list[Node], last: Node, rewriter: Rewriter) -> None:
    graph = rewriter.graph
    codes = first.first_input
    before, after = any_coding_of(graph, first, codes), any_coding_of(graph, last, last.ref())
    if before is None or after is None or not before.equals(after) or not _is_exact(before):
        return
    if not between:
        # q(dq(x)) = x
        rule = "quantise(dequantise(x)) = x"
        rewriter.bypass(last, codes, reason=Reason.CANCELLED, rule=rule, undone=[first])
        return
    if not before.is_single or any(not _takes(step, before.dtype) for step in between):
        return
    # q(move(dq(x))) = move(x)
    edit = rewriter.edit(first, *between, last, rule="quantise(move(dequantise(x))) = move(x)")
    value = codes
    for step in between:
        types = [
            TensorType(before.dtype, kind.shape) if isinstance(kind, TensorType) else kind
            for kind in step.outputs
        ]
        value = edit.node(step.op, (value, *step.inputs[1:]), step.attrs, types, of=(step,)).ref()
    edit.replace(last.ref(), value)
    edit.tombstone(first, Reason.CANCELLED, value.node)
    edit.tombstone(last, Reason.CANCELLED, value.node)
    edit.apply()


def _takes(step: Node, dtype: DType) -> bool:
    """Is the operator defined on codes of this type?"""
    if step.op in _ORDERED:
        return dtype in {DType.I8, DType.U8}
    return dtype in {DType.I8, DType.U8, DType.I16, DType.U16}
