"""`whence convert`: the optimised model as a file, origins inside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from whence.api import save
from whence.api.files import written_suffix
from whence.cli.console import out, prepare_with_bar, progress, safe
from whence.cli.options import ModelPath
from whence.cli.shapes import DimOption, ShapeOption, load_with_bar, parse_sizes
from whence.graph import Graph
from whence.graph.outcomes import coverage
from whence.graph.state import BOUNDARY


def convert(
    model: ModelPath,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The file to write: .onnx, .tflite or .circle.")
    ],
    shape: ShapeOption = [],  # noqa: B006  (typer reads the default, nobody changes it)
    dim: DimOption = [],  # noqa: B006
) -> None:
    """Write the optimised model as ONNX, TFLite or Circle. Each operator says which operators of
    the first file it came from.

    [dim]whence convert model.onnx -o small.onnx[/dim]
    [dim]whence why small.onnx /layer1/bn1[/dim]             still speaks of model.onnx
    [dim]whence convert model.tflite -o model.circle[/dim]   with luci's tables in it
    """
    written_suffix(output)
    graph = load_with_bar(model, parse_sizes(shape, dim, model))
    before = len(graph.ledger.sources)
    prepare_with_bar(graph, portable=True)
    with progress("writing"):
        save(graph, output)
    after = _written_operators(output, graph)
    console = out()
    console.print(safe(f"{model.name} → {output}"))
    console.print(f"{before} operators → {after} · {coverage(graph)}")


def _written_operators(file: Path, graph: Graph) -> int:
    """How many operators a file has that was written. One of TFLite or Circle often stands for
    several nodes of the graph.
    """
    if file.suffix.lower() == ".onnx":
        counts = graph.op_counts
        return sum(counts.values()) - sum(counts.get(op, 0) for op in BOUNDARY)
    from whence.frontends.tflite.records import read_records

    return sum(
        len(subgraph.operators)
        for subgraph in read_records(file.read_bytes(), f"'{file}'").subgraphs
    )
