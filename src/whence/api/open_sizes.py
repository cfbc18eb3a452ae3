"""Programs for as many sizes of a model's open dimensions as one compilation can serve."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from time import perf_counter_ns
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from whence.api.files import OutputAxes, Shapes, StatePairs
from whence.building.build_open import CallShapes
from whence.errors import ModelError, UnsupportedError

if TYPE_CHECKING:
    from whence.building.backend import Progress
    from whence.building.packed_weights import PackedWeights
    from whence.building.program import Program
    from whence.graph import Graph
    from whence.ops.binding import Port
    from whence.runtime.engine import Engine


class CompileOptions(NamedTuple):
    """How a model is compiled, besides for which engine."""

    shapes: Shapes
    """Of inputs that the file leaves open."""
    fusion: str = "dominator"
    tune: bool = False
    progress: Progress | None = None
    specialise: bool = False
    """For the sizes of each call, not for all that the model leaves open."""
    hot: bool = False
    """Also for sizes that much time is spent in, in the background."""
    state: StatePairs = MappingProxyType({})
    only_last: OutputAxes = MappingProxyType({})


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
    from whence.ops.open_dimensions import open_dimensions

    if options.specialise or not engine.backend.opens_dimensions:
        return inputs
    return open_dimensions(ports, inputs, closed)[1]


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


def build(
    graph: Graph,
    engine: Engine,
    options: CompileOptions,
    weights_ready: Callable[[PackedWeights], None] | None = None,
) -> Program:
    from whence.building.prepare import prepare_and_build
    from whence.runtime.freed_memory import return_freed_memory

    began = perf_counter_ns()
    program = prepare_and_build(
        graph,
        engine.backend,
        fusion=options.fusion,
        tune=options.tune,
        progress=options.progress,
        weights_ready=weights_ready,
    )
    program.compile_ns = perf_counter_ns() - began
    return_freed_memory()
    return program
