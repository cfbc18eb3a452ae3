"""Profiling a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whence.api.compile import compile_model, engine_for
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
    streams: int = 0,
    batch: int = 0,
    to_compare: bool = True,
) -> Profile:
    """Where the time goes, by operator of the file. Compiles the model unless it is compiled
    already; inputs are random unless given: by name, in order, or the array that is the only one.
    `dims` are sizes of the dimensions that the model names. A module of PyTorch is profiled with
    the arguments of a call, `(x,)`, and so is what `torch.compile(module, backend="whence")`
    returned: by line of the program, with its graph breaks.

    `exact` measures what each operator adds to its kernel, by leaving it out, where otherwise that
    is modelled. `streams` measures also what so many callers at once achieve in a second, most with
    `threads=1`. `batch` is how many samples a run has, of a model that leaves that open, where no
    inputs are given. `to_compare` goes on for up to eight seconds on a busy machine, until times
    are known so well that `diff` can tell a change from noise; without it, a profile takes as long
    as its runs.

        >>> profile = whence.profile("model.onnx", runs=10)
        >>> profile.attributed_ns + sum(profile.residual_ns.values()) == profile.wall_ns
        True
        >>> profile = whence.profile("model.onnx", np.zeros((1, 3, 32, 32), np.float32), runs=10)
        >>> profile.environment["input x"]
        '1×3×32×32'
        >>> busy = whence.profile("open.onnx", runs=10, threads=1, streams=2, batch=8)
        >>> busy.throughput.samples_per_second > 0
        True
    """
    from whence.attribution.measure import profile_executable
    from whence.attribution.sample_inputs import working_inputs
    from whence.attribution.torch_module import is_compiled_by_torch
    from whence.frontends.registry import is_torch_module
    from whence.graph import Graph
    from whence.report.files import WRITERS
    from whence.report.html.page import page
    from whence.runtime.executable import Executable

    if batch < 0 or streams < 0:
        raise InputError(f"{streams} streams with a batch of {batch} make no sense; 0 is none")
    if is_compiled_by_torch(model):
        if streams or batch:
            raise InputError(
                "streams and batch are for models of whence: what torch.compile made is profiled"
                " with the arguments of a call"
            )
        return _profile_torch_compiled(model, inputs, runs, warmup)
    if batch and inputs is not None:
        raise InputError(
            "batch is for inputs that are made up: those given have a size of their own"
        )
    if is_torch_module(model):
        if exact:
            raise InputError(
                "an exact profile compiles kernels anew: give what torch.export.export(module, args)"
                " returns, not the module"
            )
        model, inputs = _compile_module(model, inputs, threads, engine, shapes, dims)
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
        engine = engine_for(engine, threads)
        # What is measured of the machine decides between kernels, too.
        machine_rates(engine)
        # What is left out is compiled for the sizes at hand, and so must be what it is left out of.
        executable = compile_model(model, engine=engine, shapes=shapes, specialise=exact)
    if batch:
        inputs = _batch_of(executable.graph, batch, dims, shapes)
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
        streams=streams,
        batch=batch or 1,
        to_compare=to_compare,
    )
    return dataclasses.replace(found, render=page)


def _batch_of(
    graph: Graph, batch: int, dims: Dims | None, shapes: Shapes | None
) -> Mapping[str, Value]:
    """Random inputs of so many samples."""
    from whence.attribution.sample_inputs import batch_shapes, sample_inputs
    from whence.passes.shapes.propagate_types import fix_input_shapes

    known = shapes_with(graph, dims, shapes) if dims else shapes or {}
    sized = fix_input_shapes(graph.copy(), known) if known else graph
    shapes = batch_shapes(sized, batch)
    return sample_inputs(fix_input_shapes(sized.copy(), shapes)).values


def _compile_module(
    module: Any,
    inputs: Any,
    threads: int,
    engine: Engine | None,
    shapes: Shapes | None,
    dims: Dims | None,
) -> tuple[Executable, Sequence[Value]]:
    """The module, compiled for the arguments of a call, and what those give its graph."""
    from whence.interop.torch.executable import TorchExecutable
    from whence.ops.binding import is_single_array

    by_name = isinstance(inputs, Mapping)
    if is_single_array(inputs):
        inputs = (inputs,)
    if not by_name and not isinstance(inputs, tuple | list):
        raise InputError(
            "a module of PyTorch is profiled with the arguments of a call:"
            " whence.profile(module, (x,))"
        )
    args, kwargs = ((), inputs) if by_name else (tuple(inputs), {})
    executable = compile_model(
        module, args, kwargs=kwargs, threads=threads, engine=engine, shapes=shapes, dims=dims
    )
    assert isinstance(executable, TorchExecutable)
    return executable, executable.inputs_of(args, kwargs)


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
    """How fast the machine is that an engine runs on: measured now, which takes seconds, if it
    never was. `None` for devices, of which nobody measures that.
    """
    from whence.calibration import calibrated

    toolchain = getattr(engine.backend, "toolchain", None)
    return None if toolchain is None else calibrated(toolchain, progress)
