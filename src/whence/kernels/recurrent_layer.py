"""What a recurrent layer is to its program: sizes, how it is divided, and what its units
compute.
"""

from __future__ import annotations

from dataclasses import dataclass

from whence.kernels.builder import Pointer
from whence.kernels.ir import At, Condition, Count, Expr, Micro, Name, ValueCount, count, least
from whence.kernels.tile import Tile
from whence.types import DType

BEFORE, CELL = Name("before", DType.F32), Name("cell", DType.F32)
HIDDEN, NEW_CELL, RESET = "hidden", "new_cell", "reset"


@dataclass(frozen=True, slots=True)
class Phase:
    """A product with the state and what follows for each unit: values by name, in order, from the
    sums `x0`, `x1`, ... of the gates it makes.

    `before` is the unit's output of the step before, `cell` its cell state; `p0`, `p1`, `p2` are
    its peepholes, `late` its late bias.
    """

    gates: tuple[int, ...]
    from_reset: bool
    """The product is with the reset state instead of the state."""
    lets: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True)
class RecurrentLayer(Micro):
    """A whole layer. Work item t is a block of sequences in one direction, or a panel of units."""

    gates: int
    directions: int
    time: int
    batch: int
    inputs: int
    hidden: int
    rows: int
    """Sequences in a work item."""
    gang: bool
    """One sequence in one direction: the workers divide the panels among them and meet after every
    phase. A work item is a panel.
    """
    tile: Tile
    vectors: int
    """Vectors of units in a panel."""
    steps: int
    reverse: tuple[bool, ...]
    batch_first: bool
    late: int | None
    """The gate whose sum with the state starts from its own bias and is kept apart from the
    input's.
    """
    phases: tuple[tuple[Phase, ...], ...]
    """By direction."""
    x: str
    w: str
    r: str
    bias: str | None
    lengths: str | None
    start: str | None
    start_cell: str | None
    peepholes: str | None
    outputs: tuple[str | None, ...]
    """All hidden states, the last, and the last cell state, as far as they are asked for."""

    @property
    def units(self) -> int:
        return self.vectors * self.tile.lanes

    @property
    def panels(self) -> int:
        return -(-self.hidden // self.units)

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return self.gates * self.units

    @property
    def blocks(self) -> int:
        return self.batch // self.rows

    @property
    def padded(self) -> int:
        return self.panels * self.units

    @property
    def input_strides(self) -> tuple[int, int]:
        """From step to step, and from sequence to sequence."""
        step, row = self.batch * self.inputs, self.inputs
        return (row, self.time * row) if self.batch_first else (step, row)

    @property
    def scratch(self) -> tuple[int, int]:
        """Floats of the input's products, and of one state."""
        return self.steps * self.rows * self.panels * self.width, self.rows * self.padded


@dataclass(frozen=True, slots=True)
class LayerState:
    """What the parts of a work item share."""

    it: RecurrentLayer
    panels: tuple[Count, Count]
    """That it computes: from, to."""
    direction: Count
    first: Count
    """The first of its sequences."""
    w: Pointer
    r: Pointer
    products: Pointer
    """The input's share of every gate."""
    now: Pointer
    """States of the step before."""
    next: Pointer
    """States that this step makes."""
    cells: Pointer
    resets: Pointer

    def state_place(self, i: Count, unit: Count) -> Count:
        """Where a state lies among all directions and sequences."""
        it, row = self.it, self.first + i
        if it.batch_first:
            return (row * it.directions + self.direction) * it.hidden + unit
        return (self.direction * it.batch + row) * it.hidden + unit

    def output_row(self, i: Count, t: Count) -> Count:
        """Where the states of a sequence at a time lie among all of them."""
        it, row = self.it, self.first + i
        if it.batch_first:
            return ((row * it.time + t) * it.directions + self.direction) * it.hidden
        return ((t * it.directions + self.direction) * it.batch + row) * it.hidden

    def is_alive(self, i: Count, t: Count) -> Condition | None:
        """Has a sequence not ended yet? `None` where all are as long."""
        if self.it.lengths is None:
            return None
        return t < ValueCount(At(self.it.lengths, self.first + i, DType.I32))

    @property
    def own_units(self) -> tuple[Count, Count]:
        """The units that a worker stores, all of them unless it works together with others."""
        it = self.it
        if not it.gang:
            return count(0), count(it.hidden)
        return self.panels[0] * it.units, least(self.panels[1] * it.units, it.hidden)
