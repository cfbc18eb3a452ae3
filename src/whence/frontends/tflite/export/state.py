"""Variables of a graph in a file.

1. A variable that a recurrent layer begins with, and that gets the state the layer ends with, is a
   tensor that the operator keeps (`is_variable`).
2. Every other one is a resource: `READ_VARIABLE` where it is first needed, `ASSIGN_VARIABLE` behind
   everything else, and a subgraph that `CALL_ONCE` runs before the first run, for its initial
   value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from whence.frontends.origin_metadata import OriginMetadata
from whence.frontends.tflite.export.units import behind
from whence.frontends.tflite.written_back import states_of, written_call
from whence.graph.graph import Graph
from whence.graph.node import Node, Ref, const_node
from whence.graph.state import initial_value
from whence.ops.registry import operators
from whence.ops.traits import Trait
from whence.provenance import NO_ORIGIN

if TYPE_CHECKING:
    from whence.frontends.tflite.export.graph_writer import GraphWriter

_VIEWS = operators(Trait.VIEW)
_NOTHING = OriginMetadata(NO_ORIGIN, NO_ORIGIN)
_STATES: Mapping[str, Sequence[tuple[int, int]]] = {"LSTM": ((5, 1), (6, 2)), "RNN": ((5, 1),)}
"""Where a layer takes its states, and where it gives them."""


def state_of_layers(graph: Graph) -> dict[int, list[Node]]:
    """By node of a layer: the variables of its states, where all of them are its own."""
    assigns = {str(node.attrs["variable"]): node for node in graph.assigns}
    found: dict[int, list[Node]] = {}
    for node in graph if graph.variables else ():
        places = _places(node)
        states = [_state_of(graph, node, given, made, assigns) for given, made in places]
        own = [state for state in states if state is not None]
        if own and len(own) == len(states):
            found[node.id] = own
    return found


def _places(node: Node) -> Sequence[tuple[int, int]]:
    """Where a layer takes each of its states, and where it gives it."""
    if node.op == "Call":
        return states_of(*written_call(node).subgraphs)
    return _STATES.get(node.op, ())


def _state_of(
    graph: Graph, layer: Node, given: int, made: int, assigns: Mapping[str, Node]
) -> Node | None:
    """The variable that is the layer's state and nobody else's."""
    ref = layer.input(given)
    if ref is None or made >= len(layer.outputs):
        return None
    variable = graph[behind(graph, ref, _VIEWS).node]
    if variable.op != "Variable" or ("initial" in variable.attrs and layer.op != "Call"):
        return None
    if {(user.id, index) for user, index in readers(graph, variable.ref())} != {(layer.id, given)}:
        return None
    assign = assigns.get(variable.name)
    if assign is None or behind(graph, assign.first_input, _VIEWS) != layer.ref(made):
        return None
    others = [user for user, _ in readers(graph, layer.ref(made)) if user is not assign]
    # The file's operator does not give what its cells end with, nor any state of a call.
    return None if others and (made == 2 or layer.op == "Call") else variable


def _views_to(graph: Graph, ref: Ref | None) -> Iterator[int]:
    """The views that a value is seen through."""
    while ref is not None and graph[ref.node].op in _VIEWS:
        yield ref.node
        ref = graph[ref.node].inputs[0]


def readers(graph: Graph, ref: Ref) -> Iterator[tuple[Node, int]]:
    """Who reads a value, views of it included."""
    waiting = [ref]
    while waiting:
        for user, index in graph.uses(waiting.pop()):
            if user.op in _VIEWS and index == 0:
                waiting.append(user.ref())
            else:
                yield user, index


class WrittenState:
    """The variables of one graph that are written as resources."""

    def __init__(self, writer: GraphWriter) -> None:
        self._writer = writer
        self._graph = writer.graph
        layers = state_of_layers(self._graph)
        self.of_layer = layers
        """By node of a layer, the variables that become tensors of its operator."""
        self._of_layers = {node.name for pair in layers.values() for node in pair}
        self.between = {
            view
            for layer in map(self._graph.__getitem__, layers)
            for given, _ in _places(layer)
            for view in _views_to(self._graph, layer.inputs[given])
        } | {
            view
            for node in self._graph.assigns
            if node.attrs["variable"] in self._of_layers
            for view in _views_to(self._graph, node.inputs[0])
        }
        """Views between a layer and its variables, written only if others read them."""
        self._handles: dict[str, int] = {}

    def is_end(self, node: Node) -> bool:
        """Does the node assign to a variable that an operator keeps?"""
        return node.op == "Assign" and node.attrs["variable"] in self._of_layers

    def begin(self) -> None:
        """Initial values come before everything else."""
        resources = [node for node in self._graph.variables if node.name not in self._of_layers]
        if not resources:
            return
        once = Graph("initial values", self._graph.ledger, self._graph.inference)
        for node in resources:
            value = initial_value(node)
            const = once.append(const_node(once.new_id(), value, node.name))
            attrs = {"variable": node.name}
            once.append(Node(once.new_id(), "Assign", (const.ref(),), (), attrs, name=node.name))
        number = self._writer.nested(once, once.name)
        options = {"init_subgraph_index": number}
        self._writer.subgraph.operator("CALL_ONCE", [], [], _NOTHING, options)

    def read(self, node: Node) -> None:
        """The value that a variable has when a run begins."""
        origins = self._writer.origins_of(node)
        made = self._writer.result(node.ref())
        handle = self._handle(node.name)
        self._writer.subgraph.operator("READ_VARIABLE", [handle], [made], origins)

    def finish(self) -> None:
        """New values come behind everything else: all reads are done by then."""
        assigns = [
            node for node in self._graph.assigns if node.attrs["variable"] not in self._of_layers
        ]
        values = [self._writer.tensor(node.first_input) for node in assigns]
        for node, value in zip(assigns, values, strict=True):
            handle = self._handle(str(node.attrs["variable"]))
            origins = self._writer.origins_of(node)
            self._writer.subgraph.operator("ASSIGN_VARIABLE", [handle, value], [], origins)

    def _handle(self, name: str) -> int:
        if name not in self._handles:
            self._handles[name] = self._writer.subgraph.handle(f"{name}/handle")
            options = {"container": "", "shared_name": name}
            made = [self._handles[name]]
            self._writer.subgraph.operator("VAR_HANDLE", [], made, _NOTHING, options)
        return self._handles[name]
