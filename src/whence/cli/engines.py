"""The option that chooses what a model runs on."""

from __future__ import annotations

from typing import Annotated

import typer

from whence.runtime.engine import Engine

EngineOption = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="NAME[:INDEX]",
        help="What to run on: cpu, opencl or opencl:1; see `whence devices`.",
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
        show_default=False,
    ),
]


def parse_engine(text: str, threads: int, precise: bool) -> Engine:
    """`"opencl:1"` → the second OpenCL device."""
    name, _, index = text.partition(":")
    if index and not index.isdecimal():
        raise typer.BadParameter(f"'{text}' is not NAME or NAME:INDEX", param_hint="--engine")
    if name == "cpu":
        return Engine(name, int(index or 0), threads, precise=precise)
    if threads:
        raise typer.BadParameter(
            f"--threads is for the cpu; {name} uses all of its device", param_hint="--threads"
        )
    if precise:
        raise typer.BadParameter(f"--precise is for the cpu; {name} is", param_hint="--precise")
    return Engine(name, int(index or 0))
