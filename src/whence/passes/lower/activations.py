"""Activations in a graph: one operator, or a gate x·g(x), under the name and the two numbers that
supernodes know them by.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from whence.graph import Graph, Node
from whence.graph.search import is_single_consumer
from whence.ops.attributes import get_float, get_str
from whence.ops.definition import Attr
from whence.ops.neural.activation import ACTIVATIONS
from whence.ops.neural.fused import FUSED_ACTIVATIONS
from whence.passes.operands import other_operand
from whence.passes.parameters import limits
from whence.passes.pattern import only_user, rank_of


@dataclass(frozen=True, slots=True)
class ActivationMatch:
    """A function that a supernode can apply to its sum, and the nodes that compute it now."""

    name: str
    alpha: float | None
    beta: float | None
    nodes: tuple[Node, ...]
    """In order; the last makes the result."""

    @property
    def attrs(self) -> dict[str, Attr]:
        """The attributes that tell a supernode to apply it."""
        attrs: dict[str, Attr] = {"activation": self.name}
        if self.alpha is not None:
            attrs["activation_alpha"] = self.alpha
        if self.beta is not None:
            attrs["activation_beta"] = self.beta
        return attrs


def activation_after(graph: Graph, node: Node) -> ActivationMatch | None:
    """The activation that is all that ever happens to output 0 of `node`, or `None`."""
    consumer = only_user(graph, node)
    if consumer is not None:
        return _single(graph, consumer) if consumer.input(0) == node.ref() else None
    return _gate(graph, node)


def _single(graph: Graph, node: Node) -> ActivationMatch | None:
    name = node.op
    if name == "Gelu" and get_str(node.attrs, "approximate", "none") == "tanh":
        name = "GeluTanh"
    if name == "Clip":
        ends = limits(graph, node)
        return None if ends is None else ActivationMatch("Clip", *ends, (node,))
    if name == "PRelu":
        return _prelu(graph, node)
    if name not in FUSED_ACTIVATIONS:
        return None
    known = ACTIVATIONS[name]
    alpha = None if known.alpha is None else get_float(node.attrs, "alpha", known.alpha)
    beta = None if known.beta is None else get_float(node.attrs, "beta", known.beta)
    return ActivationMatch(name, alpha, beta, (node,))


def _prelu(graph: Graph, node: Node) -> ActivationMatch | None:
    """One slope for all elements is LeakyRelu."""
    slope, rank = graph.const_value(node.operand("slope")), rank_of(graph, node.input(0))
    if slope is None or slope.size != 1 or rank is None or slope.ndim > rank:
        return None
    return ActivationMatch("LeakyRelu", float(slope.reshape(())), None, (node,))


def _gate(graph: Graph, node: Node) -> ActivationMatch | None:
    """x·sigmoid(x) and x·hardsigmoid(x), where `node` makes x and nothing else reads x or the
    gate.
    """
    consumers = graph.consumers(node)
    if len(consumers) != 2:
        return None
    gate, product = consumers
    if (
        gate.inputs != (node.ref(),)
        or product.op != "Mul"
        or other_operand(product, node.ref()) != gate.ref()
    ):
        return None
    if not is_single_consumer(graph, gate, product):
        return None
    if gate.op == "Sigmoid":
        return ActivationMatch("Swish", 1.0, None, (gate, product))
    if gate.op == "HardSigmoid":
        alpha, beta = get_float(gate.attrs, "alpha", 0.2), get_float(gate.attrs, "beta", 0.5)
        if math.isclose(alpha, 1 / 6, rel_tol=1e-6) and beta == 0.5:
            return ActivationMatch("HardSwish", None, None, (gate, product))
    return None
