"""`whence profile --dim NAME=0,64,512`: how each operator's time grows with a dimension."""

from __future__ import annotations

from pathlib import Path

import typer

from whence.api import compile_model, machine_rates
from whence.attribution.dimension_sweep import SWEPT_BY, DimensionSweep, sweep_dimension
from whence.attribution.findings.measurement_quality import GUESSED
from whence.cli.console import out, progress, safe
from whence.cli.engines import parse_engine
from whence.cli.other_engines import NAMES
from whence.cli.shapes import fixed_shapes, mention_options, parse_dims
from whence.report.files import WRITERS
from whence.report.growth import growth_page, print_growth
from whence.report.html.page import page


def refuse_with_sweep(engine: str, *, exact: bool, streams: int, batch: int) -> None:
    """Options that are for one size."""
    given = {"--exact": exact, "--streams": streams, "--batch": batch, "--engine": engine in NAMES}
    for option, used in given.items():
        if used:
            what = f"{option} {engine}" if option == "--engine" else option
            raise typer.BadParameter(f"several sizes are not for {what}", param_hint="--dim")


def profile_sizes(
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
        chosen = parse_engine(engine, threads, precise)
        rates = machine_rates(chosen, bar.show)
        executable = compile_model(
            model,
            engine=chosen,
            shapes=shapes,
            progress=bar.compiling,
        )
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


def show_sweep(
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
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(shown.to_json() + "\n", encoding="utf-8")
        files.append(json_file)
    console = out()
    print_growth(console, shown, by, limit, depth)
    for file in files:
        if file.parent in (output, *([json_file.parent] if json_file else [])):
            console.print(safe(f" → {file}", "dim"), soft_wrap=True)
