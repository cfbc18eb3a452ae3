"""Dequantising only to quantise again the same way is no work at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from whence.graph import Graph, Node, Ref, Rewriter
from whence.graph.search import is_single_consumer
from whence.ops.attributes import get_int
from whence.ops.registry import operators
from whence.ops.traits import Trait
from whence.passes.base import RulePass
from whence.passes.operands import FLOATS
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
            ref = user.input(0)
            producer = None if ref is None else graph.producer(ref)
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


class _Coding(NamedTuple):
    """How numbers stand for codes."""

    dtype: DType
    real: DType
    scale: np.ndarray
    zero_point: np.ndarray
    axis: int
    block: int

    def equals(self, other: _Coding) -> bool:
        if (
            self.dtype is not other.dtype
            or self.real is not other.real
            or not np.array_equal(self.scale.reshape(-1), other.scale.reshape(-1))
        ):
            return False
        # Both zero points have one number, or one for each scale.
        if np.any(self.zero_point != other.zero_point):
            return False
        return self.scale.size == 1 or (self.axis, self.block, self.scale.shape) == (
            other.axis,
            other.block,
            other.scale.shape,
        )

    @property
    def is_exact(self) -> bool:
        """Does every code survive being made a number and rounded back?"""
        # The rounding error of code · scale / scale must stay below half a step for the largest
        # code, and nothing overflow or vanish.
        limits = _LIMITS[self.real]
        scale = self.scale.astype(np.float64)
        reach = 2.0**self.dtype.bits
        is_ordinary = bool(
            np.all(scale >= limits.smallest) and np.all(scale * reach <= limits.largest)
        )
        return self.dtype.is_integer and reach * limits.eps < 0.5 and is_ordinary


class _Limits(NamedTuple):
    eps: float
    smallest: float
    largest: float


_LIMITS = {
    DType.F16: _Limits(2.0**-10, 2.0**-14, 65504.0),
    DType.BF16: _Limits(2.0**-7, 2.0**-126, 3.38e38),
    DType.F32: _Limits(2.0**-23, 2.0**-126, 3.4e38),
    DType.F64: _Limits(2.0**-52, 2.0**-1022, 1.79e308),
}


def _coding(graph: Graph, node: Node, codes: Ref, reals: Ref) -> _Coding | None:
    """The parameters of a QuantizeLinear or DequantizeLinear between `codes` and `reals`, when they
    are constant.
    """
    code_type = graph.tensor_type(codes)
    real_type = graph.tensor_type(reals)
    scale = graph.const_value(node.operand("x_scale", "y_scale"))
    if (
        code_type is None
        or real_type is None
        or scale is None
        or scale.size == 0
        or (real_type.rank is None and scale.size > 1)
    ):
        return None
    if (
        DType.of(scale) is not real_type.dtype
        or real_type.dtype not in FLOATS
        or get_int(node.attrs, "precision", 0)
    ):
        return None
    zero_point = (
        np.zeros((), np.int64)
        if node.operand("x_zero_point", "y_zero_point") is None
        else graph.const_value(node.operand("x_zero_point", "y_zero_point"))
    )
    if zero_point is None or zero_point.size not in {1, scale.size}:
        return None
    # A vector has only one axis to have scales on, whatever the attribute says.
    axis = 0
    if real_type.rank is not None and real_type.rank > 1:
        axis = get_int(node.attrs, "axis", 1) % real_type.rank
    zeros = zero_point.reshape(() if zero_point.size == 1 else (-1,)).astype(np.int64)
    return _Coding(
        code_type.dtype, real_type.dtype, scale, zeros, axis, get_int(node.attrs, "block_size", 0)
    )


def _cancel(first: Node, between: list[Node], last: Node, rewriter: Rewriter) -> None:
    graph = rewriter.graph
    codes, reals = first.first_input, last.first_input
    before = _coding(graph, first, codes, first.ref())
    after = _coding(graph, last, last.ref(), reals)
    if before is None or after is None or not before.equals(after) or not before.is_exact:
        return
    if not between:
        # q(dq(x)) = x
        rule = "quantise(dequantise(x)) = x"
        rewriter.bypass(last, codes, reason=Reason.CANCELLED, rule=rule, undone=[first])
        return
    if before.scale.size != 1 or any(not _takes(step, before.dtype) for step in between):
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
    edit.bury(first, Reason.CANCELLED, value.node)
    edit.bury(last, Reason.CANCELLED, value.node)
    edit.apply()


def _takes(step: Node, dtype: DType) -> bool:
    """Is the operator defined on codes of this type?"""
    if step.op in _ORDERED:
        return dtype in {DType.I8, DType.U8}
    return dtype in {DType.I8, DType.U8, DType.I16, DType.U16}
