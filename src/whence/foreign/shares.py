"""A kernel's time over the operators of the file that it stands for.

An operator has what leaving it out of the kernel would save, by the cost model of whence's own
profiles; convolutions, products and recurrent cells, or else the operator that costs most, have the
rest. Views and sizes have nothing while there is anything else, nor has what engines fold into the
weights of a convolution: a batch normalisation, a scale or an offset by constants right behind it.
Which branch of a condition runs is not known: the condition keeps its part.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from whence.attribution.cost_model import VIEWS, CostModel, Traffic
from whence.attribution.source_costs import SourceCost
from whence.foreign.source import SourceGraph
from whence.ops.definition import OpClass
from whence.ops.registry import classes_of

_IN_WEIGHTS = frozenset({"BatchNormalization", "Mul", "Div", "Add", "Sub"})
_UNKNOWN_PS = 1000
"""What an operator costs whose shapes are not known: little beside a convolution."""


def weights_of(
    source: SourceGraph,
    model: CostModel,
    costs: Mapping[int, SourceCost],
    operators: Collection[int],
) -> dict[int, int]:
    """Weights of the operators, none negative, not all 0."""
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
    arithmetic = {each: _arithmetic(costs, each) for each in working}
    reads = {each: costs[each].side_bytes(inside) if each in costs else 0 for each in working}
    read = {
        each: sum(size for makers, size in costs[each].reads if not makers & inside)
        if each in costs
        else 0
        for each in working
    }
    traffic = Traffic(sum(read.values()), 0)
    per_byte = model.byte_ps(traffic)
    computing, moving = sum(arithmetic.values()), model.moving_ps(traffic)
    whole = model.together_ps(computing, moving, traffic)
    anchors = heavy or [max(working, key=lambda each: (arithmetic[each], -each))]
    for each in working:
        if each not in anchors:
            weights[each] = whole - model.together_ps(
                max(0, computing - arithmetic[each]),
                max(0, moving - round(reads[each] * per_byte)),
                traffic,
            )
    rest = max(0, whole - sum(weights.values()))
    total = sum(arithmetic[each] for each in anchors)
    for each in anchors:
        weights[each] = rest * arithmetic[each] // total if total else rest // len(anchors)
    return (
        weights
        if any(weights.values())
        else dict.fromkeys(working, 1) | {each: 0 for each in members if each not in working}
    )


def _folded(source: SourceGraph, members: Sequence[int]) -> set[int]:
    """Members that are in the weights of a convolution."""
    convolved = {each for each in members if classes_of(source[each].op) & OpClass.CONV}
    found: set[int] = set()
    for each in members:
        makers = source[each].feeds_from
        if source[each].op in _IN_WEIGHTS and len(makers) == 1 and makers[0] in convolved | found:
            found.add(each)
    return found


def _arithmetic(costs: Mapping[int, SourceCost], operator: int) -> int:
    return max(1, costs[operator].arithmetic_ps) if operator in costs else _UNKNOWN_PS
