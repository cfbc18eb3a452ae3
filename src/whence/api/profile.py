"""Profiling a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from whence.api.compile import compile_model
from whence.api.files import Shapes
from whence.api.prepare import prepare_again
from whence.errors import InputError

if TYPE_CHECKING:
    from whence.attribution.profile import Profile
    from whence.building.backend import Progress
    from whence.graph import Graph
    from whence.ops.definition import Value
    from whence.rates import MachineRates
    from whence.runtime.engine import Engine
    from whence.runtime.executable import Executable


def profile_model(
    model: str | Path | Graph | Executable,
    inputs: Mapping[str, Value] | None = None,
    *,
    runs: int = 50,
    warmup: int = 5,
    threads: int = 0,
    engine: Engine | None = None,
    shapes: Shapes | None = None,
    exact: bool = False,
) -> Profile:
    """Where the time goes, by operator of the file. Compiles the model unless it is compiled
    already; inputs are random unless given.

    `exact` measures what each operator adds to its kernel, by leaving it out, where otherwise that
    is modelled.
    """
    from whence.attribution.measure import profile_executable
    from whence.report.files import WRITERS
    from whence.report.html.page import page
    from whence.runtime.executable import Executable

    if exact and isinstance(model, Executable):
        raise InputError(
            "an exact profile compiles kernels anew and needs the constants: give the model file or"
            " graph, not a compiled model"
        )
    executable = (
        model
        if isinstance(model, Executable)
        else compile_model(model, threads=threads, engine=engine, shapes=shapes)
    )
    name = str(model) if isinstance(model, str | Path) else executable.graph.name
    again = None
    if exact and not isinstance(model, Executable):
        again = prepare_again(model, shapes, executable.engine)
    found = profile_executable(
        executable,
        inputs,
        runs=runs,
        warmup=warmup,
        model=name,
        writers=WRITERS,
        exact=again,
        rates=machine_rates(executable.engine),
    )
    return dataclasses.replace(found, render=page)


def machine_rates(engine: Engine, progress: Progress | None = None) -> MachineRates | None:
    """How fast the machine is that an engine runs on: measured now, which takes seconds, if it never
    was. `None` for devices, of which nobody measures that.
    """
    from whence.calibration import calibrated

    toolchain = getattr(engine.backend, "toolchain", None)
    return None if toolchain is None else calibrated(toolchain, progress)
