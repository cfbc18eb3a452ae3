"""From a graph as it was read to a program: the passes as the backend wants them, then the build."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from whence.building.backend import Backend, Progress
from whence.building.build import build, check_graph_operands
from whence.building.packed_weights import PackedWeights
from whence.building.program import Program
from whence.frontends.files import without_collection
from whence.graph import Graph
from whence.passes.manager import CheckLevel, run_passes
from whence.passes.plugins import portable_passes, prepare_passes
from whence.passes.preferences import Preferences
from whence.provenance import PassReport


def prepare_graph(
    graph: Graph,
    preferences: Preferences | None = None,
    *,
    portable: bool = False,
    check: CheckLevel | None = None,
    progress: Progress | None = None,
) -> list[PassReport]:
    """Run all passes over the graph, in place: as a backend prefers them, or those that stay within
    the operators of the ONNX standard. Returns what each did.
    """
    passes = portable_passes() if portable else prepare_passes(preferences)
    with without_collection():
        return run_passes(graph, passes, check=check, progress=progress)


def check_sizes(graph: Graph) -> None:
    """Raises what building the graph, which is changed, would raise for the sizes of its values."""
    prepare_graph(graph)
    check_graph_operands(graph)


def prepare_and_build(
    graph: Graph,
    backend: Backend,
    *,
    fusion: str = "dominator",
    tune: bool = False,
    progress: Progress | None = None,
    weights_ready: Callable[[PackedWeights], None] | None = None,
) -> Program:
    """The program of a graph, which is changed on the way and keeps no constant that only kernels
    read. `weights_ready` is as `build` has it.
    """
    prepare_graph(graph, backend.generator().preferences)
    if tune:
        backend.tune(graph, fusion=fusion, progress=progress)
    program = backend.best_program(
        graph, partial(build, graph, fusion=fusion, progress=progress, weights_ready=weights_ready)
    )
    program.release_constants()
    return program
