"""`whence advise`: what to do next, with evidence and the size of the prize."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from whence.api import compile_model, machine_rates
from whence.attribution import Profile, profile_executable
from whence.attribution.read import read_profile
from whence.cli.console import ModelPath, out, progress
from whence.cli.engines import EngineOption, PreciseOption, parse_engine
from whence.cli.shapes import DimOption, ShapeOption, parse_sizes
from whence.report.findings import print_findings
from whence.report.terminal import header


def advise(
    model: ModelPath,
    runs: Annotated[int, typer.Option(min=1, help="How many runs to time.")] = 50,
    threads: Annotated[int, typer.Option(min=0, help="Threads to use; 0 for every core.")] = 0,
    engine: EngineOption = "cpu",
    precise: PreciseOption = False,
    shape: ShapeOption = [],  # noqa: B006  (typer reads the default, nobody changes it)
    dim: DimOption = [],  # noqa: B006
    limit: Annotated[int, typer.Option(min=0, help="Findings to print; 0 for all.")] = 10,
) -> None:
    """Profile MODEL, or read its profile.json, and say what could be better: ranked by what it
    would save.

    [dim]whence advise resnet50.onnx[/dim]
    [dim]whence advise out/profile.json[/dim]      of a profile that was saved
    """
    found = _profile(model, runs, threads, engine, precise, shape, dim)
    console = out()
    console.print(Text(header(found, console.width), style="bold"), soft_wrap=True)
    print_findings(console, found, limit)


def _profile(
    model: Path,
    runs: int,
    threads: int,
    engine: str,
    precise: bool,
    shape: list[str],
    dim: list[str],
) -> Profile:
    if model.is_dir() or model.suffix == ".json":
        return read_profile(model).without_local_paths()
    shapes = parse_sizes(shape, dim, model)
    with progress("compiling") as bar:
        chosen = parse_engine(engine, threads, precise)
        executable = compile_model(
            model,
            engine=chosen,
            shapes=shapes,
            progress=bar.compiling,
        )
        rates = machine_rates(chosen, bar.show)
        found = profile_executable(
            executable, runs=runs, model=str(model), progress=bar.show, rates=rates
        )
    return found.without_local_paths()
