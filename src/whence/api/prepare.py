"""Preparing a graph: all passes over it, in place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from whence.api.files import Shapes, check_graph_argument, load

if TYPE_CHECKING:
    from whence.graph import Graph
    from whence.passes.manager import CheckLevel, Progress
    from whence.provenance import PassReport
    from whence.runtime.engine import Engine


def prepare(
    graph: Graph,
    *,
    portable: bool = False,
    engine: Engine | None = None,
    check: CheckLevel | None = None,
    progress: Progress | None = None,
) -> Graph:
    """Run all passes over the graph, in place, and return it. `portable` stays within the operators
    of the ONNX standard. `engine` is what the graph will be compiled for: it may want other layouts
    than the processor, which is the default.

    How much is verified after every pass is `check`, by default what the environment variable
    WHENCE_CHECK says.

        >>> graph = whence.prepare(whence.load("model.onnx"))
        >>> "BatchNormalization" in graph.op_counts
        False
    """
    prepare_with_report(graph, portable=portable, engine=engine, check=check, progress=progress)
    return graph


def prepare_with_report(
    graph: Graph,
    *,
    portable: bool = False,
    engine: Engine | None = None,
    check: CheckLevel | None = None,
    progress: Progress | None = None,
) -> list[PassReport]:
    """As `prepare`, and say what each pass did.

    Example:

        >>> reports = whence.prepare_with_report(whence.load("model.onnx"))
        >>> [each.changes for each in reports if each.name == "fold_batch_norm"]
        [1]
    """
    from whence.building.prepare import prepare_graph

    check_graph_argument(graph, "what is prepared is a graph, as whence.load gives it")
    preferences = None if engine is None else engine.backend.generator().preferences
    return prepare_graph(graph, preferences, portable=portable, check=check, progress=progress)


def prepare_again(
    model: str | Path | Graph, shapes: Shapes | None = None, engine: Engine | None = None
) -> Callable[[Shapes], Graph]:
    """What gives the graph of a compiled model once more, with its constants, for inputs of given
    shapes.
    """

    def again(inputs: Shapes) -> Graph:
        from whence.graph import Graph
        from whence.passes.shapes.propagate_types import fix_input_shapes

        graph = model.copy() if isinstance(model, Graph) else load(model, shapes=shapes)
        if not is_static(graph):
            graph = (
                fix_input_shapes(graph, inputs)
                if isinstance(model, Graph)
                else load(model, shapes={**(shapes or {}), **inputs})
            )
        return prepare(graph, engine=engine)

    return again


def is_static(graph: Graph) -> bool:
    """Are the shapes of all inputs known?"""
    from whence.types import TensorType

    return all(isinstance(node.type, TensorType) and node.type.is_static for node in graph.inputs)
