"""GELU written out: x · Φ(x), exactly with erf or approximately with tanh.

1. x · ½(1 + erf(x/√2)) = Gelu(x)
2. x · ½(1 + tanh(√(2/π)·(x + 0.044715·x³))) = Gelu(x, approximate=tanh)
3. x · sigmoid(2·√(2/π)·(x + 0.044715·x³)) = Gelu(x, approximate=tanh), since ½(1 + tanh(u)) =
   sigmoid(2u)

Products, sums and powers may stand in any order and grouping.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from whence.graph import Node, Rewriter
from whence.passes.base import RulePass
from whence.passes.origins import become_one
from whence.passes.pattern import dtype_of, near
from whence.passes.recognise.gate import Gate, gates

_ROOT = math.sqrt(2 / math.pi)
_CUBIC = {1: _ROOT, 3: _ROOT * 0.044715}


class _Form(NamedTuple):
    """x · (slope·f(argument) + offset) is GELU."""

    argument: dict[int, float]
    slope: float
    offset: float
    approximate: str
    rule: str


_FORMS = {
    # 1
    "Erf": _Form({1: math.sqrt(0.5)}, 0.5, 0.5, "none", "x·½(1 + erf(x/√2)) = Gelu(x)"),
    # 2
    "Tanh": _Form(
        _CUBIC, 0.5, 0.5, "tanh", "x·½(1 + tanh(√(2/π)(x + 0.044715x³))) = Gelu(x, tanh)"
    ),
    # 3
    "Sigmoid": _Form(
        {power: 2 * value for power, value in _CUBIC.items()},
        1.0,
        0.0,
        "tanh",
        "x·sigmoid(2√(2/π)(x + 0.044715x³)) = Gelu(x, tanh)",
    ),
}


@dataclass(frozen=True, slots=True)
class RecogniseGelu(RulePass):
    """Find GELU in its exact and its approximate form."""

    name = "recognise_gelu"
    summary = "x·½(1 + erf(x/√2)) and its tanh approximation become Gelu"
    anchors = frozenset(_FORMS)

    def visit(self, node: Node, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        form = _FORMS[node.op]
        for gate in gates(graph, node):
            attrs = {"approximate": form.approximate}
            if _fits(gate, form, rewriter) and become_one(
                rewriter, gate.nodes, "Gelu", gate.x, attrs, form.rule
            ):
                return


def _fits(gate: Gate, form: _Form, rewriter: Rewriter) -> bool:
    dtype = dtype_of(rewriter.graph, gate.x)
    if not near(gate.offset, form.offset, dtype):
        return False
    # erf and tanh are odd: f(-u) = -f(u).
    for sign in (1, -1) if gate.middle.op != "Sigmoid" else (1,):
        argument = {power: sign * value for power, value in form.argument.items()}
        if near(gate.slope, sign * form.slope, dtype) and gate.argument.is_near(argument, dtype):
            return True
    return False
