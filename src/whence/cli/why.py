"""`whence why`: the life of an operator."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from whence.api import compile_model
from whence.attribution import Profile, profile_executable
from whence.attribution.modules import Module, ModuleEvidence, find_modules
from whence.attribution.neighbours import Neighbourhood, links_of
from whence.attribution.read import read_profile
from whence.attribution.rows import SourceRow
from whence.attribution.sample_inputs import taken_sizes
from whence.backends.cpu.generator import build_program
from whence.building.program import Program
from whence.building.tuning_records import TuningRecords
from whence.cli.console import out, prepare_with_bar, progress, safe, say
from whence.cli.options import ModelPath
from whence.cli.shapes import DimOption, ShapeOption, Shapes, load_sized, parse_sizes
from whence.codegen.target import usable_cores
from whence.codegen.toolchain import Toolchain
from whence.debugdb.csv_text import is_integer
from whence.errors import ModelError
from whence.graph import Graph, print_node
from whence.graph.escaping import shorten
from whence.graph.outcomes import History, HistoryStep, coverage, eliminated, history_of, outcomes
from whence.plural import counted
from whence.provenance import EdgeKind, Ledger, Origin, Outcome, Reason, SourceOp
from whence.report.terminal import duration, policy_name

_RUNS = 20
_MOST_NEIGHBOURS = 12


def why(
    model: ModelPath,
    operator: Annotated[
        str | None,
        typer.Argument(
            metavar="OPERATOR",
            help=(
                "An operator by name, by the end of its name, by number, by module, by line of the"
                " program it was exported from (net.py:12), or by its id in luci's source table: id:12."
            ),
        ),
    ] = None,
    shape: ShapeOption = [],  # noqa: B006  (typer reads the default, nobody changes it)
    dim: DimOption = [],  # noqa: B006
    profile: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Say how long it took in this profile of the model."),
    ] = None,
    time: Annotated[
        bool, typer.Option("--time", help="Compile and run the model, and say how long it takes.")
    ] = False,
    limit: Annotated[
        int, typer.Option(min=0, help="Rows of the list when no operator is named; 0 for all.")
    ] = 40,
) -> None:
    """Tell what became of an operator of MODEL, and by which rule; for one that runs, in which
    kernels, how long, and why not with its neighbours.

    Without OPERATOR, list them all.

    [dim]whence why resnet50.onnx /layer1/0/bn1[/dim]
    [dim]whence why resnet50.onnx 7 --time[/dim]
    [dim]whence why resnet50.onnx 7 --profile out/[/dim]   out/ is of `whence profile -o`
    """
    if operator is not None and not operator.strip():
        raise typer.BadParameter(
            "names no operator; leave it out to list them all", param_hint="OPERATOR"
        )
    shapes = parse_sizes(shape, dim, model)
    graph, program = load_sized(model, shapes)
    modules = find_modules(graph)
    source = None if operator is None else find_source(graph.ledger, operator, modules)
    # Asked before the long work, so that a profile that does not fit is refused at once.
    known = read_profile(profile) if profile is not None else None
    row = _row(known, source) if known is not None and source is not None else None
    links = links_of(graph) if source is not None else {}
    prepare_with_bar(graph)
    console = out()
    if source is None:
        _list(console, graph, limit)
        return
    history = history_of(graph, source)
    print_history(console, graph, history, modules.get(source.id))
    if history.outcome is not Outcome.LIVE:
        return
    if not time and (opened := taken_sizes(graph)).guessed:
        say(
            console,
            "  which kernels do it depends on shapes that the model leaves open: fix them with"
            f" {opened.options}",
        )
        return
    if time:
        known, program = _measured(model, shapes)
        row = _row(known, source)
    elif program is None:
        with progress("choosing kernels"):
            toolchain, threads = Toolchain(), usable_cores()
            choices = TuningRecords(toolchain, threads).choices
            program = build_program(graph, toolchain, threads=threads, choices=choices, load=False)
    print_kernels(console, Neighbourhood(program, links), source)
    if known is not None and row is not None:
        print_time(console, known, row)


def _measured(model: Path, shapes: Shapes) -> tuple[Profile, Program]:
    with progress("compiling") as bar:
        executable = compile_model(model, shapes=shapes, progress=bar.compiling)
        found = profile_executable(executable, runs=_RUNS, model=str(model), progress=bar.show)
    assert found.background is not None
    return found, found.background.program


def _row(profile: Profile, source: SourceOp) -> SourceRow:
    for row in profile.sources:
        if (row.id, row.name, row.op) == (source.id, source.name, source.op):
            return row
    raise ModelError(
        f"the profile of '{profile.model}' has no operator '{source.name}' ({source.op}, number"
        f" {source.id}): is it of another model?"
    )


def print_kernels(console: Console, around: Neighbourhood, source: SourceOp) -> None:
    kernels = around.kernels(source)
    if not kernels:
        say(console, f"  {around.without_kernel(source)}")
    for step in kernels[:8]:
        how = "" if step.symbol else f", by reference: {step.why_reference}"
        say(console, f"  runs in kernel {step.number}, {step.name}{how}")
    for title, neighbours in (
        ("is fed by", around.feeders(source)),
        ("feeds", around.readers(source)),
    ):
        for each in neighbours[:_MOST_NEIGHBOURS]:
            what = f"'{each.name}'" + (f" ({each.op})" if each.op else "")
            behind = f" behind '{each.through}'" if each.through else ""
            say(console, f"  {title} {what}{behind}, {each.where}")
            for reason in each.why_apart:
                say(console, f"      not fused: {reason}", "dim")
        if len(neighbours) > _MOST_NEIGHBOURS:
            console.print(
                f"  ... and {title} {len(neighbours) - _MOST_NEIGHBOURS} more", style="dim"
            )


def print_time(console: Console, profile: Profile, row: SourceRow) -> None:
    runs = max(1, profile.runs)
    inserted = (
        f", {duration(row.inserted_ns / runs)} of it in layout changes" if row.inserted_ns else ""
    )
    say(
        console,
        f"  takes {duration(row.time_ns / runs)} of {duration(profile.run_ns)} per run,"
        f" {row.share:.1%}{inserted}",
    )
    for kernel in profile.kernels:
        for part in kernel.origin:
            if part.id == row.id and kernel.time_ns:
                text = (
                    f"{duration(part.time_ns / runs)} of the {duration(kernel.time_ns / runs)} of"
                    f" kernel {kernel.id}, {kernel.name}"
                )
                say(console, f"      {text}")
    say(
        console,
        f"      {policy_name(profile)}; {counted(profile.runs, 'run')} of {profile.model}",
        "dim",
    )


def find_source(
    ledger: Ledger, wanted: str, modules: Mapping[int, Module] | None = None
) -> SourceOp:
    """The source operator meant: by exact name, by number, by its id in the file's own table
    (`id:12`), by the module whose only operator it is or whose weights it has, by its line in the
    program (`net.py:12`), or by a part of the name that fits only one.
    """
    for source in ledger.sources:
        if source.name == wanted:
            return source
    if is_integer(wanted) and 1 <= int(wanted) <= ledger.n_sources:
        return ledger.source(int(wanted))
    table_id = wanted.removeprefix("id:")
    if table_id != wanted and is_integer(table_id):
        known = {source.table_id: source for source in reversed(ledger.sources)}
        if int(table_id) in known:
            return known[int(table_id)]
        why = ": it has no such table" if known.keys() <= {None} else ""
        raise ModelError(f"no source table of the model has the id {int(table_id)}{why}")
    if (inside := _in_module(ledger, wanted, modules or {})) is not None:
        return inside
    if (there := _at_line(ledger, wanted)) is not None:
        return there
    for fits in (lambda name: name.endswith(wanted), lambda name: wanted in name):
        found = [source for source in ledger.sources if fits(source.name)]
        if (one := _only(found, f"'{wanted}' fits", ", or its number")) is not None:
            return one
    close = difflib.get_close_matches(
        wanted, [source.name for source in ledger.sources[:20000]], n=3
    )
    hint = (
        f"; did you mean {' or '.join(repr(name) for name in close)}?"
        if close
        else f"; it has {ledger.n_sources}, `whence why MODEL` lists them"
    )
    raise ModelError(f"the model has no operator '{wanted}'{hint}")


def _at_line(ledger: Ledger, wanted: str) -> SourceOp | None:
    """The operator that a line of the program means, `file:line`, if it means one."""
    file, _, number = wanted.rpartition(":")
    if not file or not number.isdigit():
        return None
    found = [
        source
        for source in ledger.sources
        if source.line == wanted or source.line.replace("\\", "/").endswith(f"/{wanted}")
    ]
    return _only(found, f"line '{wanted}' has")


def _in_module(ledger: Ledger, wanted: str, modules: Mapping[int, Module]) -> SourceOp | None:
    """The operator that a module's path means, if it means one."""
    inside = [
        source
        for source in ledger.sources
        if source.op != "Constant" and source.id in modules and modules[source.id].path == wanted
    ]
    owning = [
        source for source in inside if modules[source.id].evidence is ModuleEvidence.WEIGHTS
    ] or inside
    return _only(owning, f"module '{wanted}' has")


