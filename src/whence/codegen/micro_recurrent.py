"""Recurrent layers in C."""

from __future__ import annotations

from whence.codegen.recurrent_unit import names_read, write_unit
from whence.codegen.render_c import HEADER, CWriter
from whence.kernels.ir import Micro
from whence.kernels.recurrent import Phase, Recurrent


def write_recurrent(writer: CWriter, micro: Micro) -> None:
    assert isinstance(micro, Recurrent)
    it, line = micro, writer.line
    products, state = it.scratch
    if it.together:
        # Its own panels are all a worker computes; the states of all units it reads from the memory
        # that all share.
        writer.open("")
        line(f"w_gang *gang = *(w_gang **)((char *)scratch - {HEADER});")
        line("const int64_t direction = 0, first = 0;")
    else:
        writer.open("for (int64_t task = begin; task < end; task++)")
        line(
            f"const int64_t direction = task / {it.blocks}, first = task % {it.blocks} * {it.rows};"
        )
    line(f"const float *restrict w = {it.w} + direction * {it.panels * it.inputs * it.width};")
    line(f"const float *restrict r = {it.r} + direction * {it.panels * it.hidden * it.width};")
    line(
        "float *products = scratch, *now ="
        f" {'(float *)gang->shared' if it.together else 'products'} + {products};"
    )
    line(f"float *next = now + {state}, *cells = next + {state}, *resets = cells + {state};")
    line("(void)cells, (void)resets;")
    if it.together:
        writer.open("if (begin == 0)")
    _start(writer, it)
    if it.together:
        writer.close()
        line("gang->meet(gang);")
    line(f"const int backwards = {_backwards(it)};")
    writer.open(f"for (int64_t done = 0; done < {it.time}; done += {it.steps})")
    line(f"const int64_t count = {it.time} - done < {it.steps} ? {it.time} - done : {it.steps};")
    line(f"const int64_t low = backwards ? {it.time} - done - count : done;")
    _project(writer, it)
    _steps(writer, it)
    writer.close()
    _finish(writer, it)
    writer.close()


def _first(it: Recurrent) -> str:
    return "begin" if it.together else "0"


def _last(it: Recurrent) -> str:
    return "end" if it.together else str(it.panels)


def _own_units(it: Recurrent) -> str:
    """The loop over the units that a worker stores, all of them unless it works together with
    others.
    """
    if not it.together:
        return f"for (int64_t u = 0; u < {it.hidden}; u++)"
    return f"for (int64_t u = begin * {it.units}; u < end * {it.units} && u < {it.hidden}; u++)"


def _vector(it: Recurrent) -> str:
    return f"w_f32x{it.tile.lanes}"


def _backwards(it: Recurrent) -> str:
    return "direction" if it.reverse == (False, True) else str(int(it.reverse[0]))


def _state_place(it: Recurrent, row: str, unit: str) -> str:
    """Where a state lies among all directions and sequences."""
    if it.batch_first:
        return f"(({row}) * {it.directions} + direction) * {it.hidden} + {unit}"
    return f"(direction * {it.batch} + {row}) * {it.hidden} + {unit}"


def _start(writer: CWriter, it: Recurrent) -> None:
    for target, source in (("now", it.start), ("cells", it.start_cell)):
        if target == "cells" and not it.has_cell:
            continue
        writer.open(
            f"for (int64_t i = 0; i < {it.rows}; i++) for (int64_t u = 0; u < {it.padded}; u++)"
        )
        value = (
            "0.0f"
            if source is None
            else f"u < {it.hidden} ? {source}[{_state_place(it, 'first + i', 'u')}] : 0.0f"
        )
        writer.line(f"{target}[i * {it.padded} + u] = {value};")
        writer.close()
    # Units that only fill up a vector are computed from zeros and stay what they are; no other unit
    # reads them.
    writer.line(f"for (int64_t u = 0; u < {it.rows * it.padded}; u++) next[u] = resets[u] = 0.0f;")


