"""Activations gated by their own argument: SiLU, hard-swish and Mish; and the hard sigmoid inside.

1. x · sigmoid(α·x) = Swish(x, α)
2. x · clip(m·(x/6 + ½), 0, m) / m = HardSwish(x), which exporters write with m = 6 or m = 1
3. x · HardSigmoid(x, 1/6, ½) = HardSwish(x)
4. clip(m·(α·x + β), 0, m) / m = HardSigmoid(x, α, β)
5. x · tanh(softplus(x)) = Mish(x)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from whence.graph import Graph, Node, Rewriter
from whence.graph.search import producer_of
from whence.ops.attributes import get_float
from whence.ops.registry import one_of
from whence.passes.base import RulePass
from whence.passes.origins import become_one
from whence.passes.parameters import limits
from whence.passes.pattern import dtype_of, is_closed, near, only_user
from whence.passes.recognise.gate import Gate, Polynomial, gates
from whence.types import DType

_HARD = {1: 1 / 6, 0: 0.5}


@dataclass(frozen=True, slots=True)
class RecogniseSwish(RulePass):
    """Find SiLU, hard-swish, hard sigmoid and Mish."""

    name = "recognise_swish"
    summary = (
        "x·sigmoid(αx), x·clip(x+3,0,6)/6 and their kin become Swish, HardSwish, HardSigmoid, Mish"
    )
    anchors = one_of("Sigmoid", "Clip", "HardSigmoid", "Tanh")

    def visit(self, node: Node, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        if node.op == "Sigmoid":
            _swish(node, rewriter)
        elif node.op == "HardSigmoid":
            _hard_swish(node, 1.0, rewriter)
        elif node.op == "Clip":
            top = _clip_top(graph, node)
            if top is not None and not _hard_swish(node, top, rewriter):
                _hard_sigmoid(node, top, rewriter)
        else:
            _mish(node, rewriter)


# 1. x · sigmoid(α·x) = Swish(x, α)
def _swish(node: Node, rewriter: Rewriter) -> None:
    for gate in gates(rewriter.graph, node):
        dtype = dtype_of(rewriter.graph, gate.x)
        alpha = gate.argument.terms.get(1, 0.0)
        fits = (
            near(gate.slope, 1.0, dtype)
            and near(gate.offset, 0.0)
            and gate.argument.is_near({1: alpha}, dtype)
            and alpha != 0
        )
        rule = "x·sigmoid(αx) = Swish(x, α)"
        if fits and become_one(rewriter, gate.nodes, "Swish", gate.x, {"alpha": alpha}, rule):
            return


# 2. x · clip(m·(x/6 + ½), 0, m) / m = HardSwish(x)
# 3. x · HardSigmoid(x, 1/6, ½) = HardSwish(x)
def _hard_swish(node: Node, top: float, rewriter: Rewriter) -> bool:
    rule = "x·HardSigmoid(x, 1/6, ½) = HardSwish(x)"
    if node.op == "Clip":
        rule = "x·clip(m(x/6+½), 0, m)/m = HardSwish(x)"
    for gate in gates(rewriter.graph, node):
        dtype = dtype_of(rewriter.graph, gate.x)
        fits = (
            near(gate.slope * top, 1.0, dtype)
            and near(gate.offset, 0.0)
            and _ramp(gate, top).is_near(_HARD, dtype)
        )
        if fits and become_one(rewriter, gate.nodes, "HardSwish", gate.x, {}, rule):
            return True
    return False


# 4. clip(m·(α·x + β), 0, m) / m = HardSigmoid(x, α, β)
def _hard_sigmoid(node: Node, top: float, rewriter: Rewriter) -> None:
    graph = rewriter.graph
    fits = [
        gate
        for gate in gates(graph, node, by_x=False)
        if near(gate.slope * top, 1.0, dtype_of(graph, gate.x))
        and near(gate.offset, 0.0)
        and len(gate.nodes) > 1
        and set(gate.argument.terms) <= {0, 1}
        and gate.argument.terms.get(1, 0.0) != 0
        and is_closed(gate.nodes, gate.root)
    ]
    if not fits:
        return
    # A bias or a batch norm in front may be scalar too. Left outside, it can still be folded into
    # the weights before it.
    gate = next((gate for gate in fits if _ramp(gate, top).is_near(_HARD, DType.F32)), fits[-1])
    ramp = _ramp(gate, top).terms
    rule = "clip(m(αx+β), 0, m)/m = HardSigmoid(x, α, β)"
    attrs = {"alpha": ramp[1], "beta": ramp.get(0, 0.0)}
    become_one(rewriter, gate.nodes, "HardSigmoid", gate.x, attrs, rule)


# 5. x · tanh(softplus(x)) = Mish(x)
def _mish(node: Node, rewriter: Rewriter) -> None:
    graph = rewriter.graph
    softplus = producer_of(graph, node.input(0), "Softplus")
    if softplus is None:
        return
    x = softplus.first_input
    product = only_user(graph, node, "Mul")
    if product is None or set(product.inputs) != {x, node.ref()}:
        return
    rule = "x·tanh(softplus(x)) = Mish(x)"
    become_one(rewriter, (softplus, node, product), "Mish", x, {}, rule)


def _ramp(gate: Gate, top: float) -> Polynomial:
    """The line that is cut off at 0 and 1."""
    alpha, beta = 1 / top, 0.0
    if gate.middle.op == "HardSigmoid":
        alpha = get_float(gate.middle.attrs, "alpha", 0.2)
        beta = get_float(gate.middle.attrs, "beta", 0.5)
    terms = {power: alpha * value for power, value in gate.argument.terms.items()}
    return Polynomial({**terms, 0: terms.get(0, 0.0) + beta}, gate.argument.nodes)


def _clip_top(graph: Graph, clip: Node) -> float | None:
    """The upper bound of a Clip from 0 to a positive number."""
    low, high = limits(graph, clip) or (None, 0)
    return high if low == 0 and 0 < high < math.inf else None
