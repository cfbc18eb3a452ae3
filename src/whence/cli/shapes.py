"""Sizes on the command line: given shapes and dimensions, and what is taken for what a model leaves
open.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console

from whence.api import compile_model, load
from whence.api.files import Dims, shapes_with
from whence.attribution.guess_sizes import guesses
from whence.attribution.sample_inputs import SampleInputs, declared_shapes, taken_sizes
from whence.building.program import Program
from whence.cli.console import err, progress, put, safe
from whence.errors import InputError, WhenceError
from whence.graph import Graph
from whence.graph.escaping import escape
from whence.ops.binding import Port
from whence.ops.named_dimensions import open_sizes
from whence.ops.open_dimensions import open_dimensions
from whence.types import Dim, TensorType

Shapes = dict[str, tuple[Dim, ...]]

ShapeOption = Annotated[
    list[str],
    typer.Option(
        "--shape",
        metavar="NAME=1x3x224x224",
        help=(
            "Fix the shape of an input that the model leaves open; without NAME= where there is"
            " only one input. May be repeated."
        ),
    ),
]

DimOption = Annotated[
    list[str],
    typer.Option(
        "--dim",
        metavar="NAME=SIZE",
        help=(
            "Fix a dimension that the model leaves open, by its name in the file, in every input"
            " that has it. May be repeated."
        ),
    ),
]

_DIM = re.compile(r"(?P<name>.+)=(?P<sizes>\d+(,\d+)*)")
_SHAPE = re.compile(r"(?:(?P<name>.+)=)?(?P<dims>\d+(x\d+)*|scalar)")


def parse_sizes(shapes: list[str], dims: list[str], model: Path) -> Shapes:
    """The shapes of inputs that the options fix; sizes that they leave open have their names."""
    given = parse_dims(dims)
    for name, several in given.items():
        if len(several) > 1:
            raise typer.BadParameter(
                f"'{name}' has {len(several)} sizes; several are for `whence profile`",
                param_hint="--dim",
            )
    return fixed_shapes(shapes, {name: size for name, (size,) in given.items()}, model)


def fixed_shapes(shapes: list[str], sizes: Dims, model: Path) -> Shapes:
    """The shapes of inputs that options and sizes of dimensions fix."""
    found = parse_shapes(shapes, model)
    return dict(shapes_with(load(model), sizes, found)) if sizes else found  # type: ignore[arg-type]


def parse_dims(options: list[str]) -> dict[str, list[int]]:
    """`["batch=4", "past=0,64"]` → `{"batch": [4], "past": [0, 64]}`."""
    dims: dict[str, list[int]] = {}
    for option in options:
        found = _DIM.fullmatch(option)
        if found is None:
            raise typer.BadParameter(f"'{option}' is not NAME=SIZE", param_hint="--dim")
        if found["name"] in dims:
            raise InputError(f"two sizes are given for dimension '{found['name']}'")
        dims[found["name"]] = [int(size) for size in found["sizes"].split(",")]
    return dims


def parse_shapes(options: list[str], model: Path) -> Shapes:
    """`["x=1x3x224x224"]` → `{"x": (1, 3, 224, 224)}`. A shape without a name is that of the
    model's only input.
    """
    shapes: Shapes = {}
    for option in options:
        found = _SHAPE.fullmatch(option)
        if found is None:
            raise typer.BadParameter(
                f"'{option}' is not NAME=1x3x224x224 (NAME=scalar for no dimensions)",
                param_hint="--shape",
            )
        dims = found["dims"]
        name = found["name"] or _only_input(model, option)
        if name in shapes:
            raise InputError(f"two shapes are given for input '{name}'")
        shapes[name] = () if dims == "scalar" else tuple(int(dim) for dim in dims.split("x"))
    return shapes


def _only_input(model: Path, option: str) -> str:
    names = [node.name for node in load(model).inputs]
    if len(names) == 1:
        return names[0]
    choices = " or ".join(f"--shape {name}={option}" for name in names[:4])
    raise InputError(
        f"'{model.name}' has {len(names)} inputs: say which has the shape {option}"
        + (f", {choices}" if choices else "")
    )


def complete_shapes(shapes: Shapes, model: Path) -> dict[str, tuple[int, ...]]:
    """With sizes for what the options leave open of the inputs that they name."""
    if all(isinstance(dim, int) for shape in shapes.values() for dim in shape):
        return {name: tuple(map(int, shape)) for name, shape in shapes.items()}  # type: ignore[arg-type]
    taken = taken_sizes(load(model, shapes=shapes))
    mention_open_sizes(taken, err())
    known = {n: s for n, s in shapes.items() if n not in taken.guessed}
    return {**complete_shapes(known, model), **taken.guessed}


def mention_open_sizes(sample: SampleInputs, console: Console) -> None:
    """Say which sizes were taken, as options that would fix them. `console` is the one of a
    progress bar that is being shown, which another would tear apart.
    """
    mention_options(sample.options if sample.guessed else "", console)


def mention_options(options: str, console: Console) -> None:
    if options:
        said = "whence: the model leaves sizes open, so these are taken:"
        # Options stay in one line, to be copied.
        between = " " if len(said) + 1 + len(options) <= console.width else "\n  "
        line = safe(said, "yellow").append(between).append_text(safe(options))
        console.print(line, soft_wrap=True)


def load_with_bar(model: Path, shapes: Shapes) -> Graph:
    """The model with the sizes that it leaves open."""
    with progress(f"reading {escape(model.name)}"):
        return load(model, shapes=shapes)


class SizedModel(NamedTuple):
    """A model with the sizes that `whence profile` would take."""

    graph: Graph
    """As profiling compiles it: with dimensions where the program serves other sizes too."""
    program: Program | None
    """What is run, if the model leaves sizes open."""


def load_sized(model: Path, shapes: Shapes) -> SizedModel:
    """What `whence profile` would run. Where the model does not work with the sizes that are taken
    for what it leaves open, that is said, and they stay open.
    """
    graph = load_with_bar(model, shapes)
    if not any(open_sizes([Port(node.name, node.type) for node in graph.inputs])):
        return SizedModel(graph, None)
    failure: tuple[str, WhenceError] | None = None
    for guessed in guesses(graph):
        sample = SampleInputs({}, guessed, declared_shapes(graph))
        try:
            sized = _opened(model, shapes, graph, load_with_bar(model, {**shapes, **guessed}))
        except WhenceError as error:
            failure = failure or (sample.options, error)
        else:
            mention_open_sizes(sample, err())
            return sized
    assert failure is not None
    options, reason = failure
    text = f"whence: sizes stay open, as the model does not work with {options}: {reason}"
    put(err(), text, "yellow")
    return SizedModel(graph, None)


def _opened(model: Path, shapes: Shapes, graph: Graph, fixed: Graph) -> SizedModel:
    """The model with dimensions for the sizes that are known in `fixed` alone, but for those that
    its kernels need as numbers.
    """
    ports = [Port(node.name, node.type) for node in graph.inputs]
    sizes = {
        node.name: node.type.static_shape
        for node in fixed.inputs
        if isinstance(node.type, TensorType) and node.type.static_shape is not None
    }
    dimensions, _ = open_dimensions(ports, sizes)
    if not dimensions.sizes:
        return SizedModel(fixed, None)
    with progress("compiling") as bar:
        executable = compile_model(model, shapes=shapes, progress=bar.compiling)
        program = executable.prepare(sizes)
    left = () if program.template is None else program.template.dimensions.sizes
    opened = open_dimensions(ports, sizes, dimensions.sizes.keys() - left)[1]
    return SizedModel(load_with_bar(model, {**shapes, **opened}), program)
