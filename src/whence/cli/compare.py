"""`whence compare`: several engines on one model, by operator of the file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from whence.attribution.sample_inputs import taken_sizes
from whence.cli.console import list_files, out, progress, put, safe, write_text
from whence.cli.options import ModelPath, ThreadsOption, check_file, check_grouping
from whence.cli.shapes import DimOption, ShapeOption, mention_open_sizes, parse_sizes
from whence.foreign.engine_comparison import GROUPINGS, REST, EngineComparison, Line
from whence.graph.escaping import escape, fit
from whence.plural import counted
from whence.report.terminal import duration

WORKER = "whence.compare_worker"
_LEAST_TIME, _LEAST_NAME = 9, 16


def compare(
    model: ModelPath,
    engines: Annotated[
        str,
        typer.Option(help="Which, with commas: whence, onnxruntime, openvino, litert, inductor."),
    ] = "whence,onnxruntime",
    runs: Annotated[int, typer.Option(min=1, help="How many runs of each to time.")] = 30,
    warmup: Annotated[int, typer.Option(min=0, help="How many runs to throw away first.")] = 3,
    threads: ThreadsOption = 0,
    shape: ShapeOption = [],  # noqa: B006  (typer reads the default, nobody changes it)
    dim: DimOption = [],  # noqa: B006
    by: Annotated[str, typer.Option(help=f"Compare by {', '.join(GROUPINGS)}.")] = "op",
    depth: Annotated[
        int, typer.Option(min=0, help="With --by module: so many modules deep; 0 for all.")
    ] = 0,
    limit: Annotated[int, typer.Option(min=0, help="Rows of the table; 0 for all.")] = 20,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the comparison to this file.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="An HTML file with linked treemaps; profiles of all engines beside it.",
        ),
    ] = None,
) -> None:
    """Run MODEL on several engines in turns, and say who is faster where, in operators of the file.

    [dim]whence compare resnet50.onnx --engines whence,onnxruntime,openvino[/dim]
    [dim]whence compare resnet50.onnx --by module --depth 2[/dim]
    [dim]whence compare resnet50.onnx -o compare.html[/dim]
    """
    from whence.foreign.compare_engines import compare_engines
    from whence.foreign.run import prepare

    check_grouping(by, GROUPINGS, depth)
    check_file(json_file)
    check_file(output)
    names = [name.strip() for name in engines.split(",") if name.strip()]
    with progress("reading") as bar:
        subject = prepare(model, shapes=parse_sizes(shape, dim, model))
        mention_open_sizes(taken_sizes(subject.source.graph), bar.console)
        found = compare_engines(
            subject,
            names,
            worker=WORKER,
            threads=threads,
            runs=runs,
            warmup=warmup,
            progress=bar.show,
        )
    console = out()
    files = _save(found, json_file, output, by, depth)
    print_engines(console, found, by, depth, limit)
    list_files(console, files)


def _save(
    found: EngineComparison, json_file: Path | None, output: Path | None, by: str, depth: int
) -> list[Path]:
    files = []
    if json_file is not None:
        write_text(json_file, found.to_json(by, depth) + "\n")
        files.append(json_file)
    if output is not None:
        from whence.foreign.engines_page import engines_page

        write_text(output, engines_page(found))
        files.append(output)
        for name, profile in zip(found.engines, found.profiles, strict=True):
            file = output.with_name(f"{output.stem}.{name}.json")
            write_text(file, profile.without_local_paths().to_json() + "\n")
            files.append(file)
    return files


def print_engines(
    console: Console, found: EngineComparison, by: str = "op", depth: int = 0, limit: int = 20
) -> None:
    """The table, whose columns add up to a run of each engine."""
    title = " · ".join(profile.engine for profile in found.profiles)
    threads = counted(found.profiles[0].threads, "thread")
    put(console, f"{fit(Path(found.model).name, 40)} · {title} · {threads}", "bold")
    lines = found.lines(by, depth)
    shown = lines[:-1][: limit or None]
    engines = [max(_LEAST_TIME, len(name)) for name in found.engines]
    names = [len(escape(line.key)) for line in (*shown, lines[-1])]
    # What is left beside times and gaps: names first, what is fused of the rest.
    left = console.width - sum(engines) - max(map(len, (*found.engines, "fastest")))
    left -= 2 * (len(engines) + 3)
    width = max(_LEAST_NAME, min(max(names), left))
    room = max(0, left - width)
    table = Table(box=None, header_style="dim", padding=(0, 1))
    for name in found.engines:
        table.add_column(name, justify="right", no_wrap=True, min_width=_LEAST_TIME)
    table.add_column("fastest", no_wrap=True)
    table.add_column({"op": "operator", "module": "module", "type": "type"}[by], no_wrap=True)
    table.add_column("", no_wrap=True, style="dim", overflow="ellipsis", max_width=max(1, room))
    table.add_row(
        *(duration(time) for time in found.totals_ns), "", Text("a run", style="bold"), ""
    )
    for line in (*shown, lines[-1]):
        best = "" if line.fastest is None else found.engines[line.fastest]
        table.add_row(
            *(_cell(line, position) for position in range(len(found.engines))),
            safe(best),
            safe(fit(line.key, width), "dim" if line.key == REST else ""),
            safe(_fusion(found, line)),
        )
    console.print(table)
    more = len(lines) - 1 - len(shown)
    if more:
        console.print(safe(f"  ... and {more} more; --limit 0 shows all", "dim"))
    console.print(
        safe(" times are means, which add up to a run; fastest: by the median of its runs", "dim")
    )
    count = len(found.fusions)
    console.print(safe(f" {counted(count, 'edge')} of the file fused by some and not by others"))


def _cell(line: Line, position: int) -> Text:
    time = line.times_ns[position]
    style = "green" if line.fastest == position else ""
    return Text(duration(time) if time > 0 else "0", style=style)


def _fusion(found: EngineComparison, line: Line) -> str:
    """Of an operator: what some engines fuse it with and others do not."""
    if len(line.operators) != 1:
        return ""
    (number,) = line.operators
    names = found.names
    told = []
    for each in found.fusions:
        if number in (each.maker, each.reader):
            other = each.reader if number == each.maker else each.maker
            told.append(f"with {names[other]} in {', '.join(each.fused_by)} only")
    return "; ".join(told[:2])
