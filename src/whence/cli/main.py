"""The `whence` command. Exit codes: 0 done, 1 failed, 2 bad usage."""

from __future__ import annotations

import os
import sys

import typer

from whence.cli import compile, convert, db, demo, diff, passes, profile, run, why
from whence.cli.console import err, safe
from whence.errors import WhenceError

app = typer.Typer(
    name="whence",
    help="Compile neural networks without losing track of where anything came from.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.command("profile")(profile.profile)
app.command("why")(why.why)
app.command("passes")(passes.passes)
app.command("convert")(convert.convert)
app.command("compile")(compile.compile_command)
app.command("run")(run.run)
app.command("db")(db.db)
app.command("diff")(diff.diff)


def main() -> None:
    """Run the command line. An error is one line that says what to do; a traceback only when WHENCE_DEBUG is set."""
    try:
        app()
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
        _complain(f"internal error, please report it ({type(error).__name__}: {error}); WHENCE_DEBUG=1 shows where")


def _complain(message: str) -> None:
    err().print(safe("whence: " + " ".join(message.split())), soft_wrap=True)
    sys.exit(1)
