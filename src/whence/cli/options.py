"""Options that commands share, and what is refused before the long work."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from whence.errors import InputError
from whence.runtime.engine import Engine
from whence.runtime.registry import find_backend

ModelPath = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="The model file (.onnx, .tflite, .circle or .pt2)."),
]
ThreadsOption = Annotated[int, typer.Option(min=0, help="Threads to use; 0 for every core.")]
ProfileJsonOption = Annotated[
    Path | None, typer.Option("--json", help="Write profile.json to this file.")
]

EngineOption = Annotated[
    str,
    typer.Option(
        metavar="NAME[:INDEX]",
        help="What to run on: cpu, opencl, opencl:1, or what a plugin adds; see `whence devices`.",
    ),
]

PreciseOption = Annotated[
    bool,
    typer.Option(
        "--precise",
        help=(
            "Leave out the processor's matrix units even where their less exact float32 products"
            " would not show in the outputs."
        ),
    ),
]


def parse_engine(text: str, threads: int, precise: bool) -> Engine:
    """`"opencl:1"` → the second OpenCL device."""
    name, _, index = text.partition(":")
    if index and not index.isdecimal():
        raise typer.BadParameter(f"'{text}' is not NAME or NAME:INDEX", param_hint="--engine")
    takes = find_backend(name).options
    if threads and "threads" not in takes:
        raise typer.BadParameter(
            f"--threads is for the cpu; {name} uses all of its device", param_hint="--threads"
        )
    if precise and "precise" not in takes:
        raise typer.BadParameter(f"--precise is for the cpu; {name} is", param_hint="--precise")
    return Engine(name, int(index or 0), threads, precise=precise)


def check_choice(given: str, choices: Collection[str], option: str) -> None:
    """Refuse what is none of the words that an option takes."""
    if given not in choices:
        raise typer.BadParameter(f"'{given}' is none of {', '.join(choices)}", param_hint=option)


def check_grouping(by: str, groupings: Collection[str], depth: int = 0) -> None:
    """Refuse what a profile cannot be grouped by, and a depth of what has none."""
    check_choice(by, groupings, "--by")
    if depth and by != "module":
        raise typer.BadParameter("is for --by module", param_hint="--depth")


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
