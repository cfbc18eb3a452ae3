"""debug.xml and profile.duckdb: the debug database of what was profiled, with the times in it. Both
hold the same rows. NAME_debug.xml and NAME_debug.duckdb: that of what was compiled ahead of time,
without times.

`measured`, `attributed` and `residual` have the nanoseconds of the profile, which add up to its
wall time exactly; the views are of them.
`profile`, a table more, has the figures of the whole profile and its policy. `sample` has the first
runs, as many as there is room for.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from whence.attribution.database_times import add_times
from whence.attribution.local_paths import shorten_location
from whence.attribution.profile import Background, Profile
from whence.building.program import Program
from whence.debugdb import DebugDatabase, Extra, from_program, sample_rows, write_xml
from whence.debugdb.rows import (
    NONE,
    WORD,
    CmdstreamRow,
    EfficiencyRow,
    ExecutedRow,
    FileOperatorRow,
    MemberRow,
    OperatorRow,
    OptimisedRow,
    OriginRow,
    QueueRow,
    SourceOperatorRow,
    StepRow,
)
from whence.debugdb.store import write_duckdb
from whence.graph import Graph

_NO_SHAPE = (None, None, None, None, None)
_FRAME = re.compile(r'(?P<head>File ")(?P<path>[^"\n]*)(?P<tail>")')


def write_compiled_database(
    program: Program, *, model: str, read: Graph, library: Path
) -> list[Path]:
    """`NAME_debug.xml` and `NAME_debug.duckdb` beside a compiled library, of what is known before
    it runs: a kernel's id is the number of its step in the C interface.
    """
    db = from_program(program, model, read=read)
    db.optimised_path = library.name
    db.operator[:] = [
        row._replace(line=shorten_location(row.line), stack=_shortened(row.stack))
        for row in db.operator
    ]
    stem = library.stem.removeprefix("lib")
    return _written(db, library.parent, f"{stem}_debug.xml", f"{stem}_debug.duckdb")


def write_debug_database(profile: Profile, folder: Path) -> list[Path]:
    """Of a profile of another engine, or one that was read from a file, without what is known of
    the program: it is not in it.
    """
    db = (
        debug_database(profile, profile.background)
        if profile.background is not None
        else _database_of(profile)
    )
    db.extras.append(_facts(profile))
    return _written(db, folder, "debug.xml", "profile.duckdb")


def _written(db: DebugDatabase, folder: Path, xml: str, duckdb: str) -> list[Path]:
    write_xml(db, folder / xml)
    write_duckdb(db, folder / duckdb)
    return [folder / xml, folder / duckdb]


def debug_database(profile: Profile, background: Background) -> DebugDatabase:
    """Everything that is known about the program, and about its runs."""
    in_node: dict[tuple[int, int], float] = defaultdict(float)
    in_step: dict[tuple[int, int], float] = defaultdict(float)
    of_node: dict[int, float] = defaultdict(float)
    for number, shares in background.shares.items():
        for share in shares:
            in_node[share.node, share.source] += share.weight
            in_step[number, share.node] += share.weight
            of_node[share.node] += share.weight
    # A node that has nothing of its step is split as the database estimates it.
    weights = {
        (node, source): weight / of_node[node]
        for (node, source), weight in in_node.items()
        if of_node[node]
    }
    db = from_program(
        background.program,
        profile.model,
        read=background.source_graph,
        weights=weights,
        member_weights=in_step,
    )
    lines = {row.id: row.line for row in profile.sources}
    db.operator[:] = [
        row._replace(
            line=lines.get(row.source_id, row.line),
            stack=row.stack if background.full_paths else _shortened(row.stack),
        )
        for row in db.operator
    ]
    db.sample.extend(sample_rows(background.samples))
    add_times(db, profile)
    # Of the kernels of which something is known.
    _, *facts = EfficiencyRow._fields
    db.efficiency.extend(
        EfficiencyRow(row.id, *(getattr(row, name) for name in facts))
        for row in profile.kernels
        if row.bound
    )
    db.executed.extend(
        ExecutedRow(row.id, row.executed_flops, row.executed_bytes, row.defined_flops)
        for row in profile.kernels
        if row.executed_bytes
    )
    return db


def _database_of(profile: Profile) -> DebugDatabase:
    """What a profile whose program is not at hand tells: the operators, the kernels and the times,
    and so the views of any database; what passes did is not in it. Each kernel counts as one
    operator of the optimised graph, with ids after those of the file's operators.
    """
    db = DebugDatabase(profile.model)
    db.cmdstream.append(CmdstreamRow(0, 0))
    for row in profile.sources:
        positions = row.positions or ()
        place = next(iter(positions), None)
        db.source.append(SourceOperatorRow(row.id, row.op, *_NO_SHAPE, place))
        db.operator.append(
            OperatorRow(row.id, row.name, row.scope, row.module, row.line, "", row.fate)
        )
        db.file_operator.extend(
            FileOperatorRow(row.id, row.table_id, each) for each in (positions or (None,))
        )
    first = max((row.id for row in profile.sources), default=0) + 1
    for number, kernel in enumerate(profile.kernels):
        node = first + number
        dominant = max(kernel.origin, key=lambda part: (part.weight, -part.id), default=None)
        db.optimised.append(
            OptimisedRow(
                node,
                NONE if dominant is None else dominant.id,
                " + ".join(kernel.ops) or kernel.name,
                *_NO_SHAPE,
            )
        )
        db.origin.extend(OriginRow(node, part.id, part.weight) for part in kernel.origin)
        db.kernel.append(StepRow(kernel.id, kernel.name, "", 0, 0, kernel.why_reference))
        db.member.append(MemberRow(kernel.id, node, 0, 0, 1.0))
        db.queue.append(QueueRow(WORD * kernel.id, 0, node))
    add_times(db, profile)
    return db


def _facts(profile: Profile) -> Extra:
    facts = {
        "engine": profile.engine,
        "threads": profile.threads,
        "runs": profile.runs,
        "wall_ns": profile.wall_ns,
        **{f"residual: {name}": time for name, time in profile.residual_ns.items()},
        "waited_ns": profile.waited_ns,
        "overhead_ratio": profile.overhead_ratio,
        "policy": profile.policy,
        **profile.environment,
    }
    rows = [(key, str(value)) for key, value in facts.items()] + [
        ("note", note) for note in profile.notes
    ]
    rows += [
        ("uncertain", f"{kernel.name}: {kernel.uncertain}")
        for kernel in profile.kernels
        if kernel.uncertain
    ]
    return Extra("profile", ("key", "value"), tuple(rows))


def _shortened(stack: str) -> str:
    return _FRAME.sub(
        lambda found: found["head"] + shorten_location(found["path"]) + found["tail"], stack
    )
