"""The state of a recurrent layer while it runs, and what a unit makes of the sums of its gates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from whence.kernels.builder import Builder, Pointer
from whence.kernels.expressions import apply, cast, choose, select
from whence.kernels.ir import (
    At,
    Condition,
    Count,
    CountValue,
    Expr,
    Fn,
    Literal,
    Name,
    ValueCount,
    count,
    least,
    walk,
)
from whence.types import DType

if TYPE_CHECKING:
    from whence.kernels.recurrent_program import Recurrent

BEFORE, CELL = Name("before", DType.F32), Name("cell", DType.F32)
HIDDEN, NEW_CELL, RESET = "hidden", "new_cell", "reset"
ZERO = Literal(0.0, DType.F32)


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
class LayerState:
    """What the parts of a work item share."""

    it: Recurrent
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


def check_lengths(build: Builder, layer: LayerState, rows: int) -> None:
    """Note it if a sequence of this work item is longer than the input, or of negative length."""
    it = layer.it
    if it.lengths is None:
        return
    beyond = Literal(it.time + 1, DType.I64)
    with build.loop("i", rows) as i:
        given = build.buffer(it.lengths, DType.I32)[layer.first + i]
        length = build.let("length", cast(given, DType.I64))
        # An index below zero would count from the end.
        at = select(apply(Fn.LT, length, Literal(0, DType.I64)), beyond, length)
        build.let("checked", apply(Fn.CHECKED, at, beyond))


def names_read(phase: Phase) -> set[str]:
    """The values that a phase reads."""
    return {part.name for _, value in phase.lets for part in walk(value) if isinstance(part, Name)}


@dataclass(slots=True)
class RecurrentUnit:
    """What a unit makes of the sums of a phase's gates."""

    build: Builder
    layer: LayerState
    phases: tuple[Phase, ...]
    number: int
    unit0: Count
    peepholes: dict[int, Pointer] = field(default_factory=dict)
    late_bias: Pointer | None = None
    alive: Expr | None = None

    def prepare(self, i: Count, t: Count) -> None:
        """What all units of a panel have in common."""
        it, build, read = self.layer.it, self.build, names_read(self.phases[self.number])
        direction = self.layer.direction
        if it.lengths is not None:
            lengths = build.buffer(it.lengths, DType.I32)
            self.alive = build.let(
                "alive", apply(Fn.LT, CountValue(t, DType.I32), lengths[self.layer.first + i])
            )
        for slot in range(3):
            if f"p{slot}" in read:
                assert it.peepholes is not None
                place = direction * (3 * it.hidden) + slot * it.hidden + self.unit0
                self.peepholes[slot] = build.pointer(
                    f"peep{slot}", build.buffer(it.peepholes), place
                )
        if "late" in read and it.bias is not None:
            offset = it.gates * it.hidden + (it.late or 0) * it.hidden
            place = direction * (2 * it.gates * it.hidden) + offset + self.unit0
            self.late_bias = build.pointer("late_bias", build.buffer(it.bias), place)

    def compute(
        self, i: Count, u: Count, share_of: Callable[[int], Expr], sum_of: Callable[[int], Expr]
    ) -> None:
        """`share_of` has the input's share of each gate, `sum_of` the products with the state by
        the gate's number in this phase.
        """
        it, build, layer = self.layer.it, self.build, self.layer
        phase = self.phases[self.number]
        place = build.count("place", i * it.padded + self.unit0 + u)
        late = None if self.late_bias is None else self.late_bias[u]
        for local, gate in enumerate(phase.gates):
            recurrent, share = sum_of(local), share_of(gate)
            if gate == it.late and not phase.from_reset:
                # The state's share is reset on its own, with its own bias.
                build.bind_value(f"x{gate}", share)
                build.bind_value("late", recurrent if late is None else recurrent + late)
            else:
                build.bind_value(f"x{gate}", share + recurrent)
                if gate == it.late:
                    build.bind_value("late", ZERO if late is None else late)
        read, made = names_read(phase), {name for name, _ in phase.lets}
        for name, source in (("before", layer.now), ("cell", layer.cells)):
            if name in read:
                build.bind_value(name, source[place])
        for slot, peephole in self.peepholes.items():
            build.bind_value(f"p{slot}", peephole[u])
        if "update" in read - made:
            build.bind_value("update", layer.next[place])
        values = {name: build.bind_value(name, value) for name, value in phase.lets}
        later = self.phases[self.number + 1 :]
        if "update" in made and any("update" in names_read(each) for each in later):
            # Left where the new state will be, until that is made from it.
            build.assign(layer.next[place], values["update"])
        if RESET in made:
            build.assign(layer.resets[place], values[RESET])
        if NEW_CELL in made:
            build.assign(layer.cells[place], self._kept(values[NEW_CELL], layer.cells[place]))
        if HIDDEN in made:
            build.assign(layer.next[place], self._kept(values[HIDDEN], layer.now[place]))

    def _kept(self, value: Expr, before: Expr) -> Expr:
        """The value, while the sequence goes on; then what was before."""
        return value if self.alive is None else choose(self.alive, value, before)
