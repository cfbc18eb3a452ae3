"""Recurrent layers on a device: a group of work items for each direction and sequence, step by
step, the states in shared memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whence.kernels.builder import Builder
from whence.kernels.ir import Count, Expr, Name, Not, Stmt, Swap, chosen, count
from whence.kernels.recurrent_unit import ZERO, LayerState, Phase, RecurrentUnit, check_lengths

if TYPE_CHECKING:
    from whence.kernels.recurrent_program import Recurrent

_ITEMS = 32


def recurrent_on_device(it: Recurrent) -> tuple[Stmt, ...]:
    build = Builder()
    (_, sequence, direction), (item, _, _) = build.grid(
        (1, it.batch, it.directions), (_ITEMS, 1, 1)
    )
    memory = [
        build.array(name, it.hidden, shared=True)
        for name in ("states", "new_states", "cell_states", "reset_states")
    ]
    names = ("now", "next", "cells", "resets")
    now, later, cells, resets = (
        build.pointer(name, each, written=True, alone=False)
        for name, each in zip(names, memory, strict=True)
    )
    w = build.pointer("w", build.buffer(it.w), direction * (it.panels * it.inputs * it.width))
    r = build.pointer("r", build.buffer(it.r), direction * (it.panels * it.hidden * it.width))
    layer = LayerState(
        it, (count(0), count(it.panels)), direction, sequence, w, r, w, now, later, cells, resets
    )
    check_lengths(build, layer, 1)
    with build.loop("u", it.hidden, begin=item, step=_ITEMS) as u:
        for target, start in ((now, it.start), (cells, it.start_cell), (resets, None)):
            place = layer.state_place(count(0), u)
            build.assign(target[u], ZERO if start is None else build.buffer(start)[place])
    build.barrier()
    backwards = direction if it.reverse == (False, True) else count(int(it.reverse[0]))
    with build.loop("s", it.time) as s:
        t = build.count("t", chosen(backwards.equals(1), it.time - 1 - s, s))
        if it.directions == 1 or it.phases[0] == it.phases[1]:
            _phases(build, layer, it.phases[0], item, t)
        else:
            for number, phases in enumerate(it.phases):
                with build.when(direction.equals(number)):
                    _phases(build, layer, phases, item, t)
        if it.outputs[0] is not None:
            row, hidden = build.buffer(it.outputs[0]), layer.output_row(count(0), t)
            alive = layer.is_alive(count(0), t)
            with build.loop("u", it.hidden, begin=item, step=_ITEMS) as u:
                build.assign(row[hidden + u], layer.next[u])
                if alive is not None:
                    with build.when(Not(alive)):
                        build.assign(row[hidden + u], ZERO)
        build.add(Swap(now.name, later.name))
        build.barrier()
    for result, source in ((it.outputs[1], now), (it.outputs[2], cells)):
        if result is not None:
            with build.loop("u", it.hidden, begin=item, step=_ITEMS) as u:
                build.assign(build.buffer(result)[layer.state_place(count(0), u)], source[u])
    return build.finish()


def _phases(
    build: Builder, layer: LayerState, phases: tuple[Phase, ...], item: Count, t: Count
) -> None:
    for number in range(len(phases)):
        with build.loop("u", layer.it.hidden, begin=item, step=_ITEMS) as u:
            _unit(build, layer, phases, number, u, t)
        build.barrier()


def _unit(
    build: Builder, layer: LayerState, phases: tuple[Phase, ...], number: int, u: Count, t: Count
) -> None:
    """The sums of a unit's gates, and what it makes of them."""
    it, phase = layer.it, phases[number]
    panel = build.count("panel", u // it.units)
    step, row = it.input_strides
    x = build.pointer("x", build.buffer(it.x), t * step + layer.first * row)
    state = layer.resets if phase.from_reset else layer.now
    shares: dict[int, Expr] = {}
    sums: list[Expr] = []
    for gate in phase.gates:
        column = build.count("column", gate * it.units + u % it.units)
        made: list[Name] = []
        for source, weights, depth in ((x, layer.w, it.inputs), (state, layer.r, it.hidden)):
            total = build.variable("sum", ZERO)
            with build.loop("k", depth) as k:
                weight = weights[(panel * depth + k) * it.width + column]
                build.accumulate(total, source[k] * weight)
            made.append(total)
        share: Expr = made[0]
        if it.bias is not None:
            offset = layer.direction * (2 * it.gates * it.hidden) + gate * it.hidden + u
            bias = build.pointer("bias", build.buffer(it.bias), offset)
            share = share + bias[0]
            if gate != it.late:
                share = made[0] + (bias[0] + bias[it.gates * it.hidden])
        shares[gate] = share
        sums.append(made[1])
    unit = RecurrentUnit(build, layer, phases, number, count(0))
    unit.prepare(count(0), t)
    unit.compute(count(0), u, shares.__getitem__, sums.__getitem__)
