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

from collections.abc import Collection, Mapping, Sequence

from whence.attribution.cost_model import VIEWS, CostModel, Traffic
from whence.attribution.kernel_model import KernelModel
from whence.attribution.source_costs import SourceCost
from whence.calibration.nominal import SIMPLE
from whence.foreign.function_models import LARGE_BYTES, LIMITS, SUMS
from whence.foreign.source import SourceGraph
from whence.foreign.sums import largest_operand, measured_sum, sums_before_norm
from whence.ops.definition import OpClass
from whence.ops.registry import classes_of

_IN_WEIGHTS = frozenset({"BatchNormalization", "Mul", "Div", "Add", "Sub"})
_FLOAT_BYTES = 4
_UNKNOWN_PS = 1000
"""What an operator costs whose shapes are not known: little beside a convolution."""


def weights_of(
    source: SourceGraph,
    model: CostModel,
    costs: Mapping[int, SourceCost],
    operators: Collection[int],
    busy_ps: int = 0,
) -> dict[int, int]:
    """Weights of the operators, none negative, not all 0. `busy_ps` is what all threads together
    spend on the kernel, where that is known.
    """
    members = sorted(operators)
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
    arithmetic = {each: arithmetic_of(costs, each) for each in working}
    with_reads: set[int] = set()
    """Sums, of which was measured what they add with all that they read."""
    if heavy:
        anchor = max(heavy, key=lambda each: (arithmetic[each], -each))
        for each in working:
            factor = measured_sum(source, costs, model.rates.epilogue, inside, anchor, each)
            if factor is not None:
                arithmetic[each] = round(simple_ps(model, costs, each) * factor)
                with_reads.add(each)
            elif each not in heavy:
                arithmetic[each] = _behind(source, model, costs, anchor, each)
    for each in sums_before_norm(source, members):
        if (factor := model.rates.epilogue.get(SUMS["norm"])) and each in arithmetic:
            arithmetic[each] = round(simple_ps(model, costs, each) * factor)
    reading = [each for each in working if each in costs and each not in with_reads]
    reads = dict.fromkeys(working, 0) | {each: costs[each].side_bytes(inside) for each in reading}
    read = {
        each: sum(size for makers, size in costs[each].reads if not makers & inside)
        for each in reading
    }
    traffic, computing = Traffic(sum(read.values()), 0), sum(arithmetic.values())
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


def _behind(
    source: SourceGraph,
    model: CostModel,
    costs: Mapping[int, SourceCost],
    anchor: int,
    operator: int,
) -> int:
    """What the operator adds to a convolution or product that it is applied to the results of."""
    op, known = source[operator].op, model.rates.epilogue
    large = largest_operand(costs, operator) > LARGE_BYTES
    family = "convolution" if classes_of(source[anchor].op) & OpClass.CONV else "product"
    factor = (
        _known(known, f"{family} {op}", f"large_{family} {op}", large) if op in LIMITS else None
    )
    if factor is not None:
        return round(simple_ps(model, costs, operator) * factor)
    arithmetic = arithmetic_of(costs, operator)
    measured = known.get(f"large_{family} {op}") if large else None
    return round(
        arithmetic * (model.epilogue(source[anchor].op, op) if measured is None else measured)
    )


def _known(known: Mapping[str, float], small: str, large: str, is_large: bool) -> float | None:
    found = known.get(large) if is_large else None
    return known.get(small) if found is None else found


def simple_ps(model: CostModel, costs: Mapping[int, SourceCost], operator: int) -> float:
    """What it would cost if it took an instruction for each element of its largest operand."""
    return model.rates.element_ps[SIMPLE] * (largest_operand(costs, operator) // _FLOAT_BYTES)


def arithmetic_of(costs: Mapping[int, SourceCost], operator: int) -> int:
    return max(1, costs[operator].arithmetic_ps) if operator in costs else _UNKNOWN_PS
