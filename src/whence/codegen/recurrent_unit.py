"""What a unit of a recurrent layer makes of its sums, in any language of the C family."""

from __future__ import annotations

from whence.codegen.render_c import CWriter
from whence.kernels.ir import Name, walk
from whence.kernels.recurrent_layer import HIDDEN, NEW_CELL, RESET, Phase
from whence.kernels.recurrent_program import Recurrent


def names_read(phase: Phase) -> set[str]:
    """The values that a phase reads."""
    return {part.name for _, value in phase.lets for part in walk(value) if isinstance(part, Name)}


def write_unit(
    writer: CWriter,
    it: Recurrent,
    number: int,
    phases: tuple[Phase, ...],
    place: str,
    peephole: str,
) -> None:
    """The values of a phase and what is kept of them, after the sums `x0`, `x1`, ... of its gates.

    The arrays `now`, `next`, `cells` and `resets` hold the unit at `place`; `peephole` is where its
    weight number `{slot}` lies. `alive` says whether the sequence still goes on, where sequences
    have lengths.
    """
    line, phase = writer.line, phases[number]
    read, made = names_read(phase), {name for name, _ in phase.lets}
    for name, source in (("before", "now"), ("cell", "cells")):
        if name in read:
            line(f"const float {name} = {source}[{place}];")
    for slot in range(3):
        if f"p{slot}" in read:
            line(f"const float p{slot} = {peephole.format(slot=slot)};")
    if "update" in read - made:
        line(f"const float update = next[{place}];")
    for name, value in phase.lets:
        line(f"const float {name} = {writer.expression(value)};")
    if "update" in made and any("update" in names_read(later) for later in phases[number + 1 :]):
        # Kept where the new state will be, until that is made from it.
        line(f"next[{place}] = update;")
    if RESET in made:
        line(f"resets[{place}] = {RESET};")
    kept = "alive ? {0} : {1}" if it.lengths is not None else "{0}"
    if NEW_CELL in made:
        line(f"cells[{place}] = {kept.format(NEW_CELL, f'cells[{place}]')};")
    if HIDDEN in made:
        line(f"next[{place}] = {kept.format(HIDDEN, f'now[{place}]')};")
