"""Softmax written out.

1. exp(x - max(x)) / sum(exp(x - max(x))) = Softmax(x), along one axis; the maximum may be missing,
   it cancels
2. log(Softmax(x)) = LogSoftmax(x)
3. (x - max(x)) - log(sum(exp(x - max(x)))) = LogSoftmax(x)
4. x - ReduceLogSumExp(x) = LogSoftmax(x)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from whence.graph import Graph, Node, Ref, Rewriter
from whence.graph.search import producer_of
from whence.ops.attributes import get_int
from whence.ops.definition import OpClass
from whence.ops.registry import one_of
from whence.passes.base import RulePass
from whence.passes.operands import FLOATS, other_operand
from whence.passes.origins import become_one
from whence.passes.parameters import reduced_axes
from whence.passes.pattern import (
    dtype_of,
    few_consumers,
    only_user,
    rank_of,
    same_but_one,
    shape_of,
    with_scalar,
)

# The maximum and the sum lose their axis and get it back; exporters need up to this many operators
# for that.
_MAX_DETOUR = 4


class _Reduced(NamedTuple):
    """One number for each row along `axis`, shaped to be combined with the rows again."""

    axis: int
    nodes: tuple[Node, ...]


class _Exponentials(NamedTuple):
    """exp(x - max(x)) and its sum along `axis`."""

    x: Ref
    shifted: Ref
    """What the exponential is taken of: x, or x - max(x)."""
    axis: int
    total: Ref
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class RecogniseSoftmax(RulePass):
    """Find softmax and its logarithm along one axis."""

    name = "recognise_softmax"
    summary = "exp(x - max)/sum becomes Softmax, its logarithm LogSoftmax"
    classes = OpClass.REDUCE | OpClass.NORM
    anchors = one_of("Exp", "Softmax", "ReduceLogSumExp")

    def visit(self, node: Node, rewriter: Rewriter) -> None:
        if node.op == "Softmax":
            _log_of_softmax(node, rewriter)
        elif node.op == "ReduceLogSumExp":
            _minus_log_sum_exp(node, rewriter)
        else:
            found = _exponentials(rewriter.graph, node)
            if found is not None and not _quotient(node, found, rewriter):
                _difference_of_log(found, rewriter)


# 1. exp(x - max(x)) / sum(exp(x - max(x))) = Softmax(x)
def _quotient(exp: Node, found: _Exponentials, rewriter: Rewriter) -> bool:
    graph = rewriter.graph
    total = graph.producer(found.total)
    root = only_user(graph, total, one_of("Div", "Reciprocal"))
    nodes = list(found.nodes)
    if root is not None and root.op == "Reciprocal":
        nodes.append(root)
        product = only_user(graph, root, "Mul")
        fits = product is not None and other_operand(product, root.ref()) == exp.ref()
        root = product
    else:
        fits = root is not None and root.inputs == (exp.ref(), found.total)
    if root is None or not fits:
        return False
    rule = "exp(x - max)/sum(exp(x - max)) = Softmax(x)"
    return _apply(rewriter, [*nodes, root], "Softmax", found.x, found.axis, rule)


# 2. log(Softmax(x)) = LogSoftmax(x)
def _log_of_softmax(softmax: Node, rewriter: Rewriter) -> None:
    graph = rewriter.graph
    log = only_user(graph, softmax, "Log")
    x = softmax.first_input
    shape = shape_of(graph, x)
    if log is not None and shape is not None:
        axis = get_int(softmax.attrs, "axis", -1) % len(shape)
        rule = "log(Softmax(x)) = LogSoftmax(x)"
        _apply(rewriter, [softmax, log], "LogSoftmax", x, axis, rule)


# 3. (x - max(x)) - log(sum(exp(x - max(x)))) = LogSoftmax(x)
def _difference_of_log(found: _Exponentials, rewriter: Rewriter) -> None:
    graph = rewriter.graph
    log = only_user(graph, graph.producer(found.total), "Log")
    root = None if log is None else only_user(graph, log, "Sub")
    if log is not None and root is not None and root.inputs == (found.shifted, log.ref()):
        rule = "(x - max) - log(sum(exp(x - max))) = LogSoftmax(x)"
        _apply(rewriter, [*found.nodes, log, root], "LogSoftmax", found.x, found.axis, rule)


# 4. x - ReduceLogSumExp(x) = LogSoftmax(x)
def _minus_log_sum_exp(reduce: Node, rewriter: Rewriter) -> None:
    graph = rewriter.graph
    root = only_user(graph, reduce, "Sub")
    x = reduce.first_input
    found = _row_values(graph, reduce.ref(), "ReduceLogSumExp", x)
    if root is not None and found is not None and root.inputs == (x, reduce.ref()):
        rule = "x - log(sum(exp(x))) = LogSoftmax(x)"
        _apply(rewriter, [reduce, root], "LogSoftmax", x, found.axis, rule)


def _exponentials(graph: Graph, exp: Node) -> _Exponentials | None:
    shifted = exp.first_input
    if dtype_of(graph, shifted) not in FLOATS:
        return None
    total = next(
        (user for user in few_consumers(graph, exp, 2) or () if user.op == "ReduceSum"), None
    )
    row = None if total is None else _follow(graph, total)
    found = None if row is None else _row_values(graph, row, "ReduceSum", exp.ref())
    if row is None or found is None:
        return None
    x, front = shifted, []
    difference = producer_of(graph, shifted, "Sub")
    if difference is not None:
        whole = difference.first_input
        peak = _row_values(graph, difference.required("B"), "ReduceMax", whole)
        if peak is not None and peak.axis == found.axis:
            x, front = whole, [*peak.nodes, difference]
    return _Exponentials(x, shifted, found.axis, row, (*front, exp, *found.nodes))


def _follow(graph: Graph, reduce: Node) -> Ref:
    """The reduced value after what gives it its axis back."""
    node = reduce
    for _ in range(_MAX_DETOUR):
        user = only_user(graph, node, one_of("Unsqueeze", "Reshape", "Expand"))
        if user is None or user.inputs[0] != node.ref():
            break
        node = user
    return node.ref()


def _row_values(graph: Graph, ref: Ref, op: str, source: Ref) -> _Reduced | None:
    """`ref` as what `op` makes of each row of `source`, shaped like `source` with a 1 on the
    reduced axis.
    """
    shape = shape_of(graph, source)
    here = shape_of(graph, ref)
    nodes: list[Node] = []
    while len(nodes) < _MAX_DETOUR:
        node = graph.producer(ref)
        nodes.append(node)
        if node.op == op:
            break
        below = (
            node.input(0)
            if node.is_a("Unsqueeze", "Reshape", "Expand")
            else _floorless(graph, node)
        )
        if below is None:
            return None
        ref = below
    reduce = nodes[-1]
    if reduce.op != op or reduce.input(0) != source or shape is None or here is None:
        return None
    axes = reduced_axes(graph, reduce, len(shape))
    if axes is None or len(axes) != 1:
        return None
    wanted = (*shape[: axes[0]], 1, *shape[axes[0] + 1 :])
    is_shaped = len(nodes) == 1 and reduce.attrs.get("keepdims", 1)
    # After a detour the shape must say that every row got its own number back. An Expand may have
    # changed the number of elements.
    expanded = any(node.op == "Expand" for node in nodes)
    back = None not in wanted and here == wanted if expanded else same_but_one(here, wanted)
    return _Reduced(axes[0], tuple(reversed(nodes))) if is_shaped or back else None


def _floorless(graph: Graph, node: Node) -> Ref | None:
    """x, when the node is max(x, -∞)."""
    found = with_scalar(graph, node) if node.op == "Max" else None
    return found[0] if found is not None and found[1] == -math.inf else None


def _apply(rewriter: Rewriter, nodes: list[Node], op: str, x: Ref, axis: int, rule: str) -> bool:
    is_last = axis + 1 == rank_of(rewriter.graph, x)
    return become_one(rewriter, nodes, op, x, {"axis": -1 if is_last else axis}, rule)
