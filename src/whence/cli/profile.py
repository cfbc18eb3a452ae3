"""`whence profile`: where the time goes, in the words of the user's own file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from whence.api import compile_model, load, machine_rates, prepare_again
from whence.attribution import profile_executable
from whence.attribution.dimension_sweep import SWEPT_BY, DimensionSweep, sweep_dimension
from whence.attribution.findings.measurement_quality import GUESSED
from whence.attribution.profile import GROUPINGS, Profile
from whence.attribution.sample_inputs import batch_shapes, taken_sizes, working_inputs
from whence.cli.console import ProgressBar, list_files, out, progress, put, write_text
from whence.cli.options import (
    ModelPath,
    PreciseOption,
    ProfileJsonOption,
    ThreadsOption,
    check_file,
    check_folder,
    check_grouping,
    parse_engine,
)
from whence.cli.shapes import (
    DimOption,
    ShapeOption,
    Shapes,
    fixed_shapes,
    mention_open_sizes,
    mention_options,
    parse_dims,
    parse_sizes,
)
from whence.errors import InputError
from whence.foreign.engines import ENGINES, check_engine
from whence.rates import MachineRates
from whence.report.files import WRITERS, left_out
from whence.report.growth import growth_page, print_growth
from whence.report.html.page import page
from whence.report.memory import print_memory
from whence.report.terminal import print_profile
from whence.runtime.engine import Engine
from whence.runtime.executable import Executable
from whence.runtime.registry import backend_names

_IMPORTED = ("tensorrt", "executorch", "vela")
"""Known by the traces that their own tools write."""


def profile(
    model: ModelPath,
    runs: Annotated[int, typer.Option(min=1, help="How many runs to time.")] = 50,
    warmup: Annotated[int, typer.Option(min=0, help="How many runs to throw away first.")] = 5,
    threads: ThreadsOption = 0,
    engine: Annotated[
        str,
        typer.Option(
            metavar="NAME[:INDEX]",
            help=(
                "What to run on: cpu, opencl or opencl:1 (see `whence devices`); or another engine"
                f" with its own profiler: {', '.join(ENGINES)}."
            ),
        ),
    ] = "cpu",
    precise: PreciseOption = False,
    shape: ShapeOption = [],  # noqa: B006  (typer reads the default, nobody changes it)
    dim: DimOption = [],  # noqa: B006
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help=(
                "Measure what each operator adds to its kernel, by leaving it out, instead of"
                " modelling it. Takes longer."
            ),
        ),
    ] = False,
    by: Annotated[str, typer.Option(help=f"Group the time by {', '.join(GROUPINGS)}.")] = "op",
    depth: Annotated[
        int, typer.Option(min=0, help="With --by module: so many modules deep; 0 for all.")
    ] = 0,
    limit: Annotated[int, typer.Option(min=0, help="Rows of the table; 0 for all.")] = 20,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help=(
                "A folder for profile.json, report.html, the debug database, and files for other"
                " tools."
            ),
        ),
    ] = None,
    json_file: ProfileJsonOption = None,
    streams: Annotated[
        int,
        typer.Option(
            min=0,
            help=(
                "Measure also what so many callers at once achieve in a second. Most with"
                " --threads 1."
            ),
        ),
    ] = 0,
    batch: Annotated[
        int,
        typer.Option(
            min=0, help="Samples in a run, where the model leaves that open.", show_default=False
        ),
    ] = 0,
    memory: Annotated[
        bool, typer.Option("--memory", help="Say also what memory a run needs, and who holds it.")
    ] = False,
    full_paths: Annotated[
        bool, typer.Option("--full-paths", help="Keep the paths of this machine as they are.")
    ] = False,
) -> None:
    """Compile MODEL, run it, and say where the time went: every operator of the file, and sums that
    are exact.

    [dim]whence profile resnet50.onnx[/dim]
    [dim]whence profile resnet50.onnx --exact[/dim]      measured by leaving operators out
    [dim]whence profile resnet50.onnx --by module[/dim]
    [dim]whence profile resnet50.onnx -o out/[/dim]      report.html, files for other tools
    [dim]whence profile resnet50.onnx --threads 1 --streams 8 --batch 4[/dim]
    [dim]whence profile resnet50.onnx --engine onnxruntime[/dim]
    [dim]whence profile decoder.onnx --dim past=0,64,512[/dim]   who grows with it
    """
    check_grouping(by, GROUPINGS, depth)
    check_folder(output)
    check_file(json_file)
    if any(len(sizes) > 1 for sizes in parse_dims(dim).values()):
        _refuse_with_sweep(engine, exact=exact, streams=streams, batch=batch)
        sweep = _profile_sizes(model, shape, dim, engine, threads, runs, warmup, precise)
        _show_sweep(sweep, by, limit, depth, output, json_file, full_paths=full_paths)
        return
    shapes = parse_sizes(shape, dim, model)
    _check_engine_name(engine)
    if streams and engine in ENGINES:
        raise typer.BadParameter("is for whence's own engines", param_hint="--streams")
    if batch:
        shapes = {**shapes, **batch_shapes(load(model, shapes=shapes), batch)}
    if engine in ENGINES:
        for flag, given in (("--exact", exact), ("--precise", precise)):
            if given:
                raise typer.BadParameter(
                    f"is for whence's own kernels, not {engine}", param_hint=flag
                )
        found = _profile_elsewhere(model, shapes, engine, threads, runs=runs, warmup=warmup)
    else:
        found = profile_here(
            model,
            shapes,
            engine,
            threads,
            precise,
            runs=runs,
            warmup=warmup,
            exact=exact,
            streams=streams,
            batch=batch or 1,
            # What is only looked at need not wait for quiet moments.
            to_compare=output is not None or json_file is not None,
        )
    show_profile(
        found, by, limit, output, json_file, depth=depth, memory=memory, full_paths=full_paths
    )


def show_profile(
    found: Profile,
    by: str,
    limit: int,
    output: Path | None,
    json_file: Path | None,
    *,
    depth: int = 0,
    memory: bool = False,
    full_paths: bool = False,
) -> None:
    """Write the files that were asked for and print the table; with `memory`, who holds it too."""
    shown = found if full_paths else found.without_local_paths()
    # Files first: whoever reads the table may stop reading (`| head`), which ends the program.
    files = found.save(output, full_paths=full_paths) if output is not None else []
    if json_file is not None:
        write_text(json_file, shown.to_json() + "\n")
        files.append(json_file)
    console = out()
    print_profile(console, shown, by, limit, depth=depth)
    if memory:
        print_memory(console, shown)
    list_files(console, files)
    if output is not None and (missing := left_out(found)):
        put(console, f" {missing}", "dim")


def profile_here(
    model: Path,
    shapes: Shapes,
    engine: str = "cpu",
    threads: int = 0,
    precise: bool = False,
    *,
    runs: int,
    warmup: int = 5,
    exact: bool = False,
    streams: int = 0,
    batch: int = 1,
    to_compare: bool = False,
) -> Profile:
    """The profile of the model on an engine of whence's; says which sizes it takes."""
    with progress("compiling") as bar:
        executable, rates = _compiled(
            bar, model, shapes, parse_engine(engine, threads, precise), specialise=exact
        )
        sample = working_inputs(executable)
        mention_open_sizes(sample, bar.console)
        again = prepare_again(model, shapes) if exact else None
        return profile_executable(
            executable,
            sample,
            runs=runs,
            warmup=warmup,
            model=str(model),
            progress=bar.show,
            writers=WRITERS,
            exact=again,
            rates=rates,
            streams=streams,
            batch=batch,
            to_compare=to_compare,
        )


