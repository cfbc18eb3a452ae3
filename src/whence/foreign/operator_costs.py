"""What single operators of the file cost an engine, by themselves and in a kernel with others.

Engines do each kind of sum in another way, at another cost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from whence.attribution.cost_model import VIEWS, CostModel, Traffic
from whence.attribution.source_costs import SourceCost, sized, source_costs
from whence.building.nominal_rates import SIMPLE
from whence.foreign.function_models import LARGE_BYTES, LIMITS, SUMS
from whence.foreign.source import SourceGraph, reached
from whence.ops.definition import OpClass
from whence.ops.registry import classes_of

NORMALISES = frozenset({"LayerNormalization", "ReduceMean"})
_FLOAT_BYTES = 4
_UNKNOWN_PS = 1000
"""What an operator costs whose shapes are not known: little beside a convolution."""


@dataclass(frozen=True, slots=True)
class OperatorCosts:
    """By the cost model of whence's own profiles, and what was measured of the engine."""

    source: SourceGraph
    model: CostModel
    costs: Mapping[int, SourceCost]

    def largest_operand(self, operator: int) -> int:
        """In bytes."""
        reads = self.costs[operator].reads if operator in self.costs else ()
        return max((size for _, size in reads), default=0)

    def arithmetic_ps(self, operator: int) -> int:
        known = self.costs.get(operator)
        return _UNKNOWN_PS if known is None else max(1, known.arithmetic_ps)

    def simple_ps(self, operator: int) -> float:
        """What it would cost if it took an instruction for each element of its largest operand."""
        elements = self.largest_operand(operator) // _FLOAT_BYTES
        return self.model.rates.element_ps[SIMPLE] * elements

    def alone_ps(self, operator: int) -> int:
        """What it would take in a kernel of its own, its result as large as the largest operand."""
        known, model = self.costs.get(operator), self.model
        read = 0 if known is None else sum(size for _, size in known.reads)
        traffic = Traffic(read + self.largest_operand(operator), 0)
        return model.overlapped_ps(self.arithmetic_ps(operator), model.moving_ps(traffic), traffic)

    def behind_ps(self, anchor: int, operator: int) -> int:
        """What it adds to a convolution or product that it is applied to the results of."""
        op, anchor_op = self.source[operator].op, self.source[anchor].op
        family = "convolution" if classes_of(anchor_op) & OpClass.CONV else "product"
        name = f"{family} {op}"
        if op in LIMITS:
            factor = self._measured(operator, name, f"large_{name}")
            if factor is not None:
                return round(self.simple_ps(operator) * factor)
        large = self.model.rates.epilogue.get(f"large_{name}")
        if large is None or self.largest_operand(operator) <= LARGE_BYTES:
            large = self.model.epilogue(anchor_op, op)
        return round(self.arithmetic_ps(operator) * large)

    def measured_sum(self, members: Collection[int], anchor: int, operator: int) -> float | None:
        """What a sum behind a convolution or product adds to it, as a factor of something simple,
        with all that it reads. None where no such sum was measured.
        """
        kind = self._kind_of_sum(members, anchor, operator)
        return None if kind is None else self._measured(operator, SUMS[kind], SUMS[f"large_{kind}"])

    def _measured(self, operator: int, small: str, large: str) -> float | None:
        """The factor that was measured under one of these names, by how large the operands are;
        that of small ones where none was of large ones.
        """
        known = self.model.rates.epilogue
        found = known.get(large) if self.largest_operand(operator) > LARGE_BYTES else None
        return known.get(small) if found is None else found

    def _kind_of_sum(self, members: Collection[int], anchor: int, operator: int) -> str | None:
        source, known = self.source, self.costs.get(operator)
        found = source[operator]
        if found.op != "Add" or known is None or len(known.reads) != 2:
            return None
        if not classes_of(source[anchor].op) & OpClass.CONV:
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


def operator_costs(
    source: SourceGraph, model: CostModel, shapes: Mapping[str, Sequence[int]] | None = None
) -> OperatorCosts:
    """For inputs of these shapes."""
    return OperatorCosts(source, model, source_costs(sized(source.graph, shapes), model))


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
