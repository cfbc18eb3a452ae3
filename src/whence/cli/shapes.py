"""Input shapes on the command line: given ones, and those taken for what a model leaves open."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from whence.api import load
from whence.attribution.sample_inputs import SampleInputs, guess_shapes
from whence.cli.console import err, progress, safe
from whence.errors import InputError, WhenceError
from whence.graph import Graph
from whence.graph.printer import escape

Shapes = dict[str, tuple[int, ...]]

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

_SHAPE = re.compile(r"(?:(?P<name>.+)=)?(?P<dims>\d+(x\d+)*|scalar)")


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


def mention_open_shapes(guessed: Mapping[str, tuple[int, ...]], console: Console) -> None:
    """Say which shapes were taken, as options that would fix them. `console` is the one of a
    progress bar that is being shown, which another would tear apart.
    """
    if guessed:
        options = SampleInputs({}, guessed).options
        console.print(
            safe(f"whence: the model leaves sizes open, so these are taken: {options}", "yellow"),
            soft_wrap=True,
        )


def load_with_bar(model: Path, shapes: Shapes) -> Graph:
    """The model with the sizes that it leaves open."""
    with progress(f"reading {escape(model.name)}"):
        return load(model, shapes=shapes)


def load_sized(model: Path, shapes: Shapes) -> Graph:
    """The model with every size known: what it leaves open is what `whence profile` would take.
    Where the model does not work with that, it is said, and sizes stay open.
    """
    graph = load_with_bar(model, shapes)
    guessed = guess_shapes(graph)
    if not guessed:
        return graph
    try:
        sized = load_with_bar(model, {**shapes, **guessed})
    except WhenceError as error:
        options = SampleInputs({}, guessed).options
        text = f"whence: sizes stay open, as the model does not work with {options}: {error}"
        err().print(safe(text, "yellow"), soft_wrap=True)
        return graph
    mention_open_shapes(guessed, err())
    return sized
