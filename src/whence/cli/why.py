"""`whence why`: the life of an operator."""

from __future__ import annotations

import difflib
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from whence.cli.console import ModelPath, ShapeOption, load_with_bar, out, parse_shapes, prepare_with_bar, safe, shorten
from whence.errors import ModelError
from whence.graph import Graph, print_node
from whence.graph.fates import coverage, fates
from whence.graph.story import Step, Story, tell
from whence.provenance import EdgeKind, Fate, Ledger, Origin, SourceOp


def why(
    model: ModelPath,
    operator: Annotated[str | None, typer.Argument(help="An operator by name, by the end of its name, or by number.", show_default=False)] = None,
    shape: ShapeOption = [],  # noqa: B006  (typer reads the default, nobody changes it)
    limit: Annotated[int, typer.Option(help="Rows of the list when no operator is named; 0 for all.")] = 40,
) -> None:
    """Tell what became of an operator of MODEL, and by which rule. Without OPERATOR, list them all.

    [dim]whence why resnet50.onnx /layer1/0/bn1[/dim]
    [dim]whence why resnet50.onnx 7[/dim]
    """
    graph = load_with_bar(model, parse_shapes(shape))
    prepare_with_bar(graph)
    if operator is None:
        _list(out(), graph, limit)
    else:
        print_story(out(), graph, tell(graph, find_source(graph.ledger, operator)))


def find_source(ledger: Ledger, wanted: str) -> SourceOp:
    """The source operator meant: by exact name, by number, or by a part of the name that fits only one."""
    for source in ledger.sources:
        if source.name == wanted:
            return source
    if wanted.isdigit() and 1 <= int(wanted) <= ledger.n_sources:
        return ledger.source(int(wanted))
    for fits in (lambda name: name.endswith(wanted), lambda name: wanted in name):
        found = [source for source in ledger.sources if fits(source.name)]
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(f"'{source.name}'" for source in found[:4])
            raise ModelError(f"'{wanted}' fits {len(found)} operators: {names}{', ...' if len(found) > 4 else ''}; name one of them, or its number")
    close = difflib.get_close_matches(wanted, [source.name for source in ledger.sources[:20000]], n=3)
    hint = f"; did you mean {' or '.join(repr(name) for name in close)}?" if close else f"; it has {ledger.n_sources}, `whence why MODEL` lists them"
    raise ModelError(f"the model has no operator '{wanted}'{hint}")


_STYLES = {Fate.LIVE: "green", Fate.FOLDED: "cyan", Fate.REMOVED: "yellow", Fate.DEAD: "dim", Fate.LOST: "bold red"}


def _list(console: Console, graph: Graph, limit: int) -> None:
    ledger = graph.ledger
    carriers: dict[int, list[str]] = {}
    for nested in graph.nested():
        for node in nested:
            for source_id in node.origin:
                carriers.setdefault(source_id, []).append(f"{node.op} %{node.id}")
    stones = {source_id: stone for stone in ledger.tombstones for source_id in stone.origin}
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("#", justify="right", style="dim")
    table.add_column("operator", no_wrap=True)
    table.add_column("type", no_wrap=True)
    table.add_column("fate")
    table.add_column("now")
    name_width = max(20, console.width - 60)
    every = list(zip(ledger.sources, fates(graph), strict=True))
    for source, fate in every[: limit or len(every)]:
        if source.id in carriers:
            now = ", ".join(carriers[source.id][:2]) + (" ..." if len(carriers[source.id]) > 2 else "")
        elif source.id in stones:
            stone = stones[source.id]
            now = f"{stone.reason} ({stone.pass_name})"
        else:
            now = ""
        table.add_row(str(source.id), safe(shorten(source.name, name_width)), safe(source.op), safe(fate.value, _STYLES[fate]), safe(now))
    console.print(table)
    if limit and len(every) > limit:
        console.print(f"... and {len(every) - limit} more; --limit 0 lists all", style="dim")
    console.print(str(coverage(graph)))


def print_story(console: Console, graph: Graph, story: Story) -> None:
    """The life of an operator, in sentences."""
    source, ledger = story.source, graph.ledger
    console.print(safe(source.name, "bold"), safe(f"({source.op})"), safe(story.fate.value, _STYLES[story.fate]), soft_wrap=True)
    console.print(safe(f"  read from the file as number {source.id}" + (f", inside {source.scope}" if source.scope else "")), soft_wrap=True)
    if source.module:
        console.print(safe(f"  module {source.module}"), soft_wrap=True)
    if source.line:
        console.print(safe(f"  written at {source.line}"), soft_wrap=True)
    for step in story.steps:
        console.print(safe("  " + _sentence(graph, step)), soft_wrap=True)
        if step.rule:
            console.print(safe(f"      {step.rule}", "dim"), soft_wrap=True)
    for stone in story.tombstones:
        into = f", its users read {_describe(graph, stone.into)} instead" if stone.into is not None else ""
        console.print(safe(f"  removed by {stone.pass_name}: {stone.reason}{into}"), soft_wrap=True)
        if stone.rule:
            console.print(safe(f"      {stone.rule}", "dim"), soft_wrap=True)
    for node in story.live_in[:8]:
        others = _names(ledger, node.origin - {source.id})
        console.print(safe(f"  now part of node {node.id}, {node.op}" + (f", together with {others}" if others else "")), soft_wrap=True)
        console.print(safe(f"      {print_node(node)}", "dim"), soft_wrap=True)
    if len(story.live_in) > 8:
        console.print(f"  ... and {len(story.live_in) - 8} more nodes", style="dim")


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


def _sentence(graph: Graph, step: Step) -> str:
    partners = _names(graph.ledger, step.partners)
    return f"{_VERBS[step.kind]} {_describe(graph, step.child)} by {step.pass_name}" + (f", with {partners}" if partners else "")


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
    listed = [f"'{ledger.source(source_id).name}'" for source_id in sorted(origin)[:4]]
    return ", ".join(listed) + (f" and {len(origin) - 4} more" if len(origin) > 4 else "")
