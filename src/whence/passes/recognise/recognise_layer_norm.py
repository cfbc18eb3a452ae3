"""Layer norm written out in means, differences and roots.

1. (x - mean(x)) / √(mean((x - mean(x))²) + ε) · scale + bias = LayerNormalization(x, scale, bias,
   ε)
2. x·f + (bias - mean(x)·f) with f = scale / √(mean((x - mean(x))²) + ε) is the same, as TensorFlow
   writes it

The mean is over the last axes. The root may be a Sqrt or a Pow and divide or multiply; the
difference may be computed twice; a scale may already be in the factor; scale and bias may be
missing; x may be cast to a wider type first and the result cast back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from whence.graph import Graph, Node, Ref, Rewriter
from whence.graph.search import producer_of
from whence.ops.definition import OpClass
from whence.passes.base import RulePass
from whence.passes.operands import other_operand
from whence.passes.pattern import few_consumers, only_user, without_casts
from whence.passes.recognise.norm_pattern import (
    ROOTS,
    InverseRoot,
    Norm,
    become_one,
    inverse_root,
    is_parameter,
    mean_axes,
    scaled_root,
    settle_type,
    take_in_scale,
    taken_parameter,
)


class _Centred(NamedTuple):
    """x - mean(x)"""

    x: Ref
    mean: Node
    averaged: Ref
    """What the mean is of: x, or x before or after a cast."""
    axes: tuple[int, ...]
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class RecogniseLayerNorm(RulePass):
    """Find layer norm over the last axes."""

    name = "recognise_layer_norm"
    summary = "(x - mean)/√(variance + ε)·scale + bias becomes LayerNormalization"
    classes = OpClass.REDUCE | OpClass.POOL
    anchors = ROOTS

    def visit(self, node: Node, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        root = inverse_root(graph, node)
        centred = None if root is None else _centred(graph, root.squared)
        if root is None or centred is None or centred.axes != root.axes:
            return
        norm = _direct(graph, root, centred) or _distributed(graph, root, centred)
        if norm is None:
            return
        rule = "(x - mean)/√(variance + ε)·scale + bias = LayerNormalization(x, scale, bias)"
        read = (centred.x, centred.averaged)
        become_one(rewriter, norm, root.epsilon, read, "LayerNormalization", rule)


# 1. (x - mean(x)) / √(v + ε) · scale + bias = LayerNormalization(x, scale, bias, ε)
def _direct(graph: Graph, root: InverseRoot, centred: _Centred) -> Norm | None:
    found = scaled_root(graph, root, centred.x, centred.nodes)
    again = None if found is None else _centred(graph, found[2])
    if found is None or again is None or again.axes != centred.axes:
        return None
    # The difference may be computed twice, but of the same x.
    if without_casts(graph, again.x)[0] != without_casts(graph, centred.x)[0]:
        return None
    norm, product, _ = found
    norm.nodes += again.nodes
    norm.take(product)
    if not settle_type(graph, norm):
        return None
    take_in_scale(graph, norm)
    norm.bias = taken_parameter(graph, norm, "Add")
    return norm


# 2. x·f + (bias - mean(x)·f) = (x - mean(x))·f + bias
def _distributed(graph: Graph, root: InverseRoot, centred: _Centred) -> Norm | None:
    if not root.inverted:
        return None
    norm = Norm(centred.x, root.last, root.axes, [*centred.nodes, *root.nodes])
    take_in_scale(graph, norm)
    factor = norm.out.ref()
    products = {
        other_operand(user, factor): user
        for user in few_consumers(graph, norm.out, 2) or ()
        if user.op == "Mul"
    }
    whole, part = products.get(centred.x), products.get(centred.mean.ref())
    difference = None if part is None else only_user(graph, part, "Sub")
    total = None if difference is None else only_user(graph, difference, "Add")
    if (
        whole is None
        or part is None
        or difference is None
        or total is None
        or difference.operand("B") != part.ref()
    ):
        return None
    norm.bias = difference.inputs[0]
    if (
        norm.bias is None
        or not is_parameter(graph, norm.bias, norm.x, norm.axes)
        or other_operand(total, difference.ref()) != whole.ref()
    ):
        return None
    norm.nodes += [whole, part, difference]
    norm.take(total)
    return norm


def _centred(graph: Graph, ref: Ref) -> _Centred | None:
    """x - mean(x), when `ref` is that, perhaps cast."""
    ref, casts = without_casts(graph, ref)
    difference = producer_of(graph, ref, "Sub")
    if difference is None:
        return None
    x, (average, more) = difference.first_input, without_casts(graph, difference.required("B"))
    mean = graph.producer(average)
    axes = mean_axes(graph, mean)
    averaged = mean.input(0)
    if (
        axes is None
        or averaged is None
        or without_casts(graph, averaged)[0] != without_casts(graph, x)[0]
    ):
        return None
    return _Centred(x, mean, averaged, axes, (mean, *more, difference, *casts))
