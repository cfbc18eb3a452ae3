"""A program whose sizes are open: one compilation for every call that its guards allow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from whence.building.arena import Planner, plan_arena
from whence.building.plan_template import PlanTemplate, plan_at
from whence.building.program import Details, HasLazyDetails, Program
from whence.extent import is_symbolic

if TYPE_CHECKING:
    from whence.building.native_code import Library
    from whence.building.packed_weights import PackedWeights
    from whence.extent import Dimensions


class ProgramTemplate(HasLazyDetails):
    """What programs for all sizes have in common, besides code and weights; its details have
    expressions as sizes.
    """

    def __init__(
        self,
        dimensions: Dimensions,
        inputs: Mapping[str, Sequence[int] | None],
        plan: PlanTemplate,
        details: Details | Callable[[], Details],
        planner: Planner = plan_arena,
    ) -> None:
        super().__init__(details)
        self.dimensions = dimensions
        self.inputs = {
            name: None if shape is None else tuple(shape) for name, shape in inputs.items()
        }
        """Their shapes, in order; `None` for one that is no tensor."""
        self.plan = plan
        self._planner = planner

    def program(
        self, sizes: Mapping[str, int], weights: PackedWeights, library: Library | None
    ) -> Program:
        """The program for these sizes."""
        plan = plan_at(self.plan, sizes, library, self._planner)
        return Program(plan, weights, library, lambda: self._details_at(sizes), self)

    def sizes_of(self, shapes: Sequence[Sequence[int] | None]) -> dict[str, int] | None:
        """The sizes of the dimensions in a call with inputs of these shapes, if this serves it."""
        sizes: dict[str, int] = {}
        for wanted, shape in zip(self.inputs.values(), shapes, strict=True):
            if not _matched(wanted, shape, sizes):
                return None
        return sizes if self.dimensions.hold(sizes) else None

    def sizes_for(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, int] | None:
        """As `sizes_of`, with the shapes of tensors by the names of the inputs."""
        return self.sizes_of([shapes.get(name) for name in self.inputs])

    def _details_at(self, sizes: Mapping[str, int]) -> Details:
        from whence.building.graph_pickle import evaluated

        details: Details = evaluated(self.details, sizes)
        layout = details.layout.planned(self._planner)
        return replace(details, layout=layout, kernels=replace(details.kernels, sizes=sizes))


def _matched(
    wanted: Sequence[int] | None, shape: Sequence[int] | None, sizes: dict[str, int]
) -> bool:
    """Does an input of this shape fit what the program takes? Sizes of dimensions are noted."""
    if wanted is None or shape is None:
        return wanted is shape
    if len(shape) != len(wanted):
        return False
    for dim, size in zip(wanted, shape, strict=True):
        if is_symbolic(dim):
            # An input's size is a dimension, never an expression of some.
            if sizes.setdefault(str(dim), size) != size:
                return False
        elif dim != size:
            return False
    return True
