"""Operators of one kernel whose times cannot be told apart.

A kernel may take longer than its operators would one by one: ONNX Runtime's
SkipLayerNormalization takes several times as long as a sum and a LayerNormalization. Leaving out
either of them then saves nearly all of it, and no two parts that add up to the kernel's time can
say so. What the sum adds to such a kernel was measured (`engine_rates.py`), what it costs by itself
is modelled. The difference is what both would save, so a split of it is wrong by half the
difference for each at best.
"""

from __future__ import annotations

from collections.abc import Collection

from whence.foreign.function_models import SUMS
from whence.foreign.operator_costs import NORMALISES, OperatorCosts, sums_before_norm

_MOST = 0.2
"""Of the kernel's time: beyond that, no split is within 10 points for both."""


def find_inseparable(costs: OperatorCosts, operators: Collection[int]) -> frozenset[int]:
    """Those of a kernel's operators that cannot be told apart."""
    source, factor = costs.source, costs.model.rates.epilogue.get(SUMS["norm"])
    sums = sums_before_norm(source, sorted(operators)) if factor else []
    if not factor or not sums:
        return frozenset()
    inside = sum(costs.simple_ps(each) * factor for each in sums)
    rest = sum(costs.arithmetic_ps(each) for each in operators if each not in sums)
    alone = sum(costs.alone_ps(each) for each in sums)
    if inside - alone <= _MOST * (inside + rest):
        return frozenset()
    return frozenset((*sums, *(each for each in operators if source[each].op in NORMALISES)))
