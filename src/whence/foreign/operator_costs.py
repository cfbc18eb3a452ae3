"""What single operators of the file cost an engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from whence.attribution.cost_model import CostModel
from whence.attribution.source_costs import SourceCost
from whence.calibration.nominal import SIMPLE
from whence.foreign.function_models import LARGE_BYTES
from whence.foreign.source import SourceGraph

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

    def measured(self, operator: int, small: str, large: str) -> float | None:
        """The factor that was measured under one of these names, by how large the operands are;
        that of small ones where none was of large ones.
        """
        known = self.model.rates.epilogue
        found = known.get(large) if self.largest_operand(operator) > LARGE_BYTES else None
        return known.get(small) if found is None else found