def _compiled(
    bar: ProgressBar,
    model: Path,
    shapes: Shapes,
    engine: Engine,
    *,
    specialise: bool | None = None,
) -> tuple[Executable, MachineRates | None]:
    """The model, and how fast the machine is: what is measured decides between kernels, too."""
    rates = machine_rates(engine, bar.show)
    executable = compile_model(
        model, engine=engine, shapes=shapes, specialise=specialise, progress=bar.compiling
    )
    return executable, rates


# ---- engines of others: `whence profile --engine onnxruntime` ----


def _check_engine_name(engine: str) -> None:
    """Refuse what neither whence nor another engine that it can run is called."""
    own = backend_names()
    if engine in ENGINES or engine.partition(":")[0] in own:
        return
    hint = f"; `whence import` reads traces of {engine}" if engine in _IMPORTED else ""
    known = ", ".join((*own, *ENGINES))
    raise InputError(f"there is no engine '{engine}'; there are {known}{hint}")


def _profile_elsewhere(
    model: Path, shapes: Shapes, engine: str, threads: int, *, runs: int, warmup: int
) -> Profile:
    """The profile of the model as another engine runs it."""
    from whence.foreign.run import attribute, prepare, record

    check_engine(engine, model.suffix)
    with progress(f"loading {engine}") as bar:
        subject = prepare(model, shapes=shapes)
        mention_open_sizes(taken_sizes(subject.source.graph), bar.console)
        recording = record(
            subject, engine, threads=threads, runs=runs, warmup=warmup, progress=bar.show
        )
        return attribute(subject, recording, progress=bar.show)[0]