def _only(found: Sequence[SourceOp], what: str, hint: str = "") -> SourceOp | None:
    """The operator, if there is one. Of several, one has to be named."""
    if len(found) > 1:
        names = ", ".join(f"'{source.name}' ({source.op})" for source in found[:6])
        more = ", ..." if len(found) > 6 else ""
        raise ModelError(f"{what} {len(found)} operators: {names}{more}; name one of them{hint}")
    return found[0] if found else None


_STYLES = {
    Outcome.LIVE: "green",
    Outcome.FOLDED: "cyan",
    Outcome.REMOVED: "yellow",
    Outcome.DEAD: "dim",
    Outcome.LOST: "bold red",
}


def _list(console: Console, graph: Graph, limit: int) -> None:
    ledger = graph.ledger
    nodes: dict[int, list[str]] = {}
    for nested in graph.nested():
        for node in nested:
            for source_id in node.origin:
                nodes.setdefault(source_id, []).append(f"{node.op} %{node.id}")
    ends = {end.source_id: end for end in eliminated(graph)}
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("#", justify="right", style="dim")
    # Of a file with luci's tables: what they call the operator.
    with_ids = any(source.table_id is not None for source in ledger.sources)
    if with_ids:
        table.add_column("id", justify="right", style="dim")
    table.add_column("operator", no_wrap=True)
    table.add_column("type", no_wrap=True)
    table.add_column("fate")
    table.add_column("now")
    name_width = max(20, console.width - 60)
    every = list(zip(ledger.sources, outcomes(graph), strict=True))
    for source, fate in every[: limit or len(every)]:
        if source.id in nodes:
            now = ", ".join(nodes[source.id][:2]) + (" ..." if len(nodes[source.id]) > 2 else "")
        elif source.id in ends:
            end = ends[source.id]
            now = (
                f"removed by {end.pass_name}"
                if end.reason == Reason.EARLIER
                else f"{end.reason} ({end.pass_name})"
            )
        else:
            now = ""
        table_id = "" if source.table_id is None else str(source.table_id)
        table.add_row(
            str(source.id),
            *([table_id] if with_ids else []),
            safe(shorten(source.name, name_width)),
            safe(source.op),
            safe(fate.value, _STYLES[fate]),
            safe(now),
        )
    console.print(table)
    if limit and len(every) > limit:
        console.print(f"... and {len(every) - limit} more; --limit 0 lists all", style="dim")
    console.print(str(coverage(graph)))


