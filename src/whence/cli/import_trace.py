"""`whence import`: a trace of another engine, in the operators of the user's file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from whence.attribution.profile import GROUPINGS
from whence.cli.console import progress
from whence.cli.options import ProfileJsonOption, check_file, check_folder, check_grouping
from whence.cli.shapes import DimOption, ShapeOption, parse_sizes
from whence.foreign.import_trace import FORMATS


def import_command(
    trace: Annotated[
        Path, typer.Argument(metavar="TRACE", help="What the engine's own profiler wrote.")
    ],
    model: Annotated[Path, typer.Option(help="The model that ran.")],
    graph: Annotated[Path | None, typer.Option(help="The file that goes with the trace.")] = None,
    format_name: Annotated[
        str,
        typer.Option("--format", help=f"{', '.join(FORMATS)}; seen by the content unless given."),
    ] = "",
    shape: ShapeOption = [],  # noqa: B006  (typer reads the default, nobody changes it)
    dim: DimOption = [],  # noqa: B006
    by: Annotated[str, typer.Option(help=f"Group the time by {', '.join(GROUPINGS)}.")] = "op",
    limit: Annotated[int, typer.Option(min=0, help="Rows of the table; 0 for all.")] = 20,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="A folder for profile.json, report.html, and files for other tools.",
        ),
    ] = None,
    json_file: ProfileJsonOption = None,
) -> None:
    """Attribute a TRACE that was made elsewhere to the operators of MODEL: a profile like any
    other.

    [dim]whence import trace.json --model m.onnx --graph opt.onnx[/dim]   ONNX Runtime
    [dim]whence import exec_graph.xml --model m.onnx[/dim]   OpenVINO
    [dim]whence import profile.json --model m.onnx --graph layers.json[/dim]   TensorRT
    [dim]whence import trace.json --model m.pt2 --graph mappings.json[/dim]   Inductor
    [dim]whence import run.etdp --model m.pt2 --graph etrecord.bin[/dim]   ExecuTorch
    [dim]whence import m_vela_debug.xml --model m.tflite[/dim]   Vela
    """
    from whence.cli.profile import show_profile
    from whence.foreign.import_trace import import_trace

    check_grouping(by, GROUPINGS)
    check_folder(output)
    check_file(json_file)
    shapes = parse_sizes(shape, dim, model)
    with progress("reading"):
        found = import_trace(trace, model, graph=graph, shapes=shapes, format_name=format_name)
    show_profile(found, by, limit, output, json_file)
