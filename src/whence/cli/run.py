"""`whence run`: a model on values from files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from whence.api import compile_model
from whence.attribution.sample_inputs import sample_inputs
from whence.building.export import identifier
from whence.cli.console import err, out, progress, put
from whence.cli.options import EngineOption, ModelPath, PreciseOption, check_folder, parse_engine
from whence.cli.shapes import DimOption, ShapeOption, mention_open_sizes, parse_sizes
from whence.errors import InputError
from whence.types import TensorType

_MAGIC = b"\x93NUMPY"


def run(
    model: ModelPath,
    given: Annotated[
        list[str],
        typer.Option(
            "--input",
            metavar="NAME=FILE.npy",
            help="Values of an input; others are random. May be repeated.",
        ),
    ] = [],  # noqa: B006
    shape: ShapeOption = [],  # noqa: B006  (typer reads the default, nobody changes it)
    dim: DimOption = [],  # noqa: B006
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A folder for the outputs, one .npy each.")
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads to use; 0 for every core.")] = 0,
    engine: EngineOption = "cpu",
    precise: PreciseOption = False,
) -> None:
    """Compile MODEL and run it once.

    [dim]whence run resnet50.onnx --input x=cat.npy -o out/[/dim]
    """
    check_folder(output)
    with progress("compiling"):
        executable = compile_model(
            model,
            engine=parse_engine(engine, threads, precise),
            shapes=parse_sizes(shape, dim, model),
        )
    graph = executable.graph
    read = _read(given, [node.name for node in graph.inputs])
    sample = sample_inputs(graph, {name: value.shape for name, value in read.items()})
    mention_open_sizes(sample, err())
    values = {**sample.values, **read}
    with progress("running"):
        result = executable(**values)
    results = result if isinstance(result, tuple) else (result,)
    if output is not None:
        _write(output, [node.name for node in graph.outputs], results)
    console = out()
    for node, value in zip(graph.outputs, results, strict=True):
        kind = TensorType.of(value) if isinstance(value, np.ndarray) else type(value).__name__
        put(console, f"{node.name}  {kind}  {_summary(value)}")


def _read(options: list[str], names: list[str]) -> dict[str, Any]:
    values = {}
    for option in options:
        name, _, file = option.partition("=")
        if not file:
            raise typer.BadParameter(f"'{option}' is not NAME=FILE.npy", param_hint="--input")
        if name not in names:
            raise InputError(f"the model has no input '{name}'; it takes {', '.join(names)}")
        values[name] = _read_array(Path(file))
    return values


def _read_array(file: Path) -> np.ndarray:
    if not file.exists():
        raise InputError(f"'{file}': no such file")
    try:
        with file.open("rb") as opened:
            if opened.read(len(_MAGIC)) != _MAGIC:
                raise InputError(
                    f"cannot read '{file}': it is not an .npy file, which numpy.save writes"
                )
            opened.seek(0)
            return np.asarray(np.load(opened, allow_pickle=False))
    except OSError as error:
        raise InputError(f"cannot read '{file}': {error.strerror or error}") from error
    except (ValueError, EOFError) as error:
        reason = "it is damaged or cut off"
        if "Object arrays" in str(error):
            reason = "it holds Python objects, not numbers"
        raise InputError(f"cannot read '{file}': {reason}") from error


def _write(folder: Path, names: Sequence[str], values: Sequence[Any]) -> None:
    """One file for each tensor, named after its output; a sequence has one for each item."""
    folder.mkdir(parents=True, exist_ok=True)
    taken: set[str] = set()
    for number, (name, value) in enumerate(zip(names, values, strict=True)):
        stem = identifier(name)
        while stem in taken:
            stem = f"{stem}_{number}"
        taken.add(stem)
        items = (
            {f"{stem}.{position}": item for position, item in enumerate(value)}
            if isinstance(value, list)
            else {stem: value}
        )
        for file, item in items.items():
            array = np.asarray(item)
            # Text is stored as text: a file of Python objects would run code when it is read.
            np.save(
                folder / f"{file}.npy",
                array.astype(str) if array.dtype == object else array,
                allow_pickle=False,
            )


def _summary(value: Any) -> str:
    if not isinstance(value, np.ndarray) or value.size == 0 or value.dtype.kind not in "fiu":
        return ""
    return f"min {value.min():.4g}  mean {value.mean():.4g}  max {value.max():.4g}"
