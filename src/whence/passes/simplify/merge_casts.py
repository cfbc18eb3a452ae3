"""Casts after casts.

1. CastLike is a Cast to the type of its second input, once that is known.
2. When the first of two casts loses nothing, the second may start from the original value.
3. When moreover the second leads back to the original type, both cancel.

A first cast that rounds, wraps or clips is never skipped: f32 to f16 to f32 is a rounding, not a
no-op.
"""

from __future__ import annotations

from dataclasses import dataclass

from whence.graph import Graph, Node, Rewriter
from whence.graph.change import contradict
from whence.graph.search import producer_of
from whence.ops.registry import operators
from whence.ops.traits import Trait
from whence.passes.base import RulePass
from whence.passes.pattern import dtype_of
from whence.provenance import Reason
from whence.types import DType

# The whole numbers up to 2^bits that a floating-point type holds without a gap.
_FLOAT_BITS = {DType.F16: 11, DType.BF16: 8, DType.F32: 24, DType.F64: 53}
_FLOAT8 = frozenset({DType.F8E4M3FN, DType.F8E4M3FNUZ, DType.F8E5M2, DType.F8E5M2FNUZ})
_UNSIGNED = frozenset({DType.U2, DType.U4, DType.U8, DType.U16, DType.U32, DType.U64})
_WIDER_FLOATS = {
    DType.F16: frozenset({DType.F32, DType.F64}),
    DType.BF16: frozenset({DType.F32, DType.F64}),
    DType.F32: frozenset({DType.F64}),
    **{small: frozenset({DType.F32, DType.F64}) for small in _FLOAT8},
    DType.F4E2M1: frozenset({DType.F16, DType.BF16, DType.F32, DType.F64}),
}


@dataclass(frozen=True, slots=True)
class MergeCasts(RulePass):
    name = "merge_casts"
    summary = "merge casts that follow each other and lose nothing"
    anchors = operators(Trait.CASTS)

    def visit(self, node: Node, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        source, target = dtype_of(graph, node.input(0)), _target(graph, node)
        if source is DType.UNDEFINED or target is DType.UNDEFINED:
            return
        # CastLike(x, y: T) = Cast(x, T)
        if node.op == "CastLike":
            edit = rewriter.edit(node, rule="CastLike is a Cast to the type of its second input")
            attrs = {
                key: value for key, value in node.attrs.items() if key in ("saturate", "round_mode")
            }
            made = edit.node("Cast", node.inputs[:1], {**attrs, "to": int(target)}, node.outputs)
            edit.finish(node, made)
            return
        inner = producer_of(graph, node.inputs[0], "Cast")
        if inner is None:
            return
        x, first = inner.first_input, dtype_of(graph, inner.input(0))
        if not is_lossless(first, source) or (
            first.is_integer
            and source.is_float
            and target.is_integer
            and not is_lossless(first, target)
        ):
            # An integer too large for the target wraps around; as a float it would not.
            return
        # Cast(Cast(x: T, U), T) = x when U holds all of T
        if first is target and not contradict(node.type, graph.type_of(x)):
            rule = "casts there and back cancel"
            rewriter.bypass(node, x, reason=Reason.CANCELLED, rule=rule, undone=[inner])
            return
        # Cast(Cast(x: S, T), U) = Cast(x, U) when T holds all of S
        edit = rewriter.edit(
            inner, node, rule="a cast after a cast that loses nothing starts from the original"
        )
        edit.finish(node, edit.node("Cast", inner.inputs, node.attrs, node.outputs))


def _target(graph: Graph, node: Node) -> DType:
    if node.op == "CastLike":
        return dtype_of(graph, node.operand("target_type"))
    number = node.attrs.get("to")
    if isinstance(number, int) and number in DType._value2member_map_:
        return DType(number)
    return DType.UNDEFINED


def is_lossless(narrow: DType, wide: DType) -> bool:
    """Does `wide` hold every value of `narrow` exactly?"""
    if narrow is DType.UNDEFINED or wide is DType.UNDEFINED or DType.STRING in (narrow, wide):
        return False
    if narrow is wide:
        return True
    if narrow is DType.BOOL:
        return wide.is_integer or wide in _FLOAT_BITS
    if narrow.is_float:
        return wide in _WIDER_FLOATS.get(narrow, ())
    if not narrow.is_integer:
        return False
    magnitude = narrow.bits if narrow in _UNSIGNED else narrow.bits - 1
    if wide.is_integer:
        room = wide.bits if wide in _UNSIGNED else wide.bits - 1
        return magnitude <= room and (narrow in _UNSIGNED or wide not in _UNSIGNED)
    return magnitude <= _FLOAT_BITS.get(wide, -1)
