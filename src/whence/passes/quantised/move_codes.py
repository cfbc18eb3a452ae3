"""Elements are moved as codes, not as the numbers behind them.

1. move(dq(x)) = dq(move(x))
2. q(move(x)) = move(q(x)), where nobody else reads the moved numbers

With one scale for the whole tensor; of constants also a Transpose with a scale for each element of
an axis. Afterwards a quantised operator stands directly between its dequantised operands and its
quantisation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whence.errors import WhenceError
from whence.graph import Node, Rewriter
from whence.graph.search import producer_of, unique_consumer
from whence.ops.definition import Attr, Call, OpClass
from whence.ops.registry import evaluate, operators
from whence.ops.traits import Trait
from whence.passes.base import RulePass
from whence.passes.layout.axes import perm_of
from whence.passes.pattern import dtype_of, shape_of
from whence.passes.quantised.quantised_op import CODES, coding_of
from whence.types import DType, TensorType

_MOVES = operators(Trait.MOVES, Trait.STRIDED) - operators(Trait.GROWS)


@dataclass(frozen=True, slots=True)
class MoveCodes(RulePass):
    name = "move_codes"
    summary = "move the codes of quantised tensors instead of dequantised numbers"
    classes = OpClass.QUANTISE
    anchors = _MOVES

    def visit(self, node: Node, rewriter: Rewriter) -> None:
        if len(node.outputs) == 1 and not _dequantise_later(node, rewriter):
            _quantise_earlier(node, rewriter)


# move(dq(x)) = dq(move(x))
def _dequantise_later(node: Node, rewriter: Rewriter) -> bool:
    graph = rewriter.graph
    before = producer_of(graph, node.inputs[0], "DequantizeLinear")
    if before is None:
        return False
    codes = before.first_input
    coding = coding_of(graph, before, codes)
    kind = graph.tensor_type(node.ref())
    value = graph.const_value(codes)
    if coding is None or kind is None or (value is None and coding.dtype not in CODES):
        return False
    attrs: dict[str, Attr] = dict(before.attrs)
    if not coding.is_single:
        perm = perm_of(graph, node) if node.op == "Transpose" and value is not None else None
        if perm is None:
            return False
        attrs["axis"] = perm.index(coding.axis)
    moved = None
    if value is not None:
        others = [graph.const_value(ref) for ref in node.inputs[1:]]
        if any(
            ref is not None and other is None
            for ref, other in zip(node.inputs[1:], others, strict=True)
        ):
            return False
        try:
            (moved,) = evaluate(Call(node.op, node.attrs, (value, *others), 1))
        except WhenceError:
            return False
    edit = rewriter.edit(before, node, rule="move(dequantise(x)) = dequantise(move(x))")
    if moved is not None:
        source = edit.const(np.ascontiguousarray(moved), name=graph[codes.node].name)
        after = edit.node("DequantizeLinear", [source, *before.inputs[1:]], attrs, node.outputs)
    else:
        types = TensorType(coding.dtype, kind.shape)
        source = edit.node(node.op, [codes, *node.inputs[1:]], node.attrs, types, of=[node]).ref()
        after = edit.node(
            "DequantizeLinear", [source, *before.inputs[1:]], attrs, node.outputs, of=[before]
        )
    return edit.finish(node, after)


# q(move(x)) = move(q(x))
def _quantise_earlier(node: Node, rewriter: Rewriter) -> None:
    graph, source = rewriter.graph, node.first_input
    last = unique_consumer(graph, node, "QuantizeLinear")
    if last is None or last.input(0) != node.ref():
        return
    coding = coding_of(graph, last, last.ref())
    if (
        coding is None
        or not coding.is_single
        or coding.dtype not in CODES
        or dtype_of(graph, source) is not DType.F32
    ):
        return
    edit = rewriter.edit(node, last, rule="quantise(move(x)) = move(quantise(x))")
    first = edit.node(
        "QuantizeLinear",
        [source, *last.inputs[1:]],
        last.attrs,
        TensorType(coding.dtype, shape_of(graph, source)),
        of=[last],
    )
    made = edit.node(node.op, [first.ref(), *node.inputs[1:]], node.attrs, last.outputs, of=[node])
    edit.finish(last, made)
