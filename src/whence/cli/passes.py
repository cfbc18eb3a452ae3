"""`whence passes`: the passes in order; with a model, what each did to it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from whence.cli.console import out, prepare_with_bar, safe
from whence.cli.shapes import DimOption, ShapeOption, load_sized, parse_sizes
from whence.graph.outcomes import coverage
from whence.passes.plugins import prepare_passes


def passes(
    model: Annotated[
        Path | None,
        typer.Argument(
            metavar="MODEL", help="A model to run the passes on; without one, they are only listed."
        ),
    ] = None,
    shape: ShapeOption = [],  # noqa: B006  (typer reads the default, nobody changes it)
    dim: DimOption = [],  # noqa: B006
    rules: Annotated[
        bool, typer.Option("--rules", help="List every rule that was applied, and how often.")
    ] = False,
) -> None:
    """List the passes in order; with MODEL, the time and effect of each.

    [dim]whence passes[/dim]                     what would run, and why in this order
    [dim]whence passes resnet50.onnx[/dim]       time, changes and skipped passes on a model
    """
    console = out()
    if model is None:
        table = Table(box=None, header_style="bold", pad_edge=False)
        table.add_column("#", justify="right", style="dim")
        table.add_column("pass")
        table.add_column("what it does", style="dim")
        for number, each in enumerate(prepare_passes(), 1):
            table.add_row(str(number), each.name, each.summary)
        console.print(table)
        return

    graph = load_sized(model, parse_sizes(shape, dim, model)).graph
    before = len(graph)
    reports = prepare_with_bar(graph)
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("#", justify="right", style="dim")
    table.add_column("pass", no_wrap=True)
    table.add_column("ms", justify="right")
    table.add_column("changes", justify="right")
    table.add_column("nodes", justify="right")
    table.add_column("", overflow="fold")
    for number, report in enumerate(reports, 1):
        if report.skipped:
            why = safe(f"skipped: {report.skipped}")
            table.add_row(str(number), report.name, "", "", "", why, style="dim")
            continue
        delta = report.added - report.removed
        changes = str(report.changes) if report.changes else "·"
        nodes = f"{delta:+d}" if delta else "·"
        took = f"{report.nanoseconds / 1e6:.1f}"
        table.add_row(str(number), report.name, took, changes, nodes, "")
        if rules:
            for rule, count in sorted(report.rules.items(), key=lambda item: -item[1]):
                table.add_row("", "", "", safe(str(count), "dim"), "", safe(rule, "dim"))
    console.print(table)
    total = sum(report.nanoseconds for report in reports) / 1e6
    console.print(f"{before} nodes → {len(graph)} in {total:.1f} ms · {coverage(graph)}")
