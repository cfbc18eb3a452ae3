"""Engines of others on the command line: `whence profile --engine onnxruntime`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import typer

from whence.attribution.profile import Profile
from whence.cli.console import progress
from whence.cli.shapes import mention_open_sizes
from whence.errors import InputError
from whence.foreign.engines import ENGINES
from whence.runtime.registry import backend_names
from whence.types import Dim

NAMES = tuple(ENGINES)
_IMPORTED = ("tensorrt", "executorch", "vela")
"""Known by the traces that their own tools write."""


def check_engine_name(engine: str) -> None:
    """Refuse what neither whence nor another engine that it can run is called."""
    own = backend_names()
    if engine in NAMES or engine.partition(":")[0] in own:
        return
    hint = f"; `whence import` reads traces of {engine}" if engine in _IMPORTED else ""
    raise InputError(f"there is no engine '{engine}'; there are {', '.join((*own, *NAMES))}{hint}")


def profile_elsewhere(
    model: Path,
    engine: str,
    *,
    threads: int,
    shapes: Mapping[str, Sequence[Dim]],
    runs: int,
    warmup: int,
    exact: bool,
    precise: bool,
) -> Profile:
    """The profile of the model as another engine runs it."""
    from whence.attribution.sample_inputs import taken_sizes
    from whence.foreign.engines import check_engine
    from whence.foreign.run import attribute, prepare, record

    for flag, given in (("--exact", exact), ("--precise", precise)):
        if given:
            raise typer.BadParameter(f"is for whence's own kernels, not {engine}", param_hint=flag)
    check_engine(engine, model.suffix)
    with progress(f"loading {engine}") as bar:
        subject = prepare(model, shapes=shapes)
        graph = subject.source.graph
        mention_open_sizes(taken_sizes(graph), bar.console)
        recording = record(
            subject, engine, threads=threads, runs=runs, warmup=warmup, progress=bar.show
        )
        return attribute(subject, recording, progress=bar.show)[0]
