"""How times grow with a dimension: a table for the terminal, and a page with a plot."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from whence.attribution.dimension_sweep import DimensionSweep, GrowthRow
from whence.attribution.growth import Growth, GrowthKind
from whence.attribution.profile import module_of
from whence.graph.escaping import escape, fit
from whence.plural import counted
from whence.report.html.document import document
from whence.report.terminal import duration

_TIME_WIDTH, _LEAST_NAME = 8, 12


def print_growth(
    console: Console, sweep: DimensionSweep, by: str = "op", limit: int = 20, depth: int = 0
) -> None:
    """A line for each operator, what grows most first, with its time at each size, as many as there
    is room for, and its growth.
    """
    profile = sweep.profiles[0]
    others = [f"{n}={s}" for n, s in profile.dimensions.items() if n != sweep.dimension]
    threads, runs = counted(profile.threads, "thread"), counted(profile.runs, "run")
    facts = [profile.engine, threads, runs, *others]
    title = f"{fit(sweep.model, 60)} by {escape(sweep.dimension)}"
    console.print(
        Text.assemble((title, "bold"), (f" · {escape(' · '.join(facts))}", "dim")), soft_wrap=True
    )
    rows = sweep.rows(by, depth)
    shown = rows[: limit or len(rows)]
    longest = max((len(escape(row.key)) for row in shown), default=8)
    growth_width = max(len(growth_text(row.growth)) for row in (sweep.total, *shown))
    room = console.width - growth_width - 2 - min(longest, _LEAST_NAME) - 2
    picked = _picked(len(sweep.sizes), max(2, room // (_TIME_WIDTH + 2)))
    table = Table(box=None, header_style="dim", padding=(0, 1))
    for at in picked:
        table.add_column(f"{sweep.sizes[at]}", justify="right", no_wrap=True, min_width=_TIME_WIDTH)
    table.add_column("growth", no_wrap=True)
    table.add_column("operator" if by == "op" else by, no_wrap=True, overflow="ellipsis")
    width = max(_LEAST_NAME, console.width - len(picked) * (_TIME_WIDTH + 2) - growth_width - 4)
    for row in (sweep.total, *shown):
        name = fit(row.key, width) if row.key else "the whole run"
        table.add_row(
            *(duration(row.times_ns[at]) if row.times_ns[at] else "0" for at in picked),
            Text(growth_text(row.growth), style=_STYLES[row.growth.kind]),
            Text(name, style="" if row.key else "bold"),
        )
    console.print(table)
    if len(rows) > len(shown):
        more = len(rows) - len(shown)
        console.print(Text(f"  ... and {more} more; --limit 0 shows all", style="dim"))
    console.print(Text(f" {_summary(sweep, rows)}"), soft_wrap=True)


_STYLES = {GrowthKind.CONSTANT: "dim", GrowthKind.LINEAR: "", GrowthKind.QUADRATIC: "bold"}


def growth_text(growth: Growth) -> str:
    """`linear, 1.20 µs each`"""
    match growth.kind:
        case GrowthKind.CONSTANT:
            return "constant"
        case GrowthKind.LINEAR:
            return f"linear, {_small(growth.each_ns)} each"
        case _:
            return f"quadratic, {_small(growth.square_ns)}·n²"


def _small(nanoseconds: float) -> str:
    return f"{nanoseconds:.2g} ns" if nanoseconds < 10 else duration(nanoseconds)


def _picked(count: int, most: int) -> list[int]:
    """Which of so many sizes have a column: the first, the last, and evenly between them."""
    most = min(count, most)
    return sorted({round(at * (count - 1) / (most - 1)) for at in range(most)})


def _summary(sweep: DimensionSweep, rows: list[GrowthRow]) -> str:
    """Who makes the largest size slow."""
    first, last = sweep.sizes[0], sweep.sizes[-1]
    total = sweep.total.times_ns
    grown = sum(max(row.increase_ns, 0) for row in rows)
    if not grown or total[-1] <= total[0]:
        return f"a run takes no longer with {escape(sweep.dimension)} {last} than with {first}"
    most = rows[0]
    name = escape(most.key)
    return (
        f"{escape(sweep.dimension)} {last} takes {total[-1] / max(total[0], 1):.3g} × as long as"
        f" {first}; {most.increase_ns / grown:.0%} of what operators add is {name}"
    )


def growth_page(sweep: DimensionSweep) -> str:
    """A page that anybody can open, without a network: the times over the sizes, with the fitted
    curves, and a table.
    """
    title = f"{sweep.model} by {sweep.dimension} · whence"
    styles, scripts = (
        ("colours.css", "engines.css", "growth.css"),
        ("wording.js", "pages.js", "growth.js"),
    )
    return document(
        "whence.report.html", "growth.html", styles, scripts, title, growth_content(sweep)
    )


def growth_content(sweep: DimensionSweep) -> dict[str, Any]:
    """What the page is told. All text from the model is made printable."""
    profile = sweep.profiles[0]
    modules = {row.name: module_of(row) for row in profile.sources}
    return {
        "model": escape(sweep.model),
        "engine": escape(profile.engine),
        "threads": profile.threads,
        "runs": profile.runs,
        "dimension": escape(sweep.dimension),
        "sizes": list(sweep.sizes),
        "dimensions": {
            escape(name): size
            for name, size in profile.dimensions.items()
            if name != sweep.dimension
        },
        "summary": _summary(sweep, sweep.rows()),
        "total": _row(sweep.total, ""),
        "operators": [_row(row, modules.get(row.key, "")) for row in sweep.rows()],
    }


def _row(row: GrowthRow, module: str) -> dict[str, Any]:
    growth = row.growth
    return {
        "name": escape(row.key),
        "type": escape(row.op),
        "module": escape(module),
        "ns": list(row.times_ns),
        "kind": growth.kind.value,
        "text": growth_text(growth),
        "fit": [growth.fixed_ns, growth.each_ns, growth.square_ns],
    }
