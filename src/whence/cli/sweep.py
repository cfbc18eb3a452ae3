"""`whence sweep`: many profiles, into one table."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import TimeRemainingColumn

from whence.cli.console import list_files, out, progress, put, safe
from whence.cli.options import check_folder
from whence.errors import InputError
from whence.fleet.cell_result import Status
from whence.fleet.process import CellLimits
from whence.fleet.spec import Spec, checked, find_models, read_spec
from whence.fleet.sweep import Finished, Runner, Summary, Task, run_here, sweep, tasks_of
from whence.fleet.table import Table
from whence.plural import counted


def sweep_command(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="SPEC.toml | MODELS...", help="A spec, or model files, folders and patterns."
        ),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="TABLE", help="The folder of the table.")
    ],
    engines: Annotated[
        str, typer.Option(help="Engines, with commas: whence, onnxruntime, openvino, ...")
    ] = "whence",
    threads: Annotated[
        str, typer.Option(help="Numbers of threads, with commas; 0 for every core.")
    ] = "0",
    targets: Annotated[
        str, typer.Option(help="Targets of generated code, with commas, like x86-64-v3.")
    ] = "",
    versions: Annotated[
        str, typer.Option(help="Versions of whence, with commas: current, checkouts, wheels.")
    ] = "current",
    night: Annotated[
        str, typer.Option(help="What this sweep is called in the table; by default the date.")
    ] = "",
    on: Annotated[
        str,
        typer.Option(
            metavar="ray | ray://HOST | ray:HOST:PORT",
            help="Measure on a Ray cluster; by default here.",
        ),
    ] = "",
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that a cell may take.")] = 600.0,
    memory: Annotated[float, typer.Option(min=0, help="GiB that a cell may use; 0 for all.")] = 0,
    error: Annotated[
        float,
        typer.Option(min=1e-4, help="Repeat runs until the median's standard error is this part."),
    ] = 0.02,
    seconds: Annotated[
        float, typer.Option(min=0, help="At most so long for the timed runs of a cell.")
    ] = 20.0,
    tune: Annotated[
        bool, typer.Option("--tune", help="Time candidates for kernels first, on each machine.")
    ] = False,
    retry: Annotated[
        bool, typer.Option("--retry", help="Measure cells again that failed before.")
    ] = False,
    dry: Annotated[
        bool, typer.Option("--dry-run", help="List the cells that would be measured.")
    ] = False,
) -> None:
    """Profile many models, with many settings, into one table of Parquet files.

    Each cell is one profile in a process of its own. A cell that is in the table is not measured
    again: the same command goes on where it was stopped.

    [dim]whence sweep models/*.onnx --threads 1,2 -o table/[/dim]
    [dim]whence sweep nightly.toml -o table/[/dim]
    [dim]whence sweep nightly.toml -o table/ --on ray://head[/dim]
    [dim]whence history table/[/dim]      what changed, and when
    """
    check_folder(output)
    if len(models) == 1 and models[0].endswith(".toml"):
        spec = read_spec(Path(models[0]))
    else:
        limits = CellLimits(timeout, int(memory * 2**30), error, seconds, tune=tune)
        spec = checked(
            Spec(
                models=tuple(find_models(models, Path())),
                engines=_listed(engines),
                threads=tuple(_number(each) for each in _listed(threads)),
                targets=_listed(targets) or ("",),
                versions=_listed(versions),
                limits=limits,
            )
        )
    if tune:
        spec = dataclasses.replace(spec, limits=dataclasses.replace(spec.limits, tune=True))
    tasks = tasks_of(spec, night, output)
    if dry:
        finished = Table(output).finished() if (output / "whence-table.json").exists() else ()
        for task in tasks:
            mark = "done" if task.cell.key in finished else "    "
            out().print(safe(f"{mark} {task.cell.describe()}"))
        return
    table = Table(output, create=True)
    with _runner(on) as runner:
        summary = _with_bar(tasks, table, spec, runner, retry)
    _print(summary, output)
    if set(summary.by_status) - {Status.DONE}:
        raise typer.Exit(1)


@contextmanager
def _runner(on: str) -> Iterator[Runner]:
    """What measures: this machine, or a cluster that is let go of afterwards."""
    if not on:
        yield run_here
        return
    from whence.fleet.ray_runner import RayRunner

    with closing(RayRunner(on)) as cluster:
        yield cluster.run


def _with_bar(
    tasks: Sequence[Task], table: Table, spec: Spec, runner: Runner, retry: bool
) -> Summary:
    with progress("measuring", TimeRemainingColumn()) as bar:

        def show(result: Finished | None, done: int, total: int) -> None:
            if result is None:
                bar.show("measuring", done, total)
                return
            words = result.task.cell.describe()
            bar.show(f"measured {words}"[:60], done, total)
            if result.outcome.status is not Status.DONE:
                text = f"whence: {words}: {result.outcome.status}: {result.outcome.error}"
                put(bar.console, text, "yellow")

        return sweep(tasks, table, spec.limits, runner, retry=retry, progress=show)


def _print(summary: Summary, output: Path) -> None:
    measured = ", ".join(f"{count} {status}" for status, count in summary.by_status.items())
    out().print(
        safe(
            f" {counted(summary.cells, 'cell')}: {measured or 'nothing to measure'}"
            + (f", {summary.skipped} in the table before" if summary.skipped else "")
        )
    )
    list_files(out(), [output])


def _listed(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _number(text: str) -> int:
    if not text.isdecimal():
        raise InputError(f"'{text}' is not a number of threads")
    return int(text)
