"""Recurrent layers as programs: the input's products for many steps at once, then step by step the
products with the state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from whence.kernels.builder import Builder, Memory, Pointer
from whence.kernels.device.recurrent import recurrent_on_device
from whence.kernels.ir import (
    BEGIN,
    END,
    FULLY,
    SCRATCH,
    SHARED,
    Barrier,
    BarrierScope,
    Count,
    Counter,
    Expr,
    Kernel,
    Micro,
    Splat,
    Stmt,
    Swap,
    chosen,
    count,
    least,
)
from whence.kernels.recurrent_unit import ZERO, LayerState, Phase, RecurrentUnit, check_lengths
from whence.kernels.tile import Tile
from whence.types import DType


@dataclass(frozen=True, slots=True)
class Recurrent(Micro):
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

    def program(self, kernel: Kernel) -> tuple[Stmt, ...]:
        build = Builder()
        if self.gang:
            # Its own panels are all a worker computes; the states of all units it reads from the
            # memory that all share.
            panels = (Counter(BEGIN), Counter(END))
            _layer(build, self, panels, count(0), count(0))
        else:
            with build.tasks(kernel.tasks) as task:
                direction = build.count("direction", task // self.blocks)
                first = build.count("first", task % self.blocks * self.rows)
                _layer(build, self, (count(0), count(self.panels)), direction, first)
        return build.finish()

    def device_program(self, kernel: Kernel) -> tuple[Stmt, ...]:
        return recurrent_on_device(self)


def _layer(
    build: Builder, it: Recurrent, panels: tuple[Count, Count], direction: Count, first: Count
) -> None:
    products, state = it.scratch
    place = (SHARED if it.gang else SCRATCH, DType.F32)
    states = [
        build.memory(name, *place, products + number * state)
        for number, name in enumerate(("now", "next", "cells", "resets"))
    ]
    layer = LayerState(
        it,
        panels,
        direction,
        first,
        build.pointer("w", build.buffer(it.w), direction * (it.panels * it.inputs * it.width)),
        build.pointer("r", build.buffer(it.r), direction * (it.panels * it.hidden * it.width)),
        build.memory("products", SCRATCH, DType.F32, 0),
        *states,
    )
    if it.gang:
        with build.when(panels[0].equals(0)):
            _start(build, layer)
        build.add(Barrier(BarrierScope.WORKERS))
    else:
        _start(build, layer)
    backwards = direction if it.reverse == (False, True) else count(int(it.reverse[0]))
    with build.loop("done", it.time, step=it.steps) as done:
        steps = build.count("count", least(it.time - done, it.steps))
        low = build.count("low", chosen(backwards.equals(1), it.time - done - steps, done))
        _project(build, layer, low, steps)
        _steps(build, layer, backwards, low, steps)
    begin, end = layer.own_units
    for target, source in ((it.outputs[1], layer.now), (it.outputs[2], layer.cells)):
        if target is not None:
            with build.loop("i", it.rows) as i, build.loop("u", end, begin=begin) as u:
                made = build.buffer(target)[layer.state_place(i, u)]
                build.assign(made, source[i * it.padded + u])


def _start(build: Builder, layer: LayerState) -> None:
    it = layer.it
    check_lengths(build, layer, it.rows)
    for target, source in ((layer.now, it.start), (layer.cells, it.start_cell)):
        if target is layer.cells and it.gates < 4:  # only an LSTM has cells
            continue
        with build.loop("i", it.rows) as i:
            if source is not None:
                with build.loop("u", it.hidden) as u:
                    value = build.buffer(source)[layer.state_place(i, u)]
                    build.assign(target[i * it.padded + u], value)
            begin = it.hidden if source is not None else 0
            with build.loop("u", it.padded, begin=begin) as u:
                build.assign(target[i * it.padded + u], ZERO)
    # Units that only fill up a vector are computed from zeros and stay what they are; no other unit
    # reads them.
    with build.loop("u", it.rows * it.padded) as u:
        build.assign(layer.next[u], ZERO)
        build.assign(layer.resets[u], ZERO)


def _project(build: Builder, layer: LayerState, low: Count, steps: Count) -> None:
    """The input's share of every gate for the next steps, biases included."""
    it = layer.it
    lanes, vectors, (step, row) = it.tile.lanes, it.gates * it.vectors, it.input_strides
    height = min(it.tile.rows_beside(vectors), it.steps)
    with build.loop("panel", layer.panels[1], begin=layer.panels[0]) as panel:
        bias = _bias(build, layer, panel)
        b = build.pointer("b", layer.w, panel * (it.inputs * it.width))
        with build.loop("i", it.rows) as i:
            source = build.pointer("from", build.buffer(it.x), low * step + (layer.first + i) * row)
            to = build.pointer(
                "to", layer.products, (i * it.panels + panel) * it.width, written=True
            )

            def tile(t: Count, rows: int) -> None:
                """The products of so many steps with the panel."""
                sums = build.array("sum", rows, vectors, lanes=lanes)
                with build.unrolled(("m", rows), ("j", vectors)) as (m, j):
                    build.assign(sums[m, j], bias.vector(j * lanes, lanes))

                def value(m: Count, k: Count) -> Expr:
                    return source[(t + m) * step + k]

                _accumulate(build, it, sums, rows, vectors, it.inputs, value, b)
                with build.unrolled(("m", rows), ("j", vectors)) as (m, j):
                    place = (t + m) * (it.rows * it.panels * it.width) + j * lanes
                    build.assign(to.vector(place, lanes), sums[m, j])

            whole = build.count("whole", steps // height * height)
            with build.loop("t", whole, step=height) as t:
                tile(t, height)
            if height > 1:
                with build.loop("t", steps, begin=whole) as t:
                    tile(t, 1)


def _bias(build: Builder, layer: LayerState, panel: Count) -> Memory:
    """What the sums of a panel begin with: the biases of the input and of the state, but for the
    gate whose second bias comes later.
    """
    it = layer.it
    bias = build.array("bias", it.width)
    if it.bias is None:
        with build.loop("j", it.width) as j:
            build.assign(bias[j], ZERO)
        return bias
    with build.loop("g", it.gates) as g, build.loop("u", it.units) as u:
        unit = build.count("unit", panel * it.units + u)
        both = build.pointer(
            "both",
            build.buffer(it.bias),
            layer.direction * (2 * it.gates * it.hidden) + g * it.hidden + unit,
        )
        with build.when(unit < it.hidden):
            build.assign(bias[g * it.units + u], both[0])
            total = both[0] + both[it.gates * it.hidden]
            if it.late is None:
                build.assign(bias[g * it.units + u], total)
            else:
                with build.when(g.differs(it.late)):
                    build.assign(bias[g * it.units + u], total)
        with build.otherwise():
            build.assign(bias[g * it.units + u], ZERO)
    return bias


def _accumulate(
    build: Builder,
    it: Recurrent,
    sums: Memory,
    rows: int,
    vectors: int,
    depth: int,
    value: Callable[[Count, Count], Expr],
    b: Pointer,
) -> None:
    """sum[m][j] += Σ_k value(m, k) · b[k][j]"""
    lanes = it.tile.lanes
    with build.loop("k", depth) as k:
        x = build.array("x", rows, lanes=lanes)
        with build.loop("m", rows, unroll=FULLY) as m:
            build.assign(x[m], Splat(value(m, k), lanes))
        with build.loop("j", vectors, unroll=FULLY) as j:
            weights = build.let("weights", b.vector(k * it.width + j * lanes, lanes))
            with build.loop("m", rows, unroll=FULLY) as m:
                build.accumulate(sums[m, j], x[m] * weights)


def _steps(build: Builder, layer: LayerState, backwards: Count, low: Count, steps: Count) -> None:
    it = layer.it
    with build.loop("s", steps) as s:
        at = build.count("at", chosen(backwards.equals(1), steps - 1 - s, s))
        t = build.count("t", low + at)
        shares = build.pointer("shares", layer.products, at * (it.rows * it.panels * it.width))
        if it.directions == 1 or it.phases[0] == it.phases[1]:
            _phases(build, layer, it.phases[0], s, t, shares)
        else:
            for number, phases in enumerate(it.phases):
                with build.when(layer.direction.equals(number)):
                    _phases(build, layer, phases, s, t, shares)
        _store_step(build, layer, t)
        build.add(Swap(layer.now.name, layer.next.name))


def _phases(
    build: Builder,
    layer: LayerState,
    phases: tuple[Phase, ...],
    s: Count,
    t: Count,
    shares: Pointer,
) -> None:
    begin, end = layer.panels
    for number in range(len(phases)):
        # There and back: what a step read last, the next one finds in the cache, where all of the
        # weights would not fit.
        with build.loop("order", end, begin=begin) as order:
            back = begin + end - 1 - order
            panel = build.count("panel", chosen((s % 2).equals(1), back, order))
            _phase(build, layer, phases, number, panel, t, shares)
        if layer.it.gang:
            build.add(Barrier(BarrierScope.WORKERS))


def _phase(
    build: Builder,
    layer: LayerState,
    phases: tuple[Phase, ...],
    number: int,
    panel: Count,
    t: Count,
    shares: Pointer,
) -> None:
    it, phase = layer.it, phases[number]
    lanes, vectors = it.tile.lanes, len(phase.gates) * it.vectors
    state = layer.resets if phase.from_reset else layer.now
    skipped = phase.gates[0] * it.units
    b = build.pointer("b", layer.r, panel * (it.hidden * it.width) + skipped)
    sums = build.sums(it.rows, vectors, lanes=lanes)
    _accumulate(
        build, it, sums, it.rows, vectors, it.hidden, lambda i, k: state[i * it.padded + k], b
    )
    gate = build.array("gate", it.rows * vectors * lanes)
    with build.unrolled(("i", it.rows), ("j", vectors)) as (i, j):
        build.assign(gate.vector(i * (vectors * lanes) + j * lanes, lanes), sums[i, j])
    tail = it.hidden % it.units
    limit = chosen(panel.equals(it.panels - 1), tail, it.units) if tail else count(it.units)
    with build.loop("i", it.rows) as i:
        share = build.pointer("share", shares, (i * it.panels + panel) * it.width)
        unit0 = build.count("unit0", panel * it.units)
        unit = RecurrentUnit(build, layer, phases, number, unit0)
        unit.prepare(i, t)
        with build.loop("u", limit, vectorise=True) as u:
            unit.compute(
                i,
                u,
                lambda number: share[number * it.units + u],
                lambda number: gate[i * (vectors * lanes) + number * it.units + u],
            )


def _store_step(build: Builder, layer: LayerState, t: Count) -> None:
    it, target = layer.it, layer.it.outputs[0]
    if target is None:
        return
    begin, end = layer.own_units
    with build.loop("i", it.rows) as i:
        to = build.pointer("to", build.buffer(target), layer.output_row(i, t), written=True)

        def store(ends: bool) -> None:
            with build.loop("u", end, begin=begin) as u:
                build.assign(to[u], ZERO if ends else layer.next[i * it.padded + u])

        alive = layer.is_alive(i, t)
        if alive is None:
            store(False)
        else:
            with build.when(alive):
                store(False)
            with build.otherwise():
                store(True)