def _project(writer: CWriter, it: Recurrent) -> None:
    """The input's share of every gate for the next steps, biases included."""
    line = writer.line
    step, row = (
        (it.inputs, it.time * it.inputs) if it.batch_first else (it.batch * it.inputs, it.inputs)
    )
    writer.open(f"for (int64_t panel = {_first(it)}; panel < {_last(it)}; panel++)")
    _bias(writer, it)
    line(f"const float *restrict b = w + panel * {it.inputs * it.width};")
    writer.open(f"for (int64_t i = 0; i < {it.rows}; i++)")
    line(f"const float *restrict from = {it.x} + low * {step} + (first + i) * {row};")
    line(f"float *restrict to = products + (i * {it.panels} + panel) * {it.width};")
    height = max(1, min(24 // (it.gates * it.vectors), it.steps))
    line("int64_t t = 0;")
    for rows, condition in (
        (height, f"for (; t + {height} <= count; t += {height})"),
        (1, "for (; t < count; t++)"),
    ):
        if rows == 1 and height == 1 and condition.startswith("for (; t <"):
            continue
        writer.open(condition)
        _tile(writer, it, rows, step)
        writer.close()
    writer.close()
    writer.close()


def _bias(writer: CWriter, it: Recurrent) -> None:
    writer.line(f"float bias[{it.width}];")
    if it.bias is None:
        writer.line(f"for (int64_t j = 0; j < {it.width}; j++) bias[j] = 0.0f;")
        return
    writer.open(
        f"for (int64_t g = 0; g < {it.gates}; g++) for (int64_t u = 0; u < {it.units}; u++)"
    )
    writer.line(f"const int64_t unit = panel * {it.units} + u;")
    writer.line(
        f"const float *restrict both = {it.bias} + direction * {2 * it.gates * it.hidden} + g *"
        f" {it.hidden} + unit;"
    )
    late = "" if it.late is None else f"g == {it.late} ? both[0] : "
    writer.line(
        f"bias[g * {it.units} + u] = unit < {it.hidden} ? ({late}both[0] +"
        f" both[{it.gates * it.hidden}]) : 0.0f;"
    )
    writer.close()


def _tile(writer: CWriter, it: Recurrent, rows: int, step: int) -> None:
    """The products of `rows` steps of one sequence with a panel of weights."""
    line, lanes, vector, sums = writer.line, it.tile.lanes, _vector(it), it.gates * it.vectors
    line(f"{vector} sum[{rows}][{sums}];")
    line("#pragma clang loop unroll(full)")
    line(
        f"for (int m = 0; m < {rows}; m++) for (int j = 0; j < {sums}; j++) sum[m][j] = *(const"
        f" {vector} *)(bias + j * {lanes});"
    )
    writer.open(f"for (int64_t k = 0; k < {it.inputs}; k++)")
    line("#pragma clang loop unroll(full)")
    writer.open(f"for (int m = 0; m < {rows}; m++)")
    line(f"const {vector} x = w_splat_f32x{lanes}(from[(t + m) * {step} + k]);")
    line("#pragma clang loop unroll(full)")
    line(
        f"for (int j = 0; j < {sums}; j++) sum[m][j] += x * *(const {vector} *)(b + k * {it.width}"
        f" + j * {lanes});"
    )
    writer.close()
    writer.close()
    line("#pragma clang loop unroll(full)")
    target = f"to + (t + m) * {it.rows * it.panels * it.width} + j * {lanes}"
    line(
        f"for (int m = 0; m < {rows}; m++) for (int j = 0; j < {sums}; j++) *({vector} *)({target})"
        " = sum[m][j];"
    )


def _steps(writer: CWriter, it: Recurrent) -> None:
    line = writer.line
    writer.open("for (int64_t s = 0; s < count; s++)")
    line("const int64_t at = backwards ? count - 1 - s : s, t = low + at;")
    line(f"const float *restrict shares = products + at * {it.rows * it.panels * it.width};")
    if it.directions == 1 or it.phases[0] == it.phases[1]:
        _phases(writer, it, it.phases[0])
    else:
        for direction, phases in enumerate(it.phases):
            writer.open(f"if (direction == {direction})")
            _phases(writer, it, phases)
            writer.close()
    _store_step(writer, it)
    line("float *swap = now;")
    line("now = next, next = swap;")
    writer.close()


def _phases(writer: CWriter, it: Recurrent, phases: tuple[Phase, ...]) -> None:
    for number, phase in enumerate(phases):
        # There and back: what a step read last, the next one finds in the cache, where all of the
        # weights would not fit.
        writer.open(f"for (int64_t turn = {_first(it)}; turn < {_last(it)}; turn++)")
        writer.line(f"const int64_t panel = s % 2 ? {_first(it)} + {_last(it)} - 1 - turn : turn;")
        _phase(writer, it, phase, number, phases)
        writer.close()
        if it.together:
            writer.line("gang->meet(gang);")


def _phase(
    writer: CWriter, it: Recurrent, phase: Phase, number: int, phases: tuple[Phase, ...]
) -> None:
    line, lanes, vector, units = writer.line, it.tile.lanes, _vector(it), it.units
    sums = len(phase.gates) * it.vectors
    skipped = phase.gates[0] * units
    state = "resets" if phase.from_reset else "now"
    line(f"const float *restrict b = r + panel * {it.hidden * it.width} + {skipped};")
    line(f"{vector} sum[{it.rows}][{sums}];")
    line("#pragma clang loop unroll(full)")
    line(
        f"for (int i = 0; i < {it.rows}; i++) for (int j = 0; j < {sums}; j++) sum[i][j] ="
        f" ({vector})(0.0f);"
    )
    writer.open(f"for (int64_t k = 0; k < {it.hidden}; k++)")
    line("#pragma clang loop unroll(full)")
    writer.open(f"for (int i = 0; i < {it.rows}; i++)")
    line(f"const {vector} x = w_splat_f32x{lanes}({state}[i * {it.padded} + k]);")
    line("#pragma clang loop unroll(full)")
    line(
        f"for (int j = 0; j < {sums}; j++) sum[i][j] += x * *(const {vector} *)(b + k * {it.width}"
        f" + j * {lanes});"
    )
    writer.close()
    writer.close()
    line(f"float gate[{it.rows}][{sums * lanes}];")
    line("#pragma clang loop unroll(full)")
    line(
        f"for (int i = 0; i < {it.rows}; i++) for (int j = 0; j < {sums}; j++) *({vector}"
        f" *)(gate[i] + j * {lanes}) = sum[i][j];"
    )
    _units(writer, it, phase, number, phases)


def _units(
    writer: CWriter, it: Recurrent, phase: Phase, number: int, phases: tuple[Phase, ...]
) -> None:
    """What each unit of the panel makes of its sums."""
    line, units = writer.line, it.units
    read = names_read(phase)
    writer.open(f"for (int i = 0; i < {it.rows}; i++)")
    line(f"const float *restrict share = shares + (i * {it.panels} + panel) * {it.width};")
    line(f"const int64_t unit0 = panel * {units}, place0 = i * {it.padded} + unit0;")
    if it.lengths is not None:
        line(f"const int alive = t < {it.lengths}[first + i];")
    for slot in range(3):
        if f"p{slot}" in read:
            line(
                f"const float *restrict peep{slot} = {it.peepholes} + direction * {3 * it.hidden} +"
                f" {slot * it.hidden} + unit0;"
            )
    if "late" in read and it.bias is not None:
        offset = it.gates * it.hidden + (it.late or 0) * it.hidden
        line(
            f"const float *restrict late_bias = {it.bias} + direction * {2 * it.gates * it.hidden}"
            f" + {offset} + unit0;"
        )
    tail = it.hidden % units
    limit = f"(panel == {it.panels - 1} ? {tail} : {units})" if tail else str(units)
    line("#pragma clang loop vectorize(assume_safety)")
    writer.open(f"for (int64_t u = 0; u < {limit}; u++)")
    line("const int64_t place = place0 + u;")
    for local, gate in enumerate(phase.gates):
        recurrent = f"gate[i][{local * units} + u]"
        share = f"share[{gate * units} + u]"
        if gate == it.late and not phase.from_reset:
            # The state's share is reset on its own, with its own bias.
            line(
                f"const float x{gate} = {share}, late ="
                f" {recurrent}{' + late_bias[u]' if it.bias is not None else ''};"
            )
        else:
            line(f"const float x{gate} = {share} + {recurrent};")
            if gate == it.late:
                line(f"const float late = {'late_bias[u]' if it.bias is not None else '0.0f'};")
    write_unit(writer, it, number, phases, "place", "peep{slot}[u]")
    writer.close()
    writer.close()


def _store_step(writer: CWriter, it: Recurrent) -> None:
    target = it.outputs[0]
    if target is None:
        return
    writer.open(f"for (int64_t i = 0; i < {it.rows}; i++)")
    if it.batch_first:
        place = f"(((first + i) * {it.time} + t) * {it.directions} + direction) * {it.hidden}"
    else:
        place = f"((t * {it.directions} + direction) * {it.batch} + first + i) * {it.hidden}"
    writer.line(f"float *restrict to = {target} + {place};")
    value = f"next[i * {it.padded} + u]"
    if it.lengths is not None:
        value = f"t < {it.lengths}[first + i] ? {value} : 0.0f"
    writer.line(f"{_own_units(it)} to[u] = {value};")
    writer.close()


def _finish(writer: CWriter, it: Recurrent) -> None:
    for target, source in ((it.outputs[1], "now"), (it.outputs[2], "cells")):
        if target is None:
            continue
        writer.open(f"for (int64_t i = 0; i < {it.rows}; i++) {_own_units(it)}")
        writer.line(
            f"{target}[{_state_place(it, 'first + i', 'u')}] = {source}[i * {it.padded} + u];"
        )
        writer.close()
