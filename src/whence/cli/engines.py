"""The option that chooses what a model runs on."""

from __future__ import annotations

from typing import Annotated

import typer

from whence.runtime.engine import Engine
from whence.runtime.registry import find_backend

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
