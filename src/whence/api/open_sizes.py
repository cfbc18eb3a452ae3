"""Programs for as many sizes of a model's open dimensions as one compilation can serve."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from whence.api.files import Shapes, StatePairs
from whence.errors import ModelError, UnsupportedError
from whence.extent import is_symbolic
from whence.types import TensorType

if TYPE_CHECKING:
    from whence.building.backend import Progress
    from whence.building.program import Program
    from whence.graph import Graph
    from whence.ops.binding import Port
    from whence.runtime.engine import Engine

NO_STATE: StatePairs = MappingProxyType({})
CallShapes = Mapping[str, Sequence[int]]
"""Of the inputs of a call."""


class CompileOptions(NamedTuple):
    """How a model is compiled, besides for which engine."""

    shapes: Shapes
    """Of inputs that the file leaves open."""
    fusion: str = "dominator"
    tune: bool = False
    progress: Progress | None = None
    specialise: bool = False
    """For the sizes of each call, not for all that the model leaves open."""
    state: StatePairs = NO_STATE


def opened_shapes(
    ports: Sequence[Port],
    inputs: CallShapes,
    engine: Engine,
    options: CompileOptions,
    closed: Collection[str] = (),
) -> CallShapes:
    """The shapes of a call, with the model's dimensions in place of sizes that it leaves open, if
    the engine can run what is compiled for that; those of `closed` are numbers.
    """
    from whence.ops.binding import Port
    from whence.ops.open_dimensions import open_dimensions

    if options.specialise or not engine.backend.opens_dimensions:
        return inputs
    opened = open_dimensions(ports, inputs)[1]
    if not closed:
        return opened
    fixed = [
        Port(name, replace(kind, shape=_closed(opened[name], inputs[name], closed)))
        if name in opened and isinstance(kind, TensorType)
        else Port(name, kind)
        for name, kind in ports
    ]
    return open_dimensions(fixed, inputs)[1]


def _closed(
    opened: Sequence[int], given: Sequence[int], closed: Collection[str]
) -> tuple[int | str, ...]:
    """What an input declares when these dimensions are numbers."""
    return tuple(
        size if not is_symbolic(dim) or str(dim) in closed else str(dim)
        for dim, size in zip(opened, given, strict=True)
    )


def build_open(
    opened: Callable[[Collection[str]], CallShapes], build: Callable[[CallShapes], Program]
) -> tuple[Program, CallShapes, frozenset[str]]:
    """The program for as many sizes as can stay open; what it was built for, and the names of the
    dimensions that had to be numbers. `opened` gives the shapes with some of them closed.
    """
    from whence.building.build import PinnedSizesError

    closed: frozenset[str] = frozenset()
    while True:
        # Opened anew each time: dimensions remember what was asked about them.
        shapes = opened(closed)
        try:
            return build(shapes), shapes, closed
        except PinnedSizesError as error:
            closed |= error.names


def explaining_sizes(
    specialise: Callable[[CallShapes], Program], read: Callable[[], Graph]
) -> Callable[[CallShapes], Program]:
    """As `specialise`; what does not work with the sizes of a call names the input, the dimension
    and a size that works. `read` gives the model with its sizes open.
    """

    def explained(inputs: CallShapes) -> Program:
        try:
            return specialise(inputs)
        except (ModelError, UnsupportedError) as error:
            from whence.building.prepare import check_sizes
            from whence.passes.shapes.working_sizes import explain_sizes

            found = explain_sizes(read(), inputs, error, check_sizes)
            if found is None:
                raise
            raise found from error

    return explained


def build(graph: Graph, engine: Engine, options: CompileOptions) -> Program:
    from whence.building.prepare import prepare_and_build
    from whence.runtime.freed_memory import return_freed_memory

    program = prepare_and_build(
        graph,
        engine.backend,
        fusion=options.fusion,
        tune=options.tune,
        progress=options.progress,
    )
    return_freed_memory()
    return program
