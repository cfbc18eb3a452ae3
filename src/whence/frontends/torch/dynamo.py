"""Graphs that `torch.compile` hands to a backend: what the user wrote, and what AOTAutograd made of
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from whence.frontends.naming import UniqueNames
from whence.frontends.torch.reader import InputKind, TracedInput, TracedOutput, TracedProgram
from whence.frontends.torch.sources import dotted, find_sources
from whence.frontends.torch.tensors import array_of

if TYPE_CHECKING:
    from torch.fx import Graph as FxGraph
    from torch.fx import GraphModule


def input_names(module: GraphModule) -> list[str]:
    """What the user calls the inputs of a graph of `torch.compile`: `x`,
    `layer1.0.conv1.weight`.
    """
    names = UniqueNames()
    found = []
    for node in module.graph.nodes:
        if node.op != "placeholder":
            continue
        source = getattr(node, "_dynamo_source", None)
        wanted = dotted(_text(source.name)) if source is not None else ""
        found.append(names.take(wanted or node.name))
    return found


def trace_graph(
    name: str,
    traced: FxGraph,
    lowered: FxGraph,
    names: Sequence[str],
    parameters: dict[int, Any],
) -> TracedProgram:
    """A graph of ATen operators without effects. `parameters` are the tensors that take the place
    of inputs, by position.
    """
    inputs = [
        (
            TracedInput(InputKind.CONSTANT, each, array_of(parameters[index]))
            if index in parameters
            else TracedInput(InputKind.GIVEN, each)
        )
        for index, each in enumerate(names)
    ]
    output = next(node for node in lowered.nodes if node.op == "output")
    outputs = [TracedOutput(f"output_{index}") for index in range(len(output.args[0]))]
    return TracedProgram(
        name, lowered, find_sources(traced, lowered), tuple(inputs), tuple(outputs), {}
    )


def _text(name: Any) -> str:
    """A source's name is a property in some versions of PyTorch, and a method in others."""
    return str(name() if callable(name) else name)