def print_history(
    console: Console, graph: Graph, history: History, module: Module | None = None
) -> None:
    """The life of an operator, in sentences."""
    source, ledger = history.source, graph.ledger
    console.print(
        safe(source.name, "bold"),
        safe(f"({source.op})"),
        safe(history.outcome.value, _STYLES[history.outcome]),
        soft_wrap=True,
    )
    say(
        console,
        f"  read from the file as number {source.id}"
        + ("" if source.table_id is None else f", id {source.table_id} in its source table")
        + (f", inside {source.scope}" if source.scope else ""),
    )
    written = f"written at {source.line}" if source.line else ""
    if module is not None:
        say(console, f"  module {module.path}, by its {module.evidence}")
        if source.module and source.module != module.path:
            # An exporter that folds batch normalisation leaves its module and its line on the
            # convolution: the line belongs to what the metadata says.
            others = f"      metadata says {source.module}"
            say(console, others + (f", {written}" if written else ""), "dim")
            written = ""
    elif source.module:
        say(console, f"  module {source.module}")
    if written:
        say(console, f"  {written}")
    for step in history.steps:
        say(console, "  " + _sentence(graph, step))
        if step.rule:
            say(console, f"      {step.rule}", "dim")
    for stone in history.tombstones:
        if stone.reason is Reason.EARLIER:
            say(console, f"  removed by {stone.pass_name}, before this file was written")
            say(console, f"      {stone.rule}", "dim")
            continue
        into = ""
        if stone.into is not None:
            into = f", its users read {_describe(graph, stone.into)} instead"
        say(console, f"  removed by {stone.pass_name}: {stone.reason}{into}")
        if stone.rule:
            say(console, f"      {stone.rule}", "dim")
    for node in history.live_in[:8]:
        others = _names(ledger, node.origin - {source.id})
        say(
            console,
            f"  now part of node {node.id}, {node.op}"
            + (f", together with {others}" if others else ""),
        )
        say(console, f"      {print_node(node)}", "dim")
    if len(history.live_in) > 8:
        console.print(f"  ... and {len(history.live_in) - 8} more nodes", style="dim")


_VERBS = {
    EdgeKind.COPY: "replaced by",
    EdgeKind.FUSE: "fused into",
    EdgeKind.SPLIT: "split into",
    EdgeKind.LOWER: "restated as",
    EdgeKind.FOLD: "folded into",
    EdgeKind.CSE: "merged with its twin into",
    EdgeKind.INSERT: "caused",
    EdgeKind.REMAT: "repeated in",
}


def _sentence(graph: Graph, step: HistoryStep) -> str:
    partners = _names(graph.ledger, step.partners)
    return f"{_VERBS[step.kind]} {_describe(graph, step.child)} by {step.pass_name}" + (
        f", with {partners}" if partners else ""
    )


def _describe(graph: Graph, node_id: int) -> str:
    ledger = graph.ledger
    if node_id <= ledger.n_sources:
        source = ledger.source(node_id)
        return f"'{source.name}' ({source.op}, number {source.id})"
    for nested in graph.nested():
        node = nested.get(node_id)
        if node is not None:
            return f"{node.op} %{node_id}"
    return f"%{node_id}"


def _names(ledger: Ledger, origin: Origin) -> str:
    # Constants last: what computes something tells more.
    known = sorted(
        map(ledger.source, origin), key=lambda source: (source.op == "Constant", source.id)
    )
    listed = [f"'{source.name}'" for source in known[:4]]
    return ", ".join(listed) + (f" and {len(origin) - 4} more" if len(origin) > 4 else "")
