"""`whence bisect`: the commit, or the wheel, that made an operator slower."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from whence.cli.console import err, out, progress, put
from whence.cli.options import ModelPath, ThreadsOption
from whence.cli.shapes import DimOption, ShapeOption, complete_shapes, parse_sizes
from whence.errors import InputError
from whence.fleet.bisect import BisectStep, bisect, commit_checkout, commits, wheel_checkout
from whence.fleet.cell import Cell
from whence.fleet.cell_result import Status
from whence.fleet.model_files import ModelFiles
from whence.fleet.process import CellLimits, measure
from whence.fleet.versions import Checkout
from whence.report.terminal import duration


def bisect_command(
    model: ModelPath,
    good: Annotated[str, typer.Option(help="The last commit known to be fast.")] = "",
    bad: Annotated[str, typer.Option(help="The first commit known to be slow.")] = "HEAD",
    repository: Annotated[Path, typer.Option(help="The checkout of whence.")] = Path(),
    wheels: Annotated[
        list[Path],
        typer.Option("--wheel", help="Bisect wheels instead, oldest first; to be repeated."),
    ] = [],  # noqa: B006  (typer reads the default, nobody changes it)
    op: Annotated[
        str, typer.Option(help="The operator of the file to look at; by default the whole run.")
    ] = "",
    threads: ThreadsOption = 0,
    shape: ShapeOption = [],  # noqa: B006
    dim: DimOption = [],  # noqa: B006
    rounds: Annotated[int, typer.Option(min=3, help="Measurements of each version.")] = 5,
) -> None:
    """Find the version of whence that made MODEL, or one operator of it, slower.

    [dim]whence bisect resnet50.onnx --good v0.1.0 --bad HEAD --op /conv1/Conv[/dim]
    [dim]whence bisect resnet50.onnx --wheel old/*.whl --wheel new/*.whl[/dim]
    """
    if bool(good) == bool(wheels):
        raise typer.BadParameter("name a range of commits (--good, --bad), or two wheels or more")
    files = ModelFiles(model)
    cell = Cell(
        model.stem,
        files.sha256,
        threads=threads,
        shapes=complete_shapes(parse_sizes(shape, dim, model), model),
        night="bisect",
    )
    versions = [str(wheel) for wheel in wheels] or commits(repository, good, bad)
    checkout = wheel_checkout if wheels else partial(commit_checkout, repository)
    with progress(f"{len(versions)} versions") as bar:

        def report(version: str, verdict: BisectStep) -> None:
            words = "slow" if verdict.is_bad else "fast"
            text = (
                f"{_short(version)} is {words}: {duration(verdict.here_ns)} between"
                f" {duration(verdict.good_ns)} and {duration(verdict.bad_ns)}"
            )
            put(bar.console if bar.console.is_terminal else err(), text)

        found = bisect(
            versions,
            checkout,
            lambda here: operator_ns(cell, model, here, op),
            rounds=rounds,
            report=report,
        )
    put(
        out(),
        f" {_short(found.first_bad)} is the first slow version: {duration(found.good_ns)} →"
        f" {duration(found.bad_ns)} ({found.bad_ns / found.good_ns - 1:+.0%}),"
        f" {_short(found.last_good)} is the last fast one",
    )


def operator_ns(cell: Cell, model: Path, checkout: Checkout, op: str) -> float:
    """What an operator, or the whole run, takes in this version: one measurement."""
    outcome = measure(cell, model, CellLimits(seconds=2.0), checkout)
    if outcome.status is not Status.DONE:
        raise InputError(f"{checkout.name}: {outcome.status}: {outcome.error}")
    profile = outcome.profile
    if not op:
        return float(min(profile["runs_ns"]))
    rows = [row for row in profile["sources"] if op in (row["name"], row["module"])]
    if not rows:
        raise InputError(f"'{model.name}' has no operator and no module '{op}'")
    return float(sum(row["band_ns"][0] or row["time_ns"] / profile["runs"] for row in rows))


def _short(version: str) -> str:
    name = Path(version).name
    return name[:12] if len(name) == 40 else name
