"""How the commands talk: one console, safe text, files, progress bars."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

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
from whence.graph import Graph
from whence.graph.escaping import escape
from whence.passes.preferences import Preferences
from whence.provenance import PassReport

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


def put(console: Console, text: str, style: str = "") -> None:
    """A line of text that comes from a model, in one piece however long it is."""
    console.print(safe(text, style), soft_wrap=True)


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


def list_files(console: Console, files: Iterable[Path]) -> None:
    """What was written."""
    for file in files:
        put(console, f" → {file}", "dim")


def write_text(file: Path, text: str) -> None:
    """A file, in a folder that is made where it is missing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def without_home(path: Path) -> str:
    """The path with the user's home folder as `~`: short, and nobody's name is in it."""
    try:
        return f"~/{path.relative_to(Path.home())}"
    except (ValueError, RuntimeError):
        return str(path)


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
