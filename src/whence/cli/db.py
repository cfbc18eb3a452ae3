"""`whence db`: the debug database, converted and asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from whence.cli.console import err, out, safe

if TYPE_CHECKING:
    from whence.debugdb import DebugDatabase
    from whence.debugdb.store import Answer


def db(
    database: Annotated[
        Path,
        typer.Argument(
            metavar="DIR|FILE", help="XML of whence or Vela, a DuckDB file, or a folder that holds either or Parquet.", show_default=False
        ),
    ],
    xml: Annotated[
        Path | None, typer.Option("--xml", metavar="F", help="Write it as XML, the form that Vela's tools read.", show_default=False)
    ] = None,
    parquet: Annotated[Path | None, typer.Option("--parquet", metavar="DIR", help="Write a Parquet file for each table.", show_default=False)] = None,
    duckdb: Annotated[
        Path | None, typer.Option("--duckdb", metavar="F", help="Write it as a DuckDB file, views included.", show_default=False)
    ] = None,
    sql: Annotated[
        str | None, typer.Option("--sql", metavar="Q", help="Answer a query. It sees a copy, and no other files.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Rows of an answer to show.")] = 1000,
) -> None:
    """Convert a debug database between its forms, and answer SQL about it. Without options, say what is in it.

    [dim]whence db out/[/dim]                                               tables, and the questions that are saved as views
    [dim]whence db out/ --sql "FROM time_by_source LIMIT 10"[/dim]          where the time went, by operator of your file
    [dim]whence db out/ --sql "FROM kernels_of_source WHERE name = '/layer1/0/conv1/Conv'"[/dim]
    [dim]whence db out/ --sql "FROM removed"[/dim]                          what no longer runs, and why
    [dim]whence db tinycnn_debug.xml --parquet tables/[/dim]                from Vela (either core) to Parquet
    """
    from whence.debugdb.locate import read_database
    from whence.debugdb.store import ask, write_duckdb, write_parquet
    from whence.debugdb.vela_xml import write_xml

    found = read_database(database)
    for note in found.notes:
        err().print(safe(f"note: {note}", "yellow"), soft_wrap=True)
    console = out()
    if xml is not None:
        write_xml(found, xml)
    if parquet is not None:
        write_parquet(found, parquet)
    if duckdb is not None:
        write_duckdb(found, duckdb)
    for written in (xml, parquet, duckdb):
        if written is not None:
            err().print(safe(f"wrote {written}"), soft_wrap=True)
    if sql is not None:
        _print_answer(console, ask(found, sql, most=limit), limit)
    elif xml is None and parquet is None and duckdb is None:
        _print_summary(console, found)


def _print_answer(console: Console, answer: Answer, limit: int) -> None:
    if not answer.columns:
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for index, column in enumerate(answer.columns):
        numeric = all(isinstance(row[index], int | float | None) for row in answer.rows)
        table.add_column(safe(column), justify="right" if numeric else "left", overflow="fold")
    for row in answer.rows:
        table.add_row(*(safe(_shown(value)) for value in row))
    console.print(table)
    if answer.more:
        err().print(f"... and more; --limit shows more than {limit} rows", style="dim")


def _shown(value: object) -> str:
    if value is None:
        return "·"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1e6 else f"{value:.6g}"
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return str(value)


def _print_summary(console: Console, found: DebugDatabase) -> None:
    from whence.debugdb.views import VIEWS

    if found.source_path:
        console.print(safe(f"{found.source_path}" + (f" → {found.optimised_path}" if found.optimised_path else "")), soft_wrap=True)
    tables = Table(box=None, header_style="bold", pad_edge=False)
    tables.add_column("table")
    tables.add_column("rows", justify="right")
    for name, count in found.counts().items():
        tables.add_row(safe(name), str(count))
    console.print(tables)
    console.print()
    views = Table(box=None, header_style="bold", pad_edge=False)
    views.add_column("view", no_wrap=True)
    views.add_column("what it answers", style="dim")
    for view in VIEWS:
        views.add_row(view.name, view.answers)
    console.print(views)
