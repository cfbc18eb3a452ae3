"""Channels-last operators as plain ones between transposes.

1. channels_last_f(x) = transpose(f(transpose(x)))

Neighbours' transposes meet and cancel, and the blocked layout takes the rest. On integers the
operators stay: their kernels work channels last.
"""

from __future__ import annotations

from dataclasses import dataclass

from whence.graph import Node, Rewriter
from whence.ops.neural.channels_last import OPS, plain_name
from whence.passes.base import RulePass
from whence.passes.layout.axes import in_other_order, to_second
from whence.passes.operands import is_float
from whence.passes.pattern import rank_of


@dataclass(frozen=True, slots=True)
class ExpandChannelsLast(RulePass):
    name = "expand_channels_last"
    summary = "channels-last convolutions and pools become plain ones between transposes"
    anchors = frozenset(definition.name for definition in OPS)

    # channels_last_f(x) = transpose(f(transpose(x)))
    def visit(self, node: Node, rewriter: Rewriter) -> None:
        rank = rank_of(rewriter.graph, node.inputs[0])
        if rank is None or not is_float(rewriter.graph, node.inputs[0]):
            return
        rule = "channels_last_f(x) = transpose(f(transpose(x)))"
        in_other_order(rewriter, node, to_second(rank), plain_name(node.op), rule)
