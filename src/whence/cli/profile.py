"""`whence profile`: where the time goes, in the words of the user's own file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from whence.api import compile_model, load, machine_rates, prepare_again
from whence.attribution import profile_executable
from whence.attribution.profile import GROUPINGS, Profile
from whence.attribution.sample_inputs import batch_shapes, working_inputs
from whence.cli.console import ModelPath, check_file, check_folder, out, progress, safe
from whence.cli.engines import PreciseOption, parse_engine
from whence.cli.other_engines import NAMES, check_engine_name, profile_elsewhere
from whence.cli.profile_sizes import profile_sizes, refuse_with_sweep, show_sweep
from whence.cli.shapes import (
    DimOption,
    ShapeOption,
    Shapes,
    mention_open_sizes,
    parse_dims,
    parse_sizes,
)
from whence.report.files import WRITERS, left_out
from whence.report.memory import print_memory
from whence.report.terminal import print_profile


def profile(
    model: ModelPath,
    runs: Annotated[int, typer.Option(min=1, help="How many runs to time.")] = 50,
    warmup: Annotated[int, typer.Option(min=0, help="How many runs to throw away first.")] = 5,
    threads: Annotated[int, typer.Option(min=0, help="Threads to use; 0 for every core.")] = 0,
    engine: Annotated[
        str,
        typer.Option(
            metavar="NAME[:INDEX]",
            help=(
                "What to run on: cpu, opencl or opencl:1 (see `whence devices`); or another engine"
                f" with its own profiler: {', '.join(NAMES)}."
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
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write profile.json to this file.")
    ] = None,
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
    if by not in GROUPINGS:
        raise typer.BadParameter(f"'{by}' is none of {', '.join(GROUPINGS)}", param_hint="--by")
    if depth and by != "module":
        raise typer.BadParameter("is for --by module", param_hint="--depth")
    check_folder(output)
    check_file(json_file)
    if any(len(sizes) > 1 for sizes in parse_dims(dim).values()):
        refuse_with_sweep(engine, exact=exact, streams=streams, batch=batch)
        sweep = profile_sizes(model, shape, dim, engine, threads, runs, warmup, precise)
        show_sweep(sweep, by, limit, depth, output, json_file, full_paths=full_paths)
        return
    shapes = parse_sizes(shape, dim, model)
    check_engine_name(engine)
    if streams and engine in NAMES:
        raise typer.BadParameter("is for whence's own engines", param_hint="--streams")
    if batch:
        shapes = {**shapes, **batch_shapes(load(model, shapes=shapes), batch)}
    found = (
        profile_elsewhere(
            model,
            engine,
            threads=threads,
            shapes=shapes,
            runs=runs,
            warmup=warmup,
            exact=exact,
            precise=precise,
        )
        if engine in NAMES
        else profile_here(
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
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(shown.to_json() + "\n", encoding="utf-8")
        files.append(json_file)
    console = out()
    print_profile(console, shown, by, limit, depth=depth)
    if memory:
        print_memory(console, shown)
    for file in files:
        console.print(safe(f" → {file}", "dim"), soft_wrap=True)
    if output is not None and (missing := left_out(found)):
        console.print(safe(f" {missing}", "dim"), soft_wrap=True)


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
        chosen = parse_engine(engine, threads, precise)
        # What is measured decides between kernels, too.
        rates = machine_rates(chosen, bar.show)
        executable = compile_model(
            model,
            engine=chosen,
            shapes=shapes,
            specialise=exact,
            progress=bar.compiling,
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
