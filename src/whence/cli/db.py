"""`whence db`: the debug database, converted and asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from whence.cli.console import err, out, put, safe
from whence.cli.options import check_folder, check_grouping
from whence.errors import InputError

if TYPE_CHECKING:
    from whence.attribution.profile import Profile
    from whence.debugdb import DebugDatabase
    from whence.debugdb.store import QueryResult


def db(
    database: Annotated[
        Path,
        typer.Argument(
            metavar="DIR|FILE",
            help="XML of whence or Vela, a DuckDB file, or a folder that holds either or Parquet.",
        ),
    ],
    xml: Annotated[
        Path | None,
        typer.Option(metavar="F", help="Write it as XML, the form that Vela's tools read."),
    ] = None,
    parquet: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write a Parquet file for each table.")
    ] = None,
    duckdb: Annotated[
        Path | None, typer.Option(metavar="F", help="Write it as a DuckDB file, views included.")
    ] = None,
    sql: Annotated[
        str | None,
        typer.Option(metavar="Q", help="Answer a query. It sees a copy, and no other files."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Rows of an answer to show.")] = 1000,
    samples: Annotated[
        Path | None,
        typer.Option(
            metavar="CSV",
            help="Add samples that a C program took: execution,kernel_id,begin_ns,end_ns.",
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(metavar="F", help="The model that Vela compiled: a profile in its operators."),
    ] = None,
    cycles: Annotated[
        Path | None,
        typer.Option(
            metavar="CSV",
            help="Cycles for --model: rows of offset,cycles, or Vela's *_per-layer.csv.",
        ),
    ] = None,
    clock: Annotated[
        float,
        typer.Option(
            min=0.001, metavar="MHZ", help="The clock by which cycles become time, for --model."
        ),
    ] = 1000,
    by: Annotated[
        str, typer.Option(help="Group the profile of --model by op, type or kernel.")
    ] = "op",
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR", help="A folder for the profile of --model."),
    ] = None,
) -> None:
    """Convert a debug database between its forms, and answer SQL about it. Without options, say
    what is in it.

    [dim]whence db out/[/dim]                                  tables, questions saved
    [dim]whence db out/ --sql "FROM time_by_source LIMIT 10"[/dim]   where the time went
    [dim]whence db out/ --sql "FROM removed"[/dim]             what no longer runs, and why
    [dim]whence db out/ --sql "FROM kernels_of_source WHERE name = '/conv1/Conv'"[/dim]
    [dim]whence db out/ --samples samples.csv --sql "FROM time_by_source"[/dim]
    [dim]whence db cnn_debug.xml --parquet tables/[/dim]       from Vela (either core)
    [dim]whence db cnn_debug.xml --model cnn.tflite[/dim]      its cycles by operator
    [dim]whence db cnn_debug.xml --model cnn.tflite --cycles measured.csv -o out/[/dim]
    """
    from whence.debugdb.locate import read_database
    from whence.debugdb.sample_csv import read_samples
    from whence.debugdb.store import ask, write_duckdb, write_parquet
    from whence.debugdb.vela_xml import write_xml

    if model is None and (cycles is not None or output is not None):
        raise typer.BadParameter(
            "needs --model, the file that Vela compiled",
            param_hint="--cycles" if cycles is not None else "--output",
        )
    check_grouping(by, _GROUPINGS)
    check_folder(output)
    _refuse_model(database)
    found = read_database(database)
    if samples is not None:
        found.sample.extend(read_samples(samples, found))
    profile = None
    if model is not None:
        found, profile = _joined(found, model, cycles, clock)
    for note in found.notes:
        put(err(), f"note: {note}", "yellow")
    console = out()
    forms = ((write_xml, xml), (write_parquet, parquet), (write_duckdb, duckdb))
    for write, file in forms:
        if file is not None:
            write(found, file)
            put(err(), f"wrote {file}")
    if output is not None and profile is not None:
        # The profile's own database knows less than the one it was made from.
        own = [output / "debug.xml", output / "profile.duckdb"]
        files = [file for file in profile.save(output) if file not in own] + own
        write_xml(found, own[0])
        write_duckdb(found, own[1])
        for file in files:
            put(err(), f"wrote {file}")
    if sql is not None:
        _print_answer(console, ask(found, sql, most=limit), limit)
    elif profile is not None:
        _print_joined(console, profile.without_local_paths(), by, limit)
    elif not any(file for _, file in forms):
        _print_summary(console, found)


_GROUPINGS = ("op", "type", "kernel")
_MODELS = (".onnx", ".tflite", ".lite", ".circle")


def _refuse_model(path: Path) -> None:
    if path.suffix.lower() in _MODELS and path.is_file():
        raise InputError(
            f"'{path}' is a model, not a debug database; `whence profile {path.name} -o DIR` makes"
            " one, and --model joins Vela's with its model"
        )


def _joined(
    found: DebugDatabase, model: Path, cycles: Path | None, clock: float
) -> tuple[DebugDatabase, Profile]:
    """The database with the names of the model's operators in it, and what they cost."""
    from whence.attribution.vela import named_database, vela_profile
    from whence.debugdb.cycles import estimated_cycles, read_cycles
    from whence.debugdb.join import join_model
    from whence.debugdb.model_operators import model_operators
    from whence.report.files import WRITERS

    join = join_model(found, model_operators(model))
    spent = estimated_cycles(found, join) if cycles is None else read_cycles(cycles, found, join)
    profile = vela_profile(found, join, spent, model=str(model), clock_mhz=clock, writers=WRITERS)
    named = named_database(found, join, profile)
    named.notes += [*join.notes, *spent.notes]
    return named, profile


def _print_joined(console: Console, profile: Profile, by: str, limit: int) -> None:
    from whence.report.terminal import duration, print_profile

    title = (
        f"{profile.model} · {profile.engine} · {len(profile.kernels)} commands ·"
        f" {duration(profile.run_ns)} · {profile.policy.partition('. ')[0]}"
    )
    print_profile(console, profile, by, limit, title=title)


def _print_answer(console: Console, answer: QueryResult, limit: int) -> None:
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
        made = f" → {found.optimised_path}" if found.optimised_path else ""
        put(console, f"{found.source_path}{made}")
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
