"""The `whence` command. Exit codes: 0 done, 1 failed, 2 bad usage.

Commands are imported when they are used, so that `--help` does not wait for compilers and readers.
"""

from __future__ import annotations

import ast
import importlib
import os
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from whence.errors import WhenceError

COMMANDS = {
    "demo": ("demo", "demo"),
    "profile": ("profile", "profile"),
    "advise": ("advise", "advise"),
    "why": ("why", "why"),
    "passes": ("passes", "passes"),
    "convert": ("convert", "convert"),
    "compile": ("compile", "compile_command"),
    "run": ("run", "run"),
    "devices": ("devices", "devices"),
    "db": ("db", "db"),
    "diff": ("diff", "diff"),
    "sweep": ("sweep", "sweep_command"),
    "history": ("history", "history"),
    "bisect": ("bisect", "bisect_command"),
    "compare": ("compare", "compare"),
    "import": ("import_trace", "import_command"),
    "cache": ("cache", "cache"),
    "doctor": ("doctor", "doctor"),
}
"""Each command's module in this folder, and its function there."""
_SETTINGS: Mapping[str, Any] = {
    "add_completion": False,
    "rich_markup_mode": "rich",
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


class LazyCommand(TyperCommand):
    """A command known by name; its module, beside this one, is imported when it is called. What the
    list of commands says about it is the docstring of its function, read from the file's text.
    """

    def __init__(self, name: str, module: str, function: str) -> None:
        text = docstring(module, function)
        # The list of commands would keep the line breaks of the source.
        summary = " ".join(text.partition("\n\n")[0].split())
        super().__init__(name, help=text, short_help=summary, rich_markup_mode="rich")
        self._module, self._function = module, function

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """The real command's context, through which everything else goes."""
        app = typer.Typer(**_SETTINGS)
        app.command(self.name)(
            getattr(importlib.import_module(f"whence.cli.{self._module}"), self._function)
        )
        return get_command(app).make_context(info_name, args, parent=parent, **extra)


def docstring(module: str, function: str) -> str:
    """Of a function of a module beside this one, which is not imported."""
    tree = ast.parse((Path(__file__).parent / f"{module}.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return ast.get_docstring(node) or ""
    raise LookupError(f"whence.cli.{module} has no function {function}")


class LazyGroup(TyperGroup):
    """All commands."""

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        for name, place in COMMANDS.items():
            self.add_command(LazyCommand(name, *place))


app = typer.Typer(name="whence", cls=LazyGroup, no_args_is_help=True, **_SETTINGS)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"whence {version('whence')}")
        raise typer.Exit


@app.callback(help="Compile neural networks without losing track of where anything came from.")
def _whence(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and leave."
        ),
    ] = False,
) -> None:
    """What all commands share."""


def main() -> None:
    """Run the command line. Errors are one line; WHENCE_DEBUG shows the traceback."""
    try:
        app(prog_name="whence")
    except Exception as error:
        if os.environ.get("WHENCE_DEBUG"):
            raise
        from whence.cli.console import err, put

        put(err(), "whence: " + " ".join(_told(error).split()))
        sys.exit(1)


def _told(error: Exception) -> str:
    if isinstance(error, WhenceError):
        return str(error)
    told = f"{type(error).__name__}: {error}"
    if isinstance(error, MemoryError | RecursionError | OSError):
        return told
    from whence.plugins import plugin_behind

    plugin = plugin_behind(error)
    failed = "internal error, please report it" if plugin is None else f"{plugin} failed"
    return f"{failed} ({told}); WHENCE_DEBUG=1 shows where"
