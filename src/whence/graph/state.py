"""State: values that outlive a run.

    %3 f32[1,8] = Variable()  # h
    %9 f32[1,8] = Add(%3, %2)
    %11 = Assign(%9) variable=h

A `Variable` is the value that its name has when a run begins, at every place of the graph: reads
need no order among each other. An `Assign` says what it will be when the next run begins; it reads
one value, has no outputs, and takes effect when everything else is done. So order is part of the
data flow: who wants the new value in the same run reads what is assigned, who wants the old one
reads the variable, and no rewrite can confuse the two. There is at most one `Assign` for a
variable; of several in a file the last counts. Whether the new value may be written over the old
one is decided where memory is planned, which knows when the last step has read it.

The type of a variable is static and never changes. Its initial value is the attribute `initial`, an
array of that type or a single element for all; without it, it is zero.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from whence.errors import InputError
from whence.graph.display_name import display_name
from whence.graph.node import Node
from whence.ops.definition import Value
from whence.ops.registry import operators
from whence.ops.traits import Trait
from whence.types import DType, TensorType, ValueType

if TYPE_CHECKING:
    from whence.graph.graph import Graph

State: TypeAlias = MutableMapping[str, Value]
"""The present value of each variable, by name."""

GIVEN = operators(Trait.GIVEN)
"""Operators whose values are there when a run begins. They stay even if nothing reads them."""
SOURCES = operators(Trait.SOURCE)
"""Operators whose values are there before anything runs."""
BOUNDARY = operators(Trait.BOUNDARY)
"""Nodes that compute nothing: what a run is given, and what it hands on."""
NOT_FROM_A_FILE = BOUNDARY - {"Assign"}
"""Nodes that are no source operators, even if a file lists them."""


def list_order(op: str) -> int:
    """In a graph that is written by hand constants come first, then inputs, variables, operators
    and outputs.
    """
    if op in SOURCES:
        return 0 if op == "Const" else 1 if op == "Input" else 2
    return 4 if op == "Output" else 3


def initial_value(node: Node) -> np.ndarray:
    """What a variable is before the first run; not to be written to."""
    kind = _static(node.type)
    initial = node.attrs.get("initial")
    if initial is None:
        return np.zeros(kind.static_shape or (), kind.dtype.numpy)
    assert isinstance(initial, np.ndarray)
    return np.broadcast_to(initial, kind.static_shape or ())


def initial_state(graph: Graph) -> dict[str, Value]:
    """The state before the first run."""
    return {node.name: initial_value(node) for node in graph.variables}


def fitting(node: Node, value: Value, kind: ValueType | None = None) -> np.ndarray:
    """The value, which must have the type of the variable that `node` is, or assigns to."""
    kind = _static(kind or node.type)
    if (
        not isinstance(value, np.ndarray)
        or value.dtype != kind.dtype.numpy
        or value.shape != kind.static_shape
    ):
        found = TensorType.of(value) if isinstance(value, np.ndarray) else "not there"
        raise InputError(
            f"operator {display_name(node)}: its variable is {kind}, the value is {found}"
        )
    return value


def _static(kind: ValueType) -> TensorType:
    assert isinstance(kind, TensorType)
    return kind


def why_state_is_wrong(graph: Graph, nodes: Sequence[Node], *, is_outermost: bool) -> str:
    """What is wrong with the variables and assignments of a graph, or the empty string."""
    types: dict[str, ValueType] = {}
    assigned: set[str] = set()
    for node in nodes:
        if not node.is_a("Variable", "Assign"):
            continue
        if not is_outermost:
            return f"{node!r} stands in a nested graph, which cannot have state of its own"
        if node.op == "Variable":
            why = _why_variable(node)
            if why or node.name in types:
                return why or f"two variables are called {node.name!r}"
            types[node.name] = node.type
            continue
        name = node.attrs.get("variable")
        if not isinstance(name, str) or name not in types:
            return f"{node!r} assigns to {name!r}, and no variable before it is called so"
        if name in assigned:
            return f"variable {name!r} is assigned to twice"
        assigned.add(name)
        why = _why_assign(graph, node, types[name])
        if why:
            return why
    return ""


def _why_variable(node: Node) -> str:
    if node.inputs or len(node.outputs) != 1 or not node.name:
        return f"{node!r} is no variable: it needs a name, one output and no input"
    kind = node.type
    if not isinstance(kind, TensorType) or not kind.is_static or kind.dtype in _UNSIZED:
        return f"variable {node.name!r} is {kind}: its size must be known"
    initial = node.attrs.get("initial")
    if initial is not None and (
        not isinstance(initial, np.ndarray)
        or initial.dtype != kind.dtype.numpy
        or initial.shape not in ((), kind.static_shape)
    ):
        return f"the initial value of variable {node.name!r}, {kind}, is not of its type"
    return ""


_UNSIZED = (DType.STRING, DType.UNDEFINED)


def _why_assign(graph: Graph, node: Node, kind: ValueType) -> str:
    if len(node.inputs) != 1 or node.inputs[0] is None or node.outputs:
        return f"{node!r} is no assignment: it reads one value and has no outputs"
    found = graph.type_of(node.inputs[0])
    assert isinstance(kind, TensorType)
    fits = (
        isinstance(found, TensorType)
        and found.dtype is kind.dtype
        and found.static_shape in (None, kind.static_shape)
    )
    return "" if fits else f"{node!r} assigns {found} to a variable that is {kind}"


# ---- inputs that the caller would feed with outputs of the run before, as state ----


def bind_state(graph: Graph, pairs: Mapping[str, str]) -> Graph:
    """Make the named inputs variables, in place, which are zero at first and then what the named
    outputs were in the run before.

    A language model takes the keys and values of earlier tokens and gives them back, longer or
    changed. As a variable and its `Assign`, the memory stays with the model, and is changed where
    it lies when a kernel can.
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
