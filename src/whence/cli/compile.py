"""`whence compile`: a library, a header, weights, and readable C."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from whence.api import load, prepare
from whence.cli.console import ModelPath, ShapeOption, out, parse_shapes, progress, safe
from whence.codegen.target import Target
from whence.codegen.toolchain import Toolchain
from whence.errors import UnsupportedError
from whence.fusion import ALGORITHMS
from whence.runtime.export import export, identifier
from whence.runtime.program import build_program
from whence.types import TensorType


def compile_command(
    model: ModelPath,
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to write to.", show_default=False)],
    shape: ShapeOption = [],  # noqa: B006  (typer reads the default, nobody changes it)
    target: Annotated[str, typer.Option(help=f"The machine to compile for: {', '.join(Target.names())}.")] = "host",
    fusion: Annotated[str, typer.Option(help=f"How operators are grouped: {', '.join(ALGORITHMS)}.")] = "dominator",
) -> None:
    """Compile MODEL ahead of time: a shared library, a C header, its weights, and the C it was made from.

    [dim]whence compile resnet50.onnx -o out/[/dim]
    [dim]cc main.c -Iout -Lout -lresnet50 -Wl,-rpath,out[/dim]      examples/ has a main.c
    """
    began = time.perf_counter()
    toolchain = Toolchain(Target.named(target))
    with progress("compiling") as bar:
        task = bar.task_ids[0]
        graph = load(model, shapes=parse_shapes(shape))
        opened = [node for node in graph.inputs if isinstance(node.type, TensorType) and not node.type.is_static]
        if opened:
            fixed = " ".join(f"--shape {node.name}={_example(node.type)}" for node in opened)
            raise UnsupportedError(f"'{model.name}' leaves input shapes open: fix them with {fixed}")
        program = build_program(
            prepare(graph),
            toolchain,
            fusion=fusion,
            progress=lambda name, done, total: bar.update(task, completed=done, total=total),
            load=False,
        )
        files = export(program, toolchain, output, identifier(model.stem))
    console = out()
    planned, total = program.memory.arena_bytes, program.memory.total_bytes
    console.print(safe(f"{model.name} → {output}/ in {time.perf_counter() - began:.1f} s"))
    console.print(
        safe(
            f"  {len(program.steps)} kernels, weights {program.weights.nbytes / 1e6:.1f} MB, activations {planned / 1e6:.1f} of {total / 1e6:.1f} MB"
        )
    )
    for file in files:
        console.print(safe(f"  {file}"), soft_wrap=True)


def _example(kind: object) -> str:
    shape = getattr(kind, "shape", None) or ()
    return "x".join(str(dim) if isinstance(dim, int) else "1" for dim in shape) or "scalar"
