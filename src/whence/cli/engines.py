"""The option that chooses what a model runs on."""

from __future__ import annotations

from typing import Annotated

import typer

from whence.runtime.engine import Engine

EngineOption = Annotated[str, typer.Option("--engine", metavar="NAME[:INDEX]", help="What to run on: cpu, opencl or opencl:1; see `whence devices`.")]


def parse_engine(text: str, threads: int) -> Engine:
    """`"opencl:1"` → the second OpenCL device."""
    name, _, index = text.partition(":")
    if index and not index.isdecimal():
        raise typer.BadParameter(f"'{text}' is not NAME or NAME:INDEX", param_hint="--engine")
    if name == "cpu":
        return Engine(name, int(index or 0), threads)
    if threads:
        raise typer.BadParameter(f"--threads is for the cpu; {name} uses all of its device", param_hint="--threads")
    return Engine(name, int(index or 0))
