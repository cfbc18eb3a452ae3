"""`whence advise`: what to do next, with evidence and the size of the prize."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from whence.attribution.read import read_profile
from whence.cli.console import out
from whence.cli.options import EngineOption, ModelPath, PreciseOption, ThreadsOption
from whence.cli.shapes import DimOption, ShapeOption, parse_sizes
from whence.report.findings import print_findings
from whence.report.terminal import header


def advise(
    model: ModelPath,
    runs: Annotated[int, typer.Option(min=1, help="How many runs to time.")] = 50,
    threads: ThreadsOption = 0,
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
    if model.is_dir() or model.suffix == ".json":
        found = read_profile(model)
    else:
        # What a profile that was saved does not need.
        from whence.cli.profile import profile_here

        shapes = parse_sizes(shape, dim, model)
        found = profile_here(model, shapes, engine, threads, precise, runs=runs)
    found = found.without_local_paths()
    console = out()
    console.print(Text(header(found, console.width), style="bold"), soft_wrap=True)
    print_findings(console, found, limit)