# ---- how each operator's time grows with a dimension: `whence profile --dim NAME=0,64,512` ----


def _refuse_with_sweep(engine: str, *, exact: bool, streams: int, batch: int) -> None:
    """Options that are for one size."""
    given = {
        "--exact": exact,
        "--streams": streams,
        "--batch": batch,
        f"--engine {engine}": engine in ENGINES,
    }
    for option, used in given.items():
        if used:
            raise typer.BadParameter(f"several sizes are not for {option}", param_hint="--dim")


def _profile_sizes(
    model: Path,
    shape: list[str],
    dim: list[str],
    engine: str,
    threads: int,
    runs: int,
    warmup: int,
    precise: bool,
) -> DimensionSweep:
    """The profiles at all sizes of the one dimension that has several."""
    dims = parse_dims(dim)
    several = [name for name, sizes in dims.items() if len(sizes) > 1]
    if len(several) > 1:
        raise typer.BadParameter(
            f"{' and '.join(several)} have several sizes; one dimension at a time",
            param_hint="--dim",
        )
    fixed = {name: sizes[0] for name, sizes in dims.items() if len(sizes) == 1}
    shapes = fixed_shapes(shape, fixed, model)
    with progress("compiling") as bar:
        executable, rates = _compiled(bar, model, shapes, parse_engine(engine, threads, precise))
        found = sweep_dimension(
            executable,
            several[0],
            dims[several[0]],
            runs=runs,
            warmup=warmup,
            model=str(model),
            progress=bar.show,
            writers=WRITERS,
            render=page,
            rates=rates,
        )
        mention_options(found.profiles[0].environment.get(GUESSED, ""), bar.console)
    return found


def _show_sweep(
    sweep: DimensionSweep,
    by: str,
    limit: int,
    depth: int,
    output: Path | None,
    json_file: Path | None,
    *,
    full_paths: bool,
) -> None:
    if by not in SWEPT_BY:
        raise typer.BadParameter(
            f"several sizes are compared by {', '.join(SWEPT_BY)}", param_hint="--by"
        )
    shown = sweep if full_paths else sweep.without_local_paths()
    files: list[Path] = []
    if output is not None:
        files = sweep.save(output, growth_page, full_paths=full_paths)
    if json_file is not None:
        write_text(json_file, shown.to_json() + "\n")
        files.append(json_file)
    console = out()
    print_growth(console, shown, by, limit, depth)
    folders = (output, json_file.parent if json_file is not None else None)
    list_files(console, [file for file in files if file.parent in folders])
