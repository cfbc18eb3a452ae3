"""The `whence` command. Exit codes: 0 done, 1 failed, 2 bad usage."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from whence.cli.lazy import SETTINGS, group_of
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

app = typer.Typer(
    name="whence",
    cls=group_of(COMMANDS),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings=dict(SETTINGS),
)


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
    except WhenceError as error:
        if os.environ.get("WHENCE_DEBUG"):
            raise
        _complain(str(error))
    except (MemoryError, RecursionError, OSError) as error:
        if os.environ.get("WHENCE_DEBUG"):
            raise
        _complain(f"{type(error).__name__}: {error}")
    except Exception as error:
        if os.environ.get("WHENCE_DEBUG"):
            raise
        from whence.plugins import plugin_behind

        plugin = plugin_behind(error)
        failed = "internal error, please report it" if plugin is None else f"{plugin} failed"
        _complain(f"{failed} ({type(error).__name__}: {error}); WHENCE_DEBUG=1 shows where")


def _complain(message: str) -> None:
    from whence.cli.console import err, put

    put(err(), "whence: " + " ".join(message.split()))
    sys.exit(1)
