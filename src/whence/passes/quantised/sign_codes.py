"""Codes without a sign become codes with one, for formats whose quantised operators want signed
activations beside signed weights.

1. dq(q(x; scale, zero in u8)) = dq(q(x; scale, zero - 128 in i8)): the codes are 128 less, and so
   is what stands for zero

Models that keep weights without a sign stay as they are: those formats have operators for
activations and weights that are both unsigned.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whence.graph import Graph, Node, Rewriter
from whence.ops.attributes import get_str
from whence.passes.base import RulePass
from whence.passes.pattern import dtype_of
from whence.passes.quantised.quantised_op import zero_point_of
from whence.types import DType

_RULE = "dq(q(x; zero in u8)) = dq(q(x; zero - 128 in i8))"


@dataclass(frozen=True, slots=True)
class SignCodes(RulePass):
    name = "sign_codes"
    summary = "make unsigned activations beside signed weights signed"
    anchors = frozenset({"QuantizeLinear"})

    def run(self, rewriter: Rewriter) -> None:
        if _weights_are_signed(rewriter.graph):
            RulePass.run(self, rewriter)

    # dq(q(x; zero in u8)) = dq(q(x; zero - 128 in i8))
    def visit(self, node: Node, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        zero = zero_point_of(graph, node)
        if (
            dtype_of(graph, node.ref()) is not DType.U8
            or get_str(node.attrs, "arithmetic", "")
            or zero is None
        ):
            return
        readers = graph.consumers(node)
        if not readers or any(not _reads_alike(graph, node, zero, reader) for reader in readers):
            return
        edit = rewriter.edit(node, *readers, rule=_RULE)
        scale = node.operand("y_scale")
        signed = edit.const(np.asarray(zero.astype(np.int16) - 128).astype(np.int8))
        attrs = {key: value for key, value in node.attrs.items() if key != "output_dtype"}
        made = edit.node("QuantizeLinear", [node.inputs[0], scale, signed], attrs, of=[node])
        for reader in readers:
            edit.replace(
                reader,
                edit.node(
                    "DequantizeLinear",
                    [made.ref(), reader.operand("x_scale"), signed],
                    reader.attrs,
                    reader.outputs,
                    of=[reader],
                ),
            )
        edit.apply()


def _reads_alike(graph: Graph, quantise: Node, zero: np.ndarray, reader: Node) -> bool:
    if reader.op != "DequantizeLinear" or reader.inputs[0] != quantise.ref():
        return False
    read = zero_point_of(graph, reader)
    return read is not None and np.array_equal(zero.reshape(-1), read.reshape(-1))


def _weights_are_signed(graph: Graph) -> bool:
    """Every constant matrix that is dequantised is of signed codes around zero, and there is
    one.
    """
    found = False
    for node in graph:
        weights = graph.const_value(node.inputs[0]) if node.op == "DequantizeLinear" else None
        if weights is None or weights.ndim < 2:
            continue
        zero = zero_point_of(graph, node)
        if DType.of(weights) is not DType.I8 or zero is None or np.any(zero):
            return False
        found = True
    return found
