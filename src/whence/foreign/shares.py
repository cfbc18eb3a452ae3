"""A kernel's time over the operators of the file that it stands for.

An operator has what leaving it out of the kernel would save, by the cost model of whence's own
profiles and what functions cost the engine (`engine_rates.py`); convolutions, products and
recurrent cells, or else the operator that costs most, have the rest. How far such a kernel stays
below the peak rate is seen by how long it took, and is the convolution's or product's. Views and
sizes have nothing while there is anything else, nor has what engines fold into the weights of a
convolution: a batch normalisation, a scale or an offset by constants right behind it. Which branch
of a condition runs is not known: the condition keeps its part.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from whence.attribution.cost_model import VIEWS, KernelModel, Traffic
from whence.foreign.function_models import SUMS
from whence.foreign.operator_costs import OperatorCosts, sums_before_norm
from whence.foreign.source import SourceGraph
from whence.ops.definition import OpClass
from whence.ops.registry import classes_of

_IN_WEIGHTS = frozenset({"BatchNormalization", "Mul", "Div", "Add", "Sub"})


def weights_of(
    costs: OperatorCosts, operators: Collection[int], busy_ps: int = 0
) -> dict[int, int]:
    """Weights of the operators, none negative, not all 0. `busy_ps` is what all threads together
    spend on the kernel, where that is known.
    """
    source, model, members = costs.source, costs.model, sorted(operators)
    folded = _folded(source, members) | {
        each
        for each in members
        if (holder := source[each].holder) in operators
        and holder is not None
        and source[holder].op == "If"
    }
    working = [
        each
        for each in members
        if source[each].op not in VIEWS and not source[each].is_shape and each not in folded
    ] or members
    heavy = [each for each in working if source[each].is_heavy]
    weights = dict.fromkeys(members, 0)
    if len(working) == 1:
        return {**weights, working[0]: 1}
    inside = frozenset(members)
    arithmetic = {each: costs.arithmetic_ps(each) for each in working}
    with_reads: set[int] = set()
    """Sums, of which was measured what they add with all that they read."""
    if heavy:
        anchor = max(heavy, key=lambda each: (arithmetic[each], -each))
        for each in working:
            factor = costs.measured_sum(inside, anchor, each)
            if factor is not None:
                arithmetic[each] = round(costs.simple_ps(each) * factor)
                with_reads.add(each)
            elif each not in heavy:
                arithmetic[each] = costs.behind_ps(anchor, each)
    for each in sums_before_norm(source, members):
        if (factor := model.rates.epilogue.get(SUMS["norm"])) and each in arithmetic:
            arithmetic[each] = round(costs.simple_ps(each) * factor)
    reading = {
        each: costs.costs[each]
        for each in working
        if each in costs.costs and each not in with_reads
    }
    reads = dict.fromkeys(working, 0)
    reads |= {each: cost.side_bytes(inside) for each, cost in reading.items()}
    whole_reads = (
        size for cost in reading.values() for makers, size in cost.reads if not makers & inside
    )
    traffic, computing = Traffic(sum(whole_reads), 0), sum(arithmetic.values())
    anchors = heavy or [max(working, key=lambda each: (arithmetic[each], -each))]
    others = [each for each in working if each not in anchors]
    others_read = sum(reads[each] for each in others) if heavy else None
    kernel = KernelModel(model, traffic, computing, others_read, busy_ps)
    weights |= {each: kernel.saved(arithmetic[each], reads[each]) for each in others}
    rest = max(0, kernel.whole - sum(weights.values()))
    total = sum(arithmetic[each] for each in anchors)
    for each in anchors:
        weights[each] = rest * arithmetic[each] // total if total else rest // len(anchors)
    if any(weights.values()):
        return weights
    return dict.fromkeys(working, 1) | {each: 0 for each in members if each not in working}


def _folded(source: SourceGraph, members: Sequence[int]) -> set[int]:
    """Members that are in the weights of a convolution."""
    convolved = {each for each in members if classes_of(source[each].op) & OpClass.CONV}
    found: set[int] = set()
    for each in members:
        makers = source[each].feeds_from
        if (
            source[each].op in _IN_WEIGHTS
            and not source[each].inputs_read
            and len(makers) == 1
            and makers[0] in convolved | found
        ):
            found.add(each)
    return found
