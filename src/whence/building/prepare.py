"""From a graph as it was read to a program: the passes as the backend wants them, then the build."""

from __future__ import annotations

from whence.building.backend import Backend, Progress
from whence.building.build import build_for
from whence.building.program import Program
from whence.frontends.files import without_collection
from whence.graph import Graph
from whence.passes.manager import run_passes
from whence.passes.plugins import prepare_passes


def prepare_and_build(
    graph: Graph,
    backend: Backend,
    *,
    fusion: str = "dominator",
    tune: bool = False,
    progress: Progress | None = None,
) -> Program:
    """The program of a graph, which is changed on the way and keeps no constant that only kernels
    read.
    """
    with without_collection():
        run_passes(graph, prepare_passes(backend.generator().preferences))
    if tune:
        backend.tune(graph, fusion=fusion, progress=progress)
    program = build_for(graph, backend, fusion=fusion, progress=progress)
    program.release_constants()
    return program
