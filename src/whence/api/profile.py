"""Profiling a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whence.api.compile import compile_model
from whence.api.files import Dims, Shapes, load, shapes_with
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
    model: str | Path | Graph | Executable | Any,
    inputs: Mapping[str, Value] | Any = None,
    *,
    runs: int = 50,
    warmup: int = 5,
    threads: int = 0,
    engine: Engine | None = None,
    shapes: Shapes | None = None,
    dims: Dims | None = None,
    exact: bool = False,
) -> Profile:
    """Where the time goes, by operator of the file. Compiles the model unless it is compiled
    already; inputs are random unless given. `dims` are sizes of the dimensions that the model
    names. What `torch.compile(module, backend="whence")` returned
    is profiled with the arguments of a call, by line of the program, with its graph breaks.

    `exact` measures what each operator adds to its kernel, by leaving it out, where otherwise that
    is modelled.
    """
    from whence.attribution.measure import profile_executable
    from whence.attribution.sample_inputs import working_inputs
    from whence.attribution.torch_module import is_compiled_by_torch
    from whence.graph import Graph
    from whence.report.files import WRITERS
    from whence.report.html.page import page
    from whence.runtime.executable import Executable

    if is_compiled_by_torch(model):
        return _profile_torch_compiled(model, inputs, runs, warmup)
    if exact and isinstance(model, Executable):
        raise InputError(
            "an exact profile compiles kernels anew and needs the constants: give the model file or"
            " graph, not a compiled model"
        )
    if isinstance(model, Executable):
        executable = model
        if dims and inputs is None:
            inputs = working_inputs(executable, dims)
    else:
        if dims:
            shapes = shapes_with(model if isinstance(model, Graph) else load(model), dims, shapes)
        # What is left out is compiled for the sizes at hand, and so must be what it is left out of.
        executable = compile_model(
            model, threads=threads, engine=engine, shapes=shapes, specialise=exact
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


def _profile_torch_compiled(model: Any, inputs: Any, runs: int, warmup: int) -> Profile:
    from whence.attribution.measure import profile_executable
    from whence.attribution.torch_module import profile_torch_compiled
    from whence.interop.torch.recording import GraphRun
    from whence.report.files import WRITERS
    from whence.report.html.page import page

    def profile_graph(run: GraphRun) -> Profile:
        executable = run.executable
        return profile_executable(
            executable,
            run.inputs,
            runs=runs,
            warmup=warmup,
            model=executable.graph.name,
            writers=WRITERS,
            rates=machine_rates(executable.engine),
        )

    found = profile_torch_compiled(model, inputs, profile_graph, runs=runs, warmup=warmup)
    return dataclasses.replace(found, render=page)


def machine_rates(engine: Engine, progress: Progress | None = None) -> MachineRates | None:
    """How fast the machine is that an engine runs on: measured now, which takes seconds, if it never
    was. `None` for devices, of which nobody measures that.
    """
    from whence.calibration import calibrated

    toolchain = getattr(engine.backend, "toolchain", None)
    return None if toolchain is None else calibrated(toolchain, progress)
