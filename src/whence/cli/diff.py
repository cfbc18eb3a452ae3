"""`whence diff`: two profiles side by side, by operator of the file."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from whence.attribution.comparable import differences, share_operators
from whence.attribution.compare import Comparison, Difference, Verdict, compare
from whence.attribution.read import read_profile
from whence.cli.console import err, list_files, out, put, safe, write_text
from whence.cli.options import check_file
from whence.errors import InputError
from whence.graph.escaping import escape, shorten
from whence.report.comparison import (
    as_annotations,
    as_json,
    as_markdown,
    percent,
    unclear_line,
)
from whence.report.diff_page import diff_page
from whence.report.terminal import duration

_LIMIT = re.compile(r"(?P<number>\d+(\.\d+)?)\s*%?")
_STYLES = {
    Verdict.SLOWER: "red",
    Verdict.ADDED: "red",
    Verdict.FASTER: "green",
    Verdict.REMOVED: "green",
    Verdict.SAME: "dim",
    Verdict.UNKNOWN: "yellow",
}


def diff(
    before: Annotated[
        Path, typer.Argument(metavar="A", help="A profile.json, or a folder with one.")
    ],
    after: Annotated[Path, typer.Argument(metavar="B", help="The one to compare it with.")],
    fail_over: Annotated[
        str,
        typer.Option(
            metavar="5%",
            help="Exit with 1 when B, or one operator of it, costs more of A's time than this.",
        ),
    ] = "",
    json_output: Annotated[
        bool, typer.Option("--json", help="Print JSON in place of the table.")
    ] = False,
    html_file: Annotated[
        Path | None,
        typer.Option(
            "--html",
            metavar="FILE",
            help="Write a page with both as treemaps, slower red and faster blue.",
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Compare profiles of models that have nothing in common."),
    ] = False,
    github: Annotated[
        bool,
        typer.Option(
            "--github",
            help="Also print annotations for GitHub's actions, and append to the job's summary.",
        ),
    ] = False,
    limit: Annotated[int, typer.Option(min=0, help="Rows of the table; 0 for all.")] = 20,
) -> None:
    """Compare two profiles by operator. What lies within the noise of the runs is called the same.

    [dim]whence profile model.onnx -o before/[/dim]      ... change something ...
    [dim]whence diff before/ after/ --fail-over 5%[/dim]
    [dim]whence diff before/ after/ --fail-over 5 --github[/dim]
    [dim]whence diff before/ after/ --html diff.html[/dim]
    """
    allowed = _parse_limit(fail_over)
    check_file(html_file)
    old, new = read_profile(before), read_profile(after)
    warnings = differences(old, new)
    for warning in warnings:
        put(err(), f"whence: {warning}", "yellow")
    if not force and not share_operators(old, new):
        raise InputError(
            f"'{before}' and '{after}' are profiles of different models, without an operator in"
            " common; --force compares them all the same"
        )
    found = compare(old, new)
    if html_file is not None:
        write_text(html_file, diff_page(old, new, found, warnings))
        list_files(err(), [html_file])
    over = found.over(allowed) if allowed is not None else []
    if json_output:
        typer.echo(as_json(found, warnings))
    else:
        differ = old.engine != new.engine
        _print(out(), found, limit, (old.engine, new.engine) if differ else ("before", "after"))
    if github:
        typer.echo(as_annotations(found, warnings, over))
        _write_summary(as_markdown(found, warnings, limit))
    for each in over:
        put(
            err(),
            f"whence: {each.name}: {duration(each.change_ns)} more per run, over"
            f" {fail_over.removesuffix('%').strip()} % of"
            f" {duration(found.total.before.median_ns)}",
        )
    if over:
        raise typer.Exit(1)


def _write_summary(text: str) -> None:
    """Where GitHub says that the summary of a job is; nowhere outside of it."""
    if place := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(place).open("a", encoding="utf-8") as file:
            file.write(text)


def _parse_limit(text: str) -> float | None:
    if not text:
        return None
    found = _LIMIT.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"'{text}' is not a percentage like 5%", param_hint="--fail-over")
    return float(found["number"]) / 100


def _print(console: Console, found: Comparison, limit: int, names: tuple[str, str]) -> None:
    table = Table(box=None, header_style="dim", padding=(0, 1))
    for name in (*map(escape, names), "change"):
        table.add_column(name, justify="right", no_wrap=True, min_width=9)
    table.add_column("", no_wrap=True, min_width=7)
    table.add_column("operator", no_wrap=True, overflow="ellipsis")
    width = max(20, console.width - 44)
    changed = [
        each for each in found.operators if each.verdict is not Verdict.SAME and each.change_ns
    ]
    shown = changed[: limit or len(changed)]
    for each in (found.total, *shown):
        table.add_row(
            *_cells(each), safe(shorten(each.name, width), "bold" if each is found.total else "")
        )
    console.print(table)
    rest = len(found.operators) - len(changed)
    more = f", {len(changed) - len(shown)} more changed" if len(changed) > len(shown) else ""
    console.print(
        safe(f" {rest} of {len(found.operators)} operators are within the noise{more}", "dim")
    )
    if unclear := unclear_line(found):
        console.print(safe(f" {unclear}", "yellow"))


def _cells(each: Difference) -> tuple[str, str, str, Text]:
    return (
        duration(each.before.median_ns),
        duration(each.after.median_ns),
        percent(each),
        safe(each.verdict.value, _STYLES[each.verdict]),
    )
