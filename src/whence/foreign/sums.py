"""What a sum inside a kernel is: engines do each kind in another way, at another cost."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from whence.attribution.cost_model import VIEWS
from whence.foreign.function_models import SUMS
from whence.foreign.operator_costs import OperatorCosts
from whence.foreign.source import SourceGraph, reached
from whence.ops.definition import OpClass
from whence.ops.registry import classes_of

NORMALISES = frozenset({"LayerNormalization", "ReduceMean"})


def measured_sum(
    costs: OperatorCosts, members: Collection[int], anchor: int, operator: int
) -> float | None:
    """What a sum behind a convolution or product adds to it, as a factor of something simple, with
    all that it reads. None where no such sum was measured.
    """
    kind = _kind(costs, members, anchor, operator)
    return None if kind is None else costs.measured(operator, SUMS[kind], SUMS[f"large_{kind}"])


def sums_before_norm(source: SourceGraph, members: Sequence[int]) -> list[int]:
    """Sums of two values from elsewhere in a kernel that normalises rows: a residual."""
    if not any(source[each].op in NORMALISES for each in members):
        return []
    return [
        each
        for each in members
        if source[each].op == "Add"
        and len(source[each].feeds_from) + source[each].inputs_read == 2
        and not set(source[each].feeds_from) & set(members)
    ]


def _kind(costs: OperatorCosts, members: Collection[int], anchor: int, operator: int) -> str | None:
    source, known = costs.source, costs.costs.get(operator)
    found = source[operator]
    if found.op != "Add" or known is None or len(known.reads) != 2:
        return None
    convolved = bool(classes_of(source[anchor].op) & OpClass.CONV)
    if not convolved:
        if found.feeds_from != (anchor,) or found.inputs_read:
            return None
        behind = any(
            reader in members and source[reader].op not in VIEWS
            for reader in source.readers(operator)
        )
        return "activated_bias" if behind else "bias"
    (makers, one), (others, other) = known.reads
    inside = frozenset(members)
    if one != other or bool(makers & inside) == bool(others & inside):
        return None
    outside = [maker for maker in found.feeds_from if maker not in inside]
    return "kept_sum" if _is_kept(source, members, operator, outside) else "sum"


def _is_kept(
    source: SourceGraph, members: Collection[int], operator: int, outside: Sequence[int]
) -> bool:
    """Must what is added stay as it is, as it is a constant or others read it, in this kernel or
    later? Then a result cannot be added to it in its place.
    """
    if not outside:
        # A constant, or an input of the model, whose layout is changed first.
        return not source[operator].inputs_read or any(
            source[each].inputs_read for each in members if each != operator
        )
    for maker in outside:
        readers = set(source.readers(maker)) - {operator}
        if maker in source.results or readers & set(members):
            return True
        if readers - _before(source, operator, maker):
            return True
    return False


def _before(source: SourceGraph, operator: int, first: int) -> set[int]:
    """The operators between the two, which have run when `operator` does. Operators are numbered in
    the order of the file, so that nothing in front of `first` reads it.
    """
    return set(
        reached([operator], lambda each: (it for it in source[each].feeds_from if it > first))
    )
