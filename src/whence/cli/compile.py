"""`whence compile`: a library, a header, weights, and readable C."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from whence.api import load
from whence.attribution.sample_inputs import taken_sizes
from whence.backends.cpu.backend import CpuBackend
from whence.backends.cpu.generator import build_program
from whence.backends.cpu.tune import TunedProblem
from whence.backends.opencl.export import export_opencl, plan_export
from whence.backends.opencl.generator import PREFERENCES
from whence.building.export import export, identifier
from whence.building.prepare import prepare_graph
from whence.building.tuning_records import TuningRecords
from whence.cli.console import out, progress, put
from whence.cli.options import ModelPath, check_choice, check_folder
from whence.cli.shapes import DimOption, ShapeOption, parse_sizes
from whence.codegen.target import Target, usable_cores
from whence.codegen.toolchain import Toolchain
from whence.errors import UnsupportedError
from whence.fusion import ALGORITHMS
from whence.plural import counted
from whence.report.debug_database import write_compiled_database
from whence.report.terminal import duration

_EXPORTED = ("cpu", "opencl")
"""The engines that models can be compiled for ahead of time."""
_KINDS = {
    "direct": "convolutions",
    "winograd": "transformed convolutions",
    "depthwise": "depthwise convolutions",
    "product": "matrix products",
}
"""What tuning is about, by the algorithm of the kernels."""
_HEADINGS = ("layers", "problems", "winner differs", "cost model", "winners", "predicted gain")


def compile_command(
    model: ModelPath,
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to write to.")],
    shape: ShapeOption = [],  # noqa: B006  (typer reads the default, nobody changes it)
    dim: DimOption = [],  # noqa: B006
    engine: Annotated[
        str,
        typer.Option(
            metavar="cpu|opencl",
            help="What the model will run on; opencl: a device, context and queue of the program.",
        ),
    ] = "cpu",
    target: Annotated[
        str, typer.Option(help=f"The machine to compile for: {', '.join(Target.names())}.")
    ] = "host",
    fusion: Annotated[
        str, typer.Option(help=f"How operators are grouped: {', '.join(ALGORITHMS)}.")
    ] = "dominator",
    tune: Annotated[
        bool,
        typer.Option(
            "--tune",
            help=(
                "First time candidate kernels on this machine; this and every later compilation"
                " uses the fastest."
            ),
        ),
    ] = False,
    threads: Annotated[
        int,
        typer.Option(
            min=0,
            help="Threads that the model will run on: its kernels are divided for so many; 0 for every core.",
        ),
    ] = 0,
) -> None:
    """Compile MODEL ahead of time: a shared library, a C header, its weights, the C it was made
    from, and a debug database that ties its steps to the operators of MODEL.

    [dim]whence compile resnet50.onnx -o out/[/dim]
    [dim]cc examples/run_model.c -DMODEL=resnet50 -Iout -Lout -lresnet50 -Wl,-rpath,out[/dim]
    [dim]whence compile resnet50.onnx -o out/ --engine opencl[/dim]
    [dim]whence compile resnet50.onnx -o out/ --tune[/dim]   takes minutes, once for a layer
    """
    began = time.perf_counter()
    check_folder(output)
    if tune and target != "host":
        raise UnsupportedError(
            f"kernels can be timed on this machine only: leave out --tune, or --target {target}"
        )
    check_choice(engine, _EXPORTED, "--engine")
    if tune and engine != "cpu":
        raise UnsupportedError("only kernels for the cpu can be tuned: leave out --tune")
    toolchain = Toolchain(Target.named(target))
    tuned, findings = TuningRecords(toolchain, threads or usable_cores()), None
    with progress("compiling") as bar:
        graph = load(model, shapes=parse_sizes(shape, dim, model))
        taken = taken_sizes(graph)
        if taken.guessed:
            raise UnsupportedError(
                f"'{model.name}' leaves input shapes open: fix them with {taken.options}"
            )
        read = graph.copy()
        prepare_graph(graph, PREFERENCES if engine == "opencl" else None)
        if tune:
            tuner = CpuBackend(threads=threads, toolchain=toolchain)
            findings, tuned = tuner.tune(graph, fusion=fusion, progress=bar.show), tuner.tuned
        name = identifier(model.stem)
        if engine == "opencl":
            ready = plan_export(graph, fusion=fusion)
            program = ready.program
            files = export_opencl(ready, toolchain, output, name)
        else:
            program = build_program(
                graph,
                toolchain,
                threads=threads or usable_cores(),
                fusion=fusion,
                choices=tuned.choices,
                progress=bar.compiling,
                load=False,
            )
            files = export(program, toolchain, output, name)
        files += write_compiled_database(program, model=str(model), read=read, library=files[0])
    console = out()
    if findings is not None:
        _print_findings(console, findings)
    count = sum(not step.residual for step in program.steps)
    kernels = counted(count, "kernel")
    planned, total = program.memory.arena_bytes, program.memory.total_bytes
    put(console, f"{model.name} → {output}/ in {time.perf_counter() - began:.1f} s")
    put(
        console,
        f"  {kernels}, weights {_size(program.packed.nbytes)}, activations {_size(planned)} of"
        f" {_size(total)}",
    )
    for file in files:
        put(console, f"  {file}")


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:.1f} MB" if n_bytes >= 1e6 else f"{n_bytes / 1e3:.1f} KB"


def _print_findings(console: Console, findings: Sequence[TunedProblem]) -> None:
    """By the algorithm that the cost model takes: how many problems, how many it would have run
    otherwise, and what that saves in a run.
    """
    if not findings:
        console.print("nothing to tune: no kernel of this model leaves a choice")
        return
    known = sum(not each.is_new for each in findings)
    before = f", {known} of them before" if known else ""
    console.print(f"tuned {counted(len(findings), 'problem')}{before}")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("  kernels")
    for heading in _HEADINGS:
        table.add_column(heading, justify="right")
    for kind, name in _KINDS.items():
        if rows := [each for each in findings if each.kind == kind]:
            table.add_row(*_row(name, rows))
    if len({each.kind for each in findings}) > 1:
        table.add_row(*_row("all", findings))
    console.print(table)


def _row(name: str, findings: Sequence[TunedProblem]) -> tuple[str, ...]:
    usual = sum(each.layers * each.winner.usual_nanoseconds for each in findings)
    best = sum(each.layers * each.winner.nanoseconds for each in findings)
    layers = sum(each.layers for each in findings)
    differing = sum(each.differs for each in findings)
    return (
        f"  {name}",
        str(layers),
        str(len(findings)),
        str(differing),
        duration(usual),
        duration(best),
        f"{(usual - best) / max(usual, 1):.1%}",
    )
