"""State in ONNX files, which have none: variables become inputs and outputs.

A variable `h` is written as an input `h` with its initial value as the default (an initializer of
the same name, so that the first call may leave it out), and an output `h_next` with what the next
call must be given for it. The property `whence.state` of the model lists the pairs, as JSON:
`[["h", "h_next"], ...]`. whence reads such a file as a model with state again; every other runtime
sees a model whose state is in the hands of the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import ModelProto

from whence.errors import ModelError
from whence.frontends.importer import add_variable
from whence.frontends.naming import quoted
from whence.frontends.origin_metadata import read_entries
from whence.graph.graph import Graph
from whence.graph.node import Node
from whence.ops.definition import Attr
from whence.types import TensorType

STATE = "whence.state"
"""The property of a model that lists its variables."""


def read_state(text: str, model: ModelProto) -> dict[str, str]:
    """The output that has the next value of each input that is a variable."""
    pairs = dict(read_entries(text, STATE, _pair))
    inputs = {value.name for value in model.graph.input}
    outputs = {value.name for value in model.graph.output}
    stored = {tensor.name for tensor in model.graph.initializer}
    for given, made in pairs.items():
        if given not in inputs or given not in stored or made not in outputs:
            raise ModelError(
                f"metadata '{STATE}' names {quoted(given)} and {quoted(made)}, which are not an"
                " input with a default and an output"
            )
    if len(set(pairs.values())) != len(pairs):
        raise ModelError(f"metadata '{STATE}' names an output twice")
    return pairs


def _pair(entry: Any) -> tuple[str, str]:
    given, made = entry
    return str(given), str(made)


def restore_state(
    graph: Graph, pairs: Mapping[str, str], initial: Mapping[str, np.ndarray]
) -> None:
    """Make variables of the inputs that are state, and assignments of their outputs."""
    outputs = {node.name: node for node in graph.outputs}
    for node in graph.inputs:
        if node.name not in pairs:
            continue
        value = initial[node.name]
        kind = TensorType.of(value)
        variable = add_variable(graph, node.name, value)
        for user, index in graph.uses(node.ref()):
            graph.set_input(user, index, variable)
        graph.remove(node)
        output = outputs[pairs[node.name]]
        ref = output.first_input
        found = graph.type_of(ref)
        if isinstance(found, TensorType) and (
            found.dtype is not kind.dtype
            or (found.static_shape is not None and found.static_shape != kind.static_shape)
        ):
            raise ModelError(f"output {quoted(output.name)} is {found}, its variable is {kind}")
        graph.remove(output)
        assign: dict[str, Attr] = {"variable": node.name}
        graph.append(Node(graph.new_id(), "Assign", (ref,), (), assign, name=output.name))
