"""`whence convert`: the optimised model as a file, origins inside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from whence.api import save
from whence.cli.console import ModelPath, ShapeOption, load_with_bar, out, parse_shapes, prepare_with_bar, progress, safe
from whence.errors import UnsupportedError
from whence.graph.fates import coverage


def convert(
    model: ModelPath,
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write (.onnx).", show_default=False)],
    shape: ShapeOption = [],  # noqa: B006  (typer reads the default, nobody changes it)
) -> None:
    """Write the optimised model. Any ONNX runtime loads it, and each node says which operators of the first file it came from.

    [dim]whence convert model.onnx -o small.onnx[/dim]
    [dim]whence why small.onnx /layer1/bn1[/dim]        still speaks of model.onnx
    """
    if output.suffix.lower() != ".onnx":
        raise UnsupportedError(f"'{output}': whence writes .onnx files")
    graph = load_with_bar(model, parse_shapes(shape))
    before = sum(graph.op_counts.values()) - _structural(graph.op_counts)
    prepare_with_bar(graph, portable=True)
    with progress("writing"):
        save(graph, output)
    after = sum(graph.op_counts.values()) - _structural(graph.op_counts)
    console = out()
    console.print(safe(f"{model.name} → {output}"))
    console.print(f"{before} operators → {after} · {coverage(graph)}")


def _structural(counts: dict[str, int]) -> int:
    return sum(counts.get(op, 0) for op in ("Input", "Const", "Output"))
