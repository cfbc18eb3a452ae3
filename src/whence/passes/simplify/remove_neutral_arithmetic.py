"""Arithmetic that changes nothing leaves.

1. A constant operand filled with the neutral element: x + 0, x - 0, x · 1, x / 1, x ^ 1, x and
   true, x or false, x xor false.
   Only where the constant does not enlarge x by broadcasting. In floating point x + 0 differs from
   x in the sign of -0.0 alone.
2. An operator that undoes itself, twice: -(-x), not not x, 1 / (1 / x). The last is exact up to
   rounding.
3. An operator that changes nothing the second time: Relu, Abs, Sign, Ceil, Floor, Round.
4. A choice between x and x is x.
"""

from __future__ import annotations

from dataclasses import dataclass

from whence.graph import Graph, Node, Ref, Rewriter
from whence.ops.registry import REGISTRY, operators
from whence.ops.traits import Trait
from whence.passes.base import Pass
from whence.passes.const_values import is_filled_with
from whence.passes.operands import broadcasts_into
from whence.passes.simplify.forward_sweep import ForwardSweep
from whence.provenance import Reason
from whence.types import TensorType

_IDEMPOTENT = operators(Trait.IDEMPOTENT)
_ANCHORS = _IDEMPOTENT | {
    "Where",
    *(name for name, known in REGISTRY.items() if known.neutral or known.involution),
}


@dataclass(frozen=True, slots=True)
class RemoveNeutralArithmetic(Pass):
    name = "remove_neutral_arithmetic"
    summary = "remove arithmetic that changes nothing: x + 0, x * 1, -(-x)"
    anchors = _ANCHORS

    def run(self, rewriter: Rewriter) -> None:
        graph, sweep = rewriter.graph, ForwardSweep(rewriter)
        filled: dict[tuple[int, float], bool] = {}
        for node in sweep:
            op = node.op
            if op not in _ANCHORS:
                continue
            neutral = REGISTRY[op].neutral
            if neutral is not None:
                value = _other_than_neutral(graph, node, neutral.value, filled)
                if value is not None:
                    sweep.replace(node, [value], reason=Reason.IDENTITY, rule=neutral.law)
            elif op == "Where":
                # c ? x : x = x
                value = node.operand("X")
                if (
                    value is not None
                    and value == node.operand("Y")
                    and _is_covered(graph, node.inputs[0], value)
                ):
                    sweep.replace(
                        node, [value], reason=Reason.IDENTITY, rule="a choice between x and x is x"
                    )
            else:
                _collapse_pair(sweep, node)
        sweep.finish()


def _collapse_pair(sweep: ForwardSweep, node: Node) -> None:
    source = node.inputs[0]
    if source is None:
        return
    inner = sweep.graph[source.node]
    if inner.op != node.op:
        return
    if node.op in _IDEMPOTENT:
        sweep.replace(
            node, [source], reason=Reason.IDENTITY, rule=f"{node.op} of {node.op} is {node.op}"
        )
        return
    rule, value = REGISTRY[node.op].involution, inner.inputs[0]
    if value is not None and sweep.replace(node, [value], reason=Reason.CANCELLED, rule=rule):
        sweep.spare(inner, reason=Reason.CANCELLED, rule=rule, into=value.node)


def _other_than_neutral(
    graph: Graph, node: Node, neutral: float, filled: dict[tuple[int, float], bool]
) -> Ref | None:
    """The operand that is left when the other is a constant filled with the neutral element and
    does not enlarge it.
    """
    both_sides = REGISTRY[node.op].commutative
    left, right = node.inputs
    for value, other in ((left, right), (right, left)) if both_sides else ((left, right),):
        if value is None or other is None:
            continue
        constant = graph[other.node]
        if constant.op != "Const" or constant.value is None:
            continue
        # A constant may have half a million readers; it is looked at once.
        key = (constant.id, neutral)
        answer = filled.get(key)
        if answer is None:
            answer = filled[key] = is_filled_with(constant.value, neutral)
        if answer and _is_covered(graph, other, value):
            return value
    return None


def _is_covered(graph: Graph, operand: Ref | None, value: Ref) -> bool:
    """Is it certain that broadcasting `operand` against `value` leaves the shape of `value`?"""
    if operand is None:
        return False
    inner, outer = graph.type_of(operand), graph.type_of(value)
    return (
        isinstance(inner, TensorType)
        and isinstance(outer, TensorType)
        and broadcasts_into(inner.shape, outer.shape)
    )
