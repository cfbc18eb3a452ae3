"""How the commands talk: one console, safe text, progress bars, and options they share."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from whence.building.prepare import prepare_graph
from whence.codegen.target import usable_cores
from whence.errors import InputError
from whence.graph import Graph
from whence.graph.escaping import escape
from whence.passes.preferences import Preferences
from whence.provenance import PassReport

ModelPath = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="The model file (.onnx, .tflite, .circle or .pt2)."),
]
_PIPE_WIDTH = 240


def out() -> Console:
    """The console for results. Into a pipe or a file lines are not wrapped, so that they can be
    searched.
    """
    width = None
    if os.environ.get("COLUMNS", "0") == "0":  # what a terminal says that does not know its size
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(highlight=False, markup=False, soft_wrap=False, width=width)


def err() -> Console:
    """The console for everything that is not the result: progress, notes, errors."""
    return Console(stderr=True, highlight=False, markup=False)


def safe(text: str, style: str = "") -> Text:
    """Text that comes from a model: printed as it is, without markup or control characters taking
    effect.
    """
    return Text(escape(text), style=style)


def say(console: Console, text: str, style: str = "") -> None:
    """A line of text that comes from a model. Where it is longer than the terminal is wide, the
    rest is indented below it.
    """
    line = escape(text)
    if console.width < _PIPE_WIDTH and len(line) > console.width:
        indent = line[: len(line) - len(line.lstrip())] + "    "
        lines = textwrap.wrap(
            line,
            console.width,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        line = "\n".join(lines)
    console.print(Text(line, style=style), soft_wrap=True)


def without_home(path: Path) -> str:
    """The path with the user's home folder as `~`: short, and nobody's name is in it."""
    try:
        return f"~/{path.relative_to(Path.home())}"
    except (ValueError, RuntimeError):
        return str(path)


def check_folder(output: Path | None) -> None:
    """Refuse a folder that cannot be written to: a file, or one in a place that is not ours. Asked
    before the long work, so that its result is not lost.
    """
    if output is None:
        return
    for each in (output, *output.absolute().parents):
        if not each.exists():
            continue
        if not each.is_dir():
            raise InputError(f"'{each}' is a file; -o names a folder")
        try:
            with tempfile.TemporaryFile(dir=each):
                return
        except OSError as error:
            raise InputError(
                f"cannot write to '{each}': {error.strerror}; name another folder"
            ) from error


def check_file(output: Path | None) -> None:
    """Refuse a file that cannot be written, before the long work."""
    if output is None:
        return
    if output.is_dir():
        raise InputError(f"'{output}' is a folder; name a file")
    if output.exists() and not os.access(output, os.W_OK):
        raise InputError(f"cannot write to '{output}': no permission")
    check_folder(output.parent)


class _Count(ProgressColumn):
    """How much of it is done; nothing while nobody knows how much there is."""

    def render(self, task: Task) -> Text:
        return Text("" if task.total is None else f"{task.completed:.0f}/{task.total:.0f}")


class ProgressBar(Progress):
    """A bar for one thing after the other."""

    def show(self, doing: str, done: int, total: int) -> None:
        self.update(self.task_ids[0], description=doing, completed=done, total=total)

    def compiling(self, _: str, done: int, total: int) -> None:
        """As `show`, without the name of each pass and kernel."""
        self.show("compiling", done, total)


@contextmanager
def progress(
    title: str, *more: ProgressColumn, console: Console | None = None
) -> Iterator[ProgressBar]:
    """A bar on stderr that disappears when done, with `more` behind it; nothing when stderr is not
    a terminal.
    """
    console = console or err()
    with ProgressBar(
        # Names of files and kernels are no markup.
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        _Count(),
        TimeElapsedColumn(),
        *more,
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        bar.add_task(title, total=None)
        yield bar


def prepare_with_bar(graph: Graph, *, portable: bool = False) -> list[PassReport]:
    """As compiling for all cores of this machine would prepare it."""
    preferences = Preferences(threads=usable_cores())
    with progress("preparing") as bar:
        return prepare_graph(graph, preferences, portable=portable, progress=bar.show)
