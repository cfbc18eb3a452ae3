"""How the commands talk: one console, safe text, progress bars, and options they share."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from whence.api import load, prepare_with_report
from whence.errors import InputError
from whence.graph import Graph
from whence.graph.printer import escape
from whence.provenance import PassReport

ModelPath = Annotated[
    Path, typer.Argument(help="The model file (.onnx, .tflite or .circle).", show_default=False)
]
ShapeOption = Annotated[
    list[str],
    typer.Option(
        "--shape",
        metavar="NAME=1x3x224x224",
        help="Fix the shape of an input that the model leaves open. May be repeated.",
    ),
]

_PIPE_WIDTH = 240
_SHAPE = re.compile(r"(?P<name>.+)=(?P<dims>\d+(x\d+)*|scalar)")


def out() -> Console:
    """The console for results. Into a pipe or a file lines are not wrapped, so that they can be
    searched.
    """
    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPE_WIDTH
    return Console(highlight=False, soft_wrap=False, width=wide)


def err() -> Console:
    """The console for everything that is not the result: progress, notes, errors."""
    return Console(stderr=True, highlight=False)


def safe(text: str, style: str = "") -> Text:
    """Text that comes from a model: printed as it is, without markup or control characters taking
    effect.
    """
    return Text(escape(text), style=style)


def parse_shapes(options: list[str]) -> dict[str, tuple[int, ...]]:
    """`["x=1x3x224x224"]` → `{"x": (1, 3, 224, 224)}`."""
    shapes = {}
    for option in options:
        found = _SHAPE.fullmatch(option)
        if found is None:
            raise typer.BadParameter(
                f"'{option}' is not NAME=1x3x224x224 (NAME=scalar for no dimensions)",
                param_hint="--shape",
            )
        dims = found["dims"]
        shapes[found["name"]] = (
            () if dims == "scalar" else tuple(int(dim) for dim in dims.split("x"))
        )
    return shapes


def check_folder(output: Path | None) -> None:
    """Refuse a folder to write to that is a file, or would lie in one. Asked before the long
    work.
    """
    for each in (output, *output.parents) if output is not None else ():
        if each.exists() and not each.is_dir():
            raise InputError(f"'{each}' is a file; -o names a folder")


@contextmanager
def progress(title: str) -> Iterator[Progress]:
    """A bar on stderr that disappears when done; nothing when stderr is not a terminal."""
    console = err()
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        bar.add_task(title, total=None)
        yield bar


def load_with_bar(model: Path, shapes: dict[str, tuple[int, ...]]) -> Graph:
    with progress(f"reading {escape(model.name)}"):
        return load(model, shapes=shapes)


def prepare_with_bar(graph: Graph, *, portable: bool = False) -> list[PassReport]:
    with progress("preparing") as bar:
        task = bar.task_ids[0]

        def show(name: str, position: int, total: int) -> None:
            bar.update(task, description=name, completed=position, total=total)

        return prepare_with_report(graph, portable=portable, progress=show)
