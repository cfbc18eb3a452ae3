"""Inputs that the caller would feed with outputs of the run before, as state of the model.

A language model takes the keys and values of earlier tokens and gives them back, longer or changed.
Bound to each other, such an input and output become a `Variable` and its `Assign`
(`graph/state.py`): the memory stays with the model, and is changed where it lies when a kernel can.
"""

from __future__ import annotations

from collections.abc import Mapping

from whence.errors import InputError
from whence.graph.graph import Graph
from whence.graph.node import Node
from whence.types import DType, TensorType


def bind_state(graph: Graph, pairs: Mapping[str, str]) -> Graph:
    """Make the named inputs variables, in place, which are zero at first and then what the named
    outputs were in the run before.
    """
    inputs = {node.name: node for node in graph.inputs}
    outputs = {node.name: node for node in graph.outputs}
    for given, made in pairs.items():
        if given not in inputs:
            raise InputError(f"state: the model has no input {given!r}; it has {_listed(inputs)}")
        if made not in outputs:
            raise InputError(f"state: the model has no output {made!r}; it has {_listed(outputs)}")
    if len(set(pairs.values())) != len(pairs):
        raise InputError("state: an output is named twice")
    for given, made in pairs.items():
        _bind(graph, inputs[given], outputs[made])
    graph.listed_inputs = tuple(each for each in graph.listed_inputs if each[0] not in pairs)
    return graph


def _bind(graph: Graph, given: Node, made: Node) -> None:
    kind, (ref,) = given.type, made.inputs
    assert ref is not None
    if not isinstance(kind, TensorType) or not kind.is_static or kind.dtype is DType.STRING:
        raise InputError(
            f"state: input {given.name!r} is {kind}, and its size must be known: give it in shapes"
        )
    found = graph.type_of(ref)
    if isinstance(found, TensorType) and (
        found.dtype is not kind.dtype or found.static_shape not in (None, kind.static_shape)
    ):
        raise InputError(f"state: output {made.name!r} is {found}, and input {given.name!r} {kind}")
    variable = Node(graph.new_id(), "Variable", (), (kind,), {}, name=given.name)
    graph.prepend(variable)
    for user, index in graph.uses(given.ref()):
        graph.set_input(user, index, variable.ref())
    graph.remove(given)
    graph.remove(made)
    attrs = {"variable": given.name}
    graph.append(Node(graph.new_id(), "Assign", (ref,), (), attrs, name=made.name))


def _listed(nodes: Mapping[str, Node]) -> str:
    names = [repr(name) for name in nodes]
    shown = ", ".join(names[:8])
    return f"{shown} and {len(names) - 8} more" if len(names) > 8 else shown or "none"
