"""Recurrent layers in OpenCL C: a group of work items for each direction and sequence, step by
step, the states in local memory.
"""

from __future__ import annotations

from whence.codegen.opencl.render_cl import ClWriter, Geometry
from whence.codegen.recurrent_unit import write_unit
from whence.kernels.ir import Micro
from whence.kernels.recurrent_layer import Phase
from whence.kernels.recurrent_program import Recurrent
from whence.types import DType

_ITEMS = 32
_BARRIER = "barrier(CLK_LOCAL_MEM_FENCE);"


def write_recurrent(writer: ClWriter, micro: Micro) -> None:
    assert isinstance(micro, Recurrent)
    it, line, counter = micro, writer.line, writer.counter
    writer.geometry = Geometry((_ITEMS, it.batch, it.directions), (_ITEMS, 1, 1))
    writer.local("states", DType.F32, 2, it.hidden)
    writer.local("cells", DType.F32, it.hidden)
    writer.local("resets", DType.F32, it.hidden)
    line("const int item = get_local_id(0);")
    line(f"const {counter} sequence = get_group_id(1), direction = get_group_id(2);")
    line(f"__global const float *w = {it.w} + direction * {it.panels * it.inputs * it.width};")
    line(f"__global const float *r = {it.r} + direction * {it.panels * it.hidden * it.width};")
    line("__local float *now = states[0], *next = states[1];")
    place = _state_place(it, "u")
    writer.open(f"for ({counter} u = item; u < {it.hidden}; u += {_ITEMS})")
    line(f"now[u] = {f'{it.start}[{place}]' if it.start else '0.0f'};")
    line(f"cells[u] = {f'{it.start_cell}[{place}]' if it.start_cell else '0.0f'};")
    line("resets[u] = 0.0f;")
    writer.close()
    line(_BARRIER)
    backwards = "direction" if it.reverse == (False, True) else str(int(it.reverse[0]))
    writer.open(f"for ({counter} s = 0; s < {it.time}; s++)")
    line(f"const {counter} t = {backwards} ? {it.time} - 1 - s : s;")
    step, row = (
        (it.inputs, it.time * it.inputs) if it.batch_first else (it.batch * it.inputs, it.inputs)
    )
    line(f"__global const float *x = {it.x} + t * {step} + sequence * {row};")
    line(f"const int alive = {f't < {it.lengths}[sequence]' if it.lengths else '1'};")
    if it.directions == 1 or it.phases[0] == it.phases[1]:
        _phases(writer, it, it.phases[0])
    else:
        for direction, phases in enumerate(it.phases):
            writer.open(f"if (direction == {direction})")
            _phases(writer, it, phases)
            writer.close()
    target = it.outputs[0]
    if target is not None:
        batched = f"((sequence * {it.time} + t) * {it.directions} + direction) * {it.hidden}"
        timed = f"((t * {it.directions} + direction) * {it.batch} + sequence) * {it.hidden}"
        line(f"__global float *to = {target} + {batched if it.batch_first else timed};")
        line(
            f"for ({counter} u = item; u < {it.hidden}; u += {_ITEMS}) to[u] = alive ? next[u] :"
            " 0.0f;"
        )
    line("__local float *swap = now;")
    line("now = next, next = swap;")
    line(_BARRIER)
    writer.close()
    for result, source in ((it.outputs[1], "now"), (it.outputs[2], "cells")):
        if result is not None:
            line(
                f"for ({counter} u = item; u < {it.hidden}; u += {_ITEMS}) {result}[{place}] ="
                f" {source}[u];"
            )


def _state_place(it: Recurrent, unit: str) -> str:
    """Where a state lies among all directions and sequences."""
    if it.batch_first:
        return f"(sequence * {it.directions} + direction) * {it.hidden} + {unit}"
    return f"(direction * {it.batch} + sequence) * {it.hidden} + {unit}"


def _phases(writer: ClWriter, it: Recurrent, phases: tuple[Phase, ...]) -> None:
    for number, phase in enumerate(phases):
        writer.open(f"for ({writer.counter} u = item; u < {it.hidden}; u += {_ITEMS})")
        _unit(writer, it, phase, number, phases)
        writer.close()
        writer.line(_BARRIER)


def _unit(
    writer: ClWriter, it: Recurrent, phase: Phase, number: int, phases: tuple[Phase, ...]
) -> None:
    """What one unit makes of its sums."""
    line, counter = writer.line, writer.counter
    state = "resets" if phase.from_reset else "now"
    line(f"const {counter} panel = u / {it.units}, own = u % {it.units};")
    for gate in phase.gates:
        column = f"{gate * it.units} + own"
        line(f"float share{gate} = 0.0f, rest{gate} = 0.0f;")
        line(
            f"for ({counter} k = 0; k < {it.inputs}; k++) share{gate} += x[k] * w[(panel *"
            f" {it.inputs} + k) * {it.width} + {column}];"
        )
        line(
            f"for ({counter} k = 0; k < {it.hidden}; k++) rest{gate} += {state}[k] * r[(panel *"
            f" {it.hidden} + k) * {it.width} + {column}];"
        )
        late = "0.0f"
        if it.bias is not None:
            line(
                f"__global const float *bias{gate} = {it.bias} + direction *"
                f" {2 * it.gates * it.hidden} + {gate * it.hidden} + u;"
            )
            late = f"bias{gate}[{it.gates * it.hidden}]"
            line(
                f"share{gate} +="
                f" {f'bias{gate}[0]' if gate == it.late else f'(bias{gate}[0] + {late})'};"
            )
        if gate == it.late and not phase.from_reset:
            # The state's share is reset on its own, with its own bias.
            line(f"const float x{gate} = share{gate}, late = rest{gate} + {late};")
        else:
            line(f"const float x{gate} = share{gate} + rest{gate};")
            if gate == it.late:
                line(f"const float late = {late};")
    peephole = f"{it.peepholes}[direction * {3 * it.hidden} + {{slot}} * {it.hidden} + u]"
    write_unit(writer, it, number, phases, "u", peephole)
