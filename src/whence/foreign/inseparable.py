"""Operators of one kernel whose times cannot be told apart.

A kernel may take longer than its operators would one by one: ONNX Runtime's
SkipLayerNormalization takes several times as long as a sum and a LayerNormalization. Leaving out
either of them then saves nearly all of it, and no two parts that add up to the kernel's time can
say so. What the sum adds to such a kernel was measured (`engine_rates.py`), what it costs by itself
is modelled. The difference is what both would save, so a split of it is wrong by half the
difference for each at best.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from whence.attribution.cost_model import CostModel, Traffic
from whence.attribution.source_costs import SourceCost
from whence.foreign.function_models import SUMS
from whence.foreign.shares import arithmetic_of, simple_ps
from whence.foreign.source import SourceGraph
from whence.foreign.sums import NORMALISES, sums_before_norm

_MOST = 0.2
"""Of the kernel's time: beyond that, no split is within 10 points for both."""


def find_inseparable(
    source: SourceGraph,
    model: CostModel,
    costs: Mapping[int, SourceCost],
    operators: Collection[int],
) -> frozenset[int]:
    """Those of a kernel's operators that cannot be told apart."""
    factor = model.rates.epilogue.get(SUMS["norm"])
    sums = sums_before_norm(source, sorted(operators)) if factor else []
    if not factor or not sums:
        return frozenset()
    inside = sum(simple_ps(model, costs, each) * factor for each in sums)
    rest = sum(arithmetic_of(costs, each) for each in operators if each not in sums)
    alone = sum(_alone_ps(model, costs, each) for each in sums)
    if inside - alone <= _MOST * (inside + rest):
        return frozenset()
    return frozenset((*sums, *(each for each in operators if source[each].op in NORMALISES)))


def _alone_ps(model: CostModel, costs: Mapping[int, SourceCost], operator: int) -> int:
    """What it would take in a kernel of its own. The result is as large as the largest operand."""
    reads = [size for _, size in costs[operator].reads] if operator in costs else []
    traffic = Traffic(sum(reads) + max(reads, default=0), 0)
    return model.overlapped_ps(arithmetic_of(costs, operator), model.moving_ps(traffic), traffic)
