"""`whence history`: what changed over the nights of a table, in which operator, from when on."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table as Grid

from whence.cli.console import list_files, out, progress, put, safe
from whence.cli.options import check_choice, check_file, check_grouping
from whence.errors import InputError
from whence.fleet.change_points import ChangePoint, find_changes
from whence.fleet.series import GROUPINGS, Series, parts, whole_runs
from whence.fleet.table import Table
from whence.fleet.views import VIEWS
from whence.graph.escaping import shorten
from whence.plural import counted
from whence.report.terminal import duration

_MANY = 3
_DIGEST = re.compile(r"[0-9a-f]{64}")


def history(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="A folder that a sweep filled.")],
    model: Annotated[str, typer.Option(help="Only this model.")] = "",
    by: Annotated[str, typer.Option(help=f"What to follow: {', '.join(GROUPINGS)}.")] = "op",
    least: Annotated[
        float, typer.Option(min=0.0, help="Changes of at least so many percent.")
    ] = 5.0,
    limit: Annotated[int, typer.Option(min=0, help="Rows of the list; 0 for all.")] = 20,
    view: Annotated[
        str, typer.Option(help=f"Print a saved view: {', '.join(each.name for each in VIEWS)}.")
    ] = "",
    sql: Annotated[str, typer.Option(help="A question of your own, over these views.")] = "",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write a page, history.html.")
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    compact: Annotated[
        bool, typer.Option("--compact", help="Put the files of each model into one, first.")
    ] = False,
    delta: Annotated[
        Path | None, typer.Option(help="Append what is new to a Delta table in this folder.")
    ] = None,
) -> None:
    """Say which operators changed over the nights of TABLE, from which night and version on, and
    how sure that is.

    [dim]whence history table/[/dim]                       what changed
    [dim]whence history table/ --model resnet50 --by module[/dim]
    [dim]whence history table/ -o history.html[/dim]       a page to look at
    [dim]whence history table/ --view noise[/dim]
    [dim]whence history table/ --sql "SELECT night, median_ns FROM cell"[/dim]
    """
    check_grouping(by, GROUPINGS)
    check_file(output)
    found = Table(table)
    if compact:
        with progress("compacting"):
            done = found.compact()
        cells, models = counted(done.cells, "cell"), counted(done.models, "model")
        out().print(safe(f" {cells} of {models} put together", "dim"))
    if delta is not None:
        from whence.fleet.delta import append_to_delta

        with progress("appending"):
            count = append_to_delta(found, delta)
        put(out(), f" {counted(count, 'cell')} appended to {delta}")
        return
    if view or sql:
        _answer(found, view, sql)
        return
    files = found.model_files(model) if model else None
    if files == []:
        raise InputError(f"no cell of '{table}' is of a model '{model}'")
    with progress("reading"), found.connected(files) as connection:
        runs, pieces = whole_runs(connection), parts(connection, by)
        changes = find_changes(pieces, least=least / 100)
        whole = find_changes(runs, least=least / 100)
    if output is not None:
        from whence.fleet.dashboard.page import write_page

        write_page(found, output, changes)
    if json_output:
        typer.echo(json.dumps([_as_json(change) for change in (*whole, *changes)], indent=1))
        return
    _print(runs, whole, changes, limit)
    if output is not None:
        list_files(out(), [output])


def _answer(table: Table, view: str, sql: str) -> None:
    if view:
        check_choice(view, [each.name for each in VIEWS], "--view")
    with table.connected() as connection:
        cursor = connection.execute(sql or f'SELECT * FROM "{view}"')
        names = [each[0] for each in cursor.description or ()]
        grid = Grid(box=None, header_style="dim", padding=(0, 1))
        for name in names:
            grid.add_column(name, no_wrap=True, overflow="ellipsis")
        for row in cursor.fetchmany(1000):
            grid.add_row(*(safe(_cell(value)) for value in row))
    out().print(grid)


def _cell(value: object) -> str:
    """A value as a cell of a table; of a digest, enough to tell it from others."""
    if isinstance(value, float):
        return f"{value:.4g}"
    text = "" if value is None else str(value)
    return text[:12] if _DIGEST.fullmatch(text) else text


def _print(
    runs: Sequence[Series], whole: Sequence[ChangePoint], changes: Sequence[ChangePoint], limit: int
) -> None:
    console = out()
    nights = {night for series in runs for night in series.nights}
    models = counted(len({series.subject.model for series in runs}), "model")
    text = f" {len(runs)} series of {models}, {counted(len(nights), 'night')}"
    console.print(safe(text, "dim"))
    if not changes and not whole:
        console.print(" nothing changed beyond the noise")
        return
    grid = Grid(box=None, header_style="dim", padding=(0, 1))
    for name in ("before", "after", "change", "sure"):
        grid.add_column(name, justify="right", no_wrap=True)
    for name in ("since", "version", "what"):
        grid.add_column(name, no_wrap=True, overflow="ellipsis")
    width = max(20, console.width - 70)
    shown = [*whole, *changes][: limit or None]
    for change in shown:
        style = "red" if change.ratio > 1 else "green"
        what = f"{change.series.name or 'whole run'} · {change.series.subject.describe()}"
        grid.add_row(
            duration(change.before_ns),
            duration(change.after_ns),
            safe(f"{change.ratio - 1:+.0%}", style),
            f"{100 * change.confidence:.2f} %",
            safe(change.night),
            safe(change.version[:24]),
            safe(shorten(what, width)),
        )
    console.print(grid)
    rest = len(whole) + len(changes) - len(shown)
    if rest > 0:
        console.print(safe(f" {rest} more; --limit 0 shows all", "dim"))
    for words in widespread(changes):
        console.print(safe(f" {words}", "yellow"))


def widespread(changes: Sequence[ChangePoint]) -> list[str]:
    """What became slower in several models on the same night."""
    models: dict[tuple[str, str], set[str]] = defaultdict(set)
    for change in changes:
        if change.ratio > 1:
            models[change.series.name, change.night].add(change.series.subject.model)
    return [
        f"'{name}' is slower in {len(those)} models since {night}: {', '.join(sorted(those)[:6])}"
        for (name, night), those in sorted(models.items())
        if len(those) >= _MANY
    ]


def _as_json(change: ChangePoint) -> dict[str, object]:
    subject = change.series.subject
    return {
        "model": subject.model,
        "engine": subject.engine,
        "machine": subject.machine,
        "threads": subject.threads,
        "target": subject.target,
        "shapes": subject.shapes,
        "name": change.series.name,
        "night": change.night,
        "first_version": change.version,
        "version_before": change.version_before,
        "before_ns": round(change.before_ns),
        "after_ns": round(change.after_ns),
        "change": change.ratio - 1,
        "noise": change.noise,
        "confidence": change.confidence,
    }
