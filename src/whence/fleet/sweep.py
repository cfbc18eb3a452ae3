"""A sweep: the cells of a spec that the table lacks, measured and written one by one."""

from __future__ import annotations

import contextlib
import datetime
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from whence.errors import InputError
from whence.fleet.cell import WHENCE, Cell
from whence.fleet.cell_result import CellResult, Status
from whence.fleet.model_files import ModelFiles
from whence.fleet.process import CellLimits, measure
from whence.fleet.spec import Spec, combinations
from whence.fleet.table import Table, Writer
from whence.fleet.versions import Checkout, find_version
from whence.runtime.environment import processor_name


@dataclass(frozen=True, slots=True)
class Task:
    """A cell and what measuring it needs."""

    cell: Cell
    model: ModelFiles
    checkout: Checkout


class Finished(NamedTuple):
    task: Task
    outcome: CellResult


Runner = Callable[[Sequence[Task], CellLimits], Iterator[Finished]]
"""Measures cells, here or on a cluster. Results come in any order, and the caller writes each
before it asks for the next.
"""


def run_here(tasks: Sequence[Task], limits: CellLimits) -> Iterator[Finished]:
    """On this machine, one after the other: two at a time would measure each other."""
    for task in tasks:
        yield Finished(task, measure(task.cell, task.model.path, limits, task.checkout))


@dataclass(frozen=True, slots=True)
class Summary:
    """What a sweep did."""

    cells: int
    """That the spec has."""
    skipped: int
    """That were in the table already."""
    by_status: dict[Status, int]


Progress = Callable[[Finished | None, int, int], None]
"""Called with what was measured last, how many are done, and how many there are to do."""


def tasks_of(spec: Spec, night: str, table: Path) -> list[Task]:
    """Every cell of a spec, in the order in which they are measured."""
    night = night or datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    models = {path: ModelFiles(path) for path in spec.models}
    checkouts = {text: find_version(text, table / ".versions") for text in spec.versions}
    checkouts.setdefault("current", find_version("current", table))
    installed = _installed(spec.engines)
    here = processor_name()
    found = []
    for path, engine, target, threads, shapes, version, machine in combinations(spec):
        files, checkout = models[path], checkouts[version]
        cell = Cell(
            model=path.stem,
            model_sha256=files.sha256,
            engine=engine,
            engine_version=checkout.name if engine == WHENCE else installed[engine],
            target=target,
            threads=threads,
            shapes=dict(shapes),
            version=checkout.name,
            machine=machine or here,
            night=night,
        )
        found.append(Task(cell, files, checkout))
    return found


def sweep(
    tasks: Sequence[Task],
    table: Table,
    limits: CellLimits,
    runner: Runner,
    *,
    retry: bool = False,
    progress: Progress | None = None,
) -> Summary:
    """Measure the cells that the table lacks; with `retry`, those that failed, too."""
    finished = table.finished()
    if retry:
        with table.connected() as connection:
            failed = connection.execute("SELECT key FROM cell WHERE status <> 'done'").fetchall()
        finished -= {str(row[0]) for row in failed}
    pending = list({t.cell.key: t for t in tasks if t.cell.key not in finished}.values())
    counts: Counter[Status] = Counter()
    with contextlib.closing(Writer(table.folder)) as writer:
        if progress is not None:
            progress(None, 0, len(pending))
        for done, result in enumerate(runner(pending, limits), 1):
            writer.write(result.task.cell, result.outcome)
            counts[result.outcome.status] += 1
            if progress is not None:
                progress(result, done, len(pending))
    return Summary(len(tasks), len(tasks) - len(pending), counts)


def _installed(engines: Sequence[str]) -> dict[str, str]:
    """Versions of the other engines; a missing one is an error before anything is measured."""
    others = [engine for engine in engines if engine != WHENCE]
    if not others:
        return {}
    from whence.foreign import available

    found = available()
    for engine in others:
        if engine not in found:
            have = ", ".join([WHENCE, *sorted(found)])
            raise InputError(
                f"the engine '{engine}' is not installed here, or unknown; there is {have}"
            )
    return found
