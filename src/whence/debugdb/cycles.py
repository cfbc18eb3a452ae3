"""Cycles of the commands in a queue: Vela's own estimate, or what was measured elsewhere.

| from                      | what it has                                               | how it meets the queue                |
|---------------------------|-----------------------------------------------------------|---------------------------------------|
| the table `perf` (Regor)  | `op_cycles` by scheduled operation                        | `queue.scheduled_id`, and `group`     |
| a CSV of measurements     | `offset, cycles`, and `cmdstream_id` with several streams | by offset; the same one twice adds up |
| `*_per-layer.csv` of Vela | `Op Cycles` by operation, in execution order              | by order, types compared              |

Where an operation has several commands its cycles are shared equally, in integers that add up.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from whence.debugdb.csv_text import read_csv_file
from whence.debugdb.join import Join, numbered_rows
from whence.debugdb.tables import DebugDatabase
from whence.errors import ModelError

_LARGEST = 64 << 20
_MOST_CYCLES = 1 << 53


@dataclass(frozen=True, slots=True)
class Cycles:
    """By row of the queue; what is known of none is 0."""

    per_command: tuple[int, ...]
    of: str
    """Where they come from, for people to read."""
    notes: tuple[str, ...] = ()


def estimated_cycles(db: DebugDatabase, join: Join) -> Cycles:
    """From the table `perf`; no cycles when there is none."""
    if db.extra("perf") is None:
        note = (
            "the database has no cycles (Vela's older core writes none): give measured ones, or"
            " Vela's *_per-layer.csv, with --cycles"
        )
        return Cycles((0,) * len(join.commands), "no cycles", (note,))
    groups = numbered_rows(db, "group", "id", "group_id")
    leaders = {row["id"]: row["group_id"] for row in groups}
    own: dict[int, list[int]] = defaultdict(list)
    for position, command in enumerate(join.commands):
        if command.scheduled is not None:
            own[command.scheduled].append(position)
    found = [0] * len(join.commands)
    known, unassigned = set(), 0
    for row in numbered_rows(db, "perf"):
        cycles = row.get("op_cycles", 0)
        if not 0 <= cycles <= _MOST_CYCLES:
            raise ModelError(f"table 'perf': operation {row['id']} claims {cycles} cycles")
        places = own.get(row["id"]) or own.get(leaders.get(row["id"], -1), [])
        known.update(places)
        _share(found, places, cycles)
        unassigned += 0 if places else cycles
    notes = []
    if len(known) < len(found):
        notes.append(
            f"{len(found) - len(known)} of {len(found)} commands have no cycles in table 'perf',"
            " which covers the last compiled subgraph only"
        )
    if unassigned:
        notes.append(
            f"{unassigned} cycles in table 'perf' belong to operations without a command and are"
            " left out"
        )
    return Cycles(tuple(found), "Vela's estimate", tuple(notes))


def read_cycles(path: Path, db: DebugDatabase, join: Join) -> Cycles:
    """From a CSV file of one of the two kinds."""
    found = read_csv_file(path, _LARGEST, "a table of cycles")
    rows = [row for row in found if any(cell.strip() for cell in row)]
    header = [cell.strip().lower() for cell in rows[0]] if rows else []
    if "op cycles" in header:
        return _per_layer(path, header, rows[1:], db, join)
    return _measured(path, header, rows, db)


def _measured(
    path: Path, header: Sequence[str], rows: Sequence[Sequence[str]], db: DebugDatabase
) -> Cycles:
    names = (
        header
        if "offset" in header and "cycles" in header
        else ["offset", "cycles", "cmdstream_id"]
    )
    first = 1 if names is header else 0
    places: dict[tuple[int | None, int], list[int]] = defaultdict(list)
    for position, row in enumerate(db.queue):
        places[row.cmdstream_id, row.offset].append(position)
        places[None, row.offset].append(position)
    several = len({row.cmdstream_id for row in db.queue}) > 1
    found, met = [0] * len(db.queue), set()
    for number, cells in enumerate(rows[first:], first + 1):
        given = dict(zip(names, cells, strict=False))
        offset = _whole(given.get("offset", ""), path, number, "offset")
        cycles = _whole(given.get("cycles", ""), path, number, "cycles")
        stream = None
        if given.get("cmdstream_id", "").strip():
            stream = _whole(given["cmdstream_id"], path, number, "cmdstream_id")
        if stream is None and several:
            raise ModelError(
                f"'{path}', line {number}: the queue has several command streams; a column"
                " cmdstream_id has to say which is meant"
            )
        at = places.get((stream, offset))
        if not at:
            raise ModelError(
                f"'{path}', line {number}: the queue has no command at offset {offset}"
            )
        met.update(at)
        _share(found, at, cycles)
    missing = len(db.queue) - len(met)
    notes = (
        (f"{missing} of {len(db.queue)} commands have no cycles in '{path.name}'",)
        if missing
        else ()
    )
    return Cycles(tuple(found), f"measured, {path.name}", notes)


def _per_layer(
    path: Path, header: Sequence[str], rows: Sequence[Sequence[str]], db: DebugDatabase, join: Join
) -> Cycles:
    """Vela's report has a line for each operation that it scheduled on the NPU, in order; an
    operation's commands stand together.
    """
    kind = header.index("nng operator") if "nng operator" in header else -1
    cycles = header.index("op cycles")
    target = header.index("target") if "target" in header else -1
    positions = range(len(db.queue))
    by_operation = itertools.groupby(positions, key=lambda position: db.queue[position][1:])
    runs = [list(group) for _, group in by_operation]
    wanted = [
        (cells, number)
        for number, cells in enumerate(rows, 2)
        if target < 0 or cells[target : target + 1] == ["NPU"]
    ]
    found = [0] * len(join.commands)
    at = 0
    for cells, number in wanted:
        amount = _whole(cells[cycles] if cycles < len(cells) else "", path, number, "Op Cycles")
        name = cells[kind] if 0 <= kind < len(cells) else ""
        if at < len(runs) and join.commands[runs[at][0]].members[0] == name:
            _share(found, runs[at], amount)
            at += 1
        elif amount:
            raise ModelError(
                f"'{path}', line {number}: operation {name!r} does not meet the queue; is the file"
                " of the same compilation?"
            )
    if at < len(runs):
        raise ModelError(
            f"'{path}' ends before command {runs[at][0]} of the queue; is the file of the same"
            " compilation?"
        )
    return Cycles(tuple(found), f"Vela's estimate, {path.name}")


def _whole(text: str, path: Path, line: int, what: str) -> int:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= _MOST_CYCLES:
        raise ModelError(
            f"'{path}', line {line}: {what} is {text[:40]!r}, not a number of at least 0"
        )
    return math.floor(value + 0.5)


def _share(found: list[int], places: Sequence[int], cycles: int) -> None:
    """Add to each of the places an equal part."""
    for index, position in enumerate(places):
        found[position] += cycles // len(places) + (index < cycles % len(places))
