"""Convolutions and pools on channels-last tensors, for formats that have no others.

1. f(x) = transpose(channels_last_f(transpose(x)))
2. global_pool(x) = reduce(x over the spatial axes)
3. instance_norm(x) = (x - mean) / sqrt(mean((x - mean)²) + ε) · scale + shift, means over the
   spatial axes

The transposes then sink and cancel as any others do; what is left of them stands at the borders of
the convolutional part.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whence.graph import Node, Rewriter
from whence.graph.maker import Maker
from whence.ops.attributes import get_float
from whence.ops.neural.channels_last import OPS, PREFIX, plain_name
from whence.ops.registry import REGISTRY
from whence.passes.base import RulePass
from whence.passes.layout.axes import in_other_order, to_last
from whence.passes.pattern import dtype_of, rank_of
from whence.types import DType

_PLAIN = frozenset(plain_name(definition.name) for definition in OPS)
_GLOBAL = frozenset(name for name, known in REGISTRY.items() if known.over_space)


@dataclass(frozen=True, slots=True)
class ToChannelsLast(RulePass):
    name = "to_channels_last"
    summary = "convolutions and pools become channels-last ones between transposes"
    anchors = _PLAIN | _GLOBAL | {"InstanceNormalization"}

    def visit(self, node: Node, rewriter: Rewriter) -> None:
        rank = rank_of(rewriter.graph, node.inputs[0])
        if rank is None or rank < 3 or len(node.outputs) != 1:
            return
        if node.op in _GLOBAL:
            self._reduce(node, rewriter, rank)
        elif node.op == "InstanceNormalization":
            self._standardise(node, rewriter, rank)
        # f(x) = transpose(channels_last_f(transpose(x)))
        else:
            rule = "f(x) = transpose(channels_last_f(transpose(x)))"
            in_other_order(rewriter, node, to_last(rank), PREFIX + node.op, rule)

    # global_pool(x) = reduce(x over the spatial axes)
    def _reduce(self, node: Node, rewriter: Rewriter, rank: int) -> None:
        edit = rewriter.edit(node, rule="global_pool(x) = reduce(x over the spatial axes)")
        axes = edit.const(np.arange(2, rank, dtype=np.int64))
        made = edit.node(
            REGISTRY[node.op].over_space,
            [node.inputs[0], axes],
            {"keepdims": 1},
            node.outputs,
            name=node.name,
        )
        edit.finish(node, made)

    # instance_norm(x) = (x - mean) / sqrt(mean((x - mean)²) + ε) · scale + shift
    def _standardise(self, node: Node, rewriter: Rewriter, rank: int) -> None:
        graph, data = rewriter.graph, node.inputs[0]
        # Circle has an operator for it, which stays what it was.
        if any(graph.ledger.source(source).op == "INSTANCE_NORM" for source in node.origin):
            return
        if dtype_of(graph, data) is not DType.F32 or any(
            graph.const_value(ref) is None for ref in node.inputs[1:3]
        ):
            return
        edit = rewriter.edit(
            node, rule="instance_norm(x) = (x - mean) / sqrt(mean((x - mean)²) + ε) · scale + shift"
        )
        make, axes = Maker(edit), edit.const(np.arange(2, rank, dtype=np.int64))
        centred = make("Sub", data, make("ReduceMean", data, axes, keepdims=1))
        variance = make("ReduceMean", make("Mul", centred, centred), axes, keepdims=1)
        epsilon = np.array(get_float(node.attrs, "epsilon", 1e-5), np.float32)
        root = make("Reciprocal", make("Sqrt", make("Add", variance, epsilon)))
        spread = (-1,) + (1,) * (rank - 2)
        scale, shift = (
            edit.const(np.asarray(graph.const_value(ref)).reshape(spread))
            for ref in node.inputs[1:3]
        )
        scaled = make("Mul", make("Mul", centred, root), scale)
        made = edit.node("Add", [scaled, shift], None, node.outputs, name=node.name)
        edit.finish(node, made)
