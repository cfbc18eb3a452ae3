"""The graph of a loop, a condition or a continuation as a model of its own: what it is fed with,
and what is known of that before it runs.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from whence.extent import is_symbolic, names
from whence.graph import Graph, Node, Ref
from whence.graph.iterations import captures
from whence.ops.definition import Attrs
from whence.passes.shapes.propagate_types import TypeRefresher
from whence.types import DType, TensorType, ValueType


class KnownInputs(NamedTuple):
    """What is known of the inputs of a body, by number."""

    constants: Mapping[int, np.ndarray]
    """What they are in every iteration, where the model holds that as a constant."""
    sizes: Mapping[int, np.ndarray]
    """What follows from the dimensions of the enclosing program, as numbers and expressions."""

    @property
    def dimensions(self) -> list[str]:
        """The dimensions of the program around it that these depend on."""
        return sorted(
            {name for each in self.sizes.values() for item in each.flat for name in names(item)}
        )


def passed_on(body: Graph) -> dict[int, int]:
    """By output: the input that it hands on as it is."""
    places = {node.id: place for place, node in enumerate(body.inputs)}
    return {
        index: places[ref.node]
        for index, node in enumerate(body.outputs)
        for ref in node.inputs
        if ref is not None and ref.node in places
    }


def known_inputs(graph: Graph, node: Node, body: Graph) -> KnownInputs:
    """Of the inputs of a body that `node` of `graph` holds."""
    n_captures = captures(node)
    constants: dict[int, np.ndarray] = {}
    sizes: dict[int, np.ndarray] = {}
    # Captures are the last inputs of the operator and of the body.
    for back in range(1, n_captures + 1):
        ref, place = node.inputs[len(node.inputs) - back], len(body.inputs) - back
        value = graph.known_value(ref)
        if ref is None or value is None:
            continue
        if value.dtype != np.object_:
            constants[place] = value
        elif any(map(is_symbolic, value.flat)):
            sizes[place] = value
        else:
            kind = graph.type_of(ref)
            assert isinstance(kind, TensorType)
            constants[place] = value.astype(kind.dtype.numpy)
    if node.op == "Loop":
        handed_on = passed_on(body)
        for place in range(2, len(body.inputs) - n_captures):
            value = graph.const_value(node.input(place))
            # The body's first output is the condition, its inputs begin with the iteration and the
            # condition.
            if value is not None and handed_on.get(place - 1) == place:
                constants[place] = value
    return KnownInputs(constants, sizes)


def has_sizes_inside(graph: Graph) -> bool:
    """Do graphs that are nested in it contain expressions over the sizes that it is open for, other
    than as the shapes of their values?
    """
    return any(
        _is_open(node.attrs) for nested in graph.nested() if nested is not graph for node in nested
    )


def _is_open(attrs: Attrs) -> bool:
    return any(
        any(map(is_symbolic, value)) if isinstance(value, tuple) else is_symbolic(value)
        for value in attrs.values()
    )


def bound(body: Graph, known: KnownInputs, made: Sequence[int]) -> Graph:
    """A graph of its own that does what the body does, with these inputs fixed and only these
    outputs. Behind its inputs come those of `KnownInputs.dimensions`: nobody reads what is in them,
    their size is the size of a dimension.
    """
    whole = body.copy()
    places = {node.id: place for place, node in enumerate(whole.inputs)}
    names = {node_id: f"in{place}" for node_id, place in places.items()} | {
        node.id: f"out{place}" for place, node in enumerate(whole.outputs)
    }
    wanted = {whole.outputs[index].id for index in made}
    graph = Graph(whole.name, whole.ledger, whole.inference)
    arithmetic = _SizeArithmetic(graph)
    for name in known.dimensions:
        arithmetic.dimension(name)
    taken = dict(graph._signature["Input"])
    for place, sizes in known.sizes.items():
        arithmetic.make(whole.inputs[place], sizes)
    for node in whole:
        place = places.get(node.id, -1)
        if place in known.sizes or (node.op == "Output" and node.id not in wanted):
            continue
        fixed = known.constants.get(place)
        copy = Node(
            node.id,
            node.op if fixed is None else "Const",
            node.inputs,
            [
                _sized_later(kind) if fixed is None else _type_of(fixed, kind)
                for kind in node.outputs
            ],
            node.attrs,
            name=names.get(node.id, node.name),
            origin=node.origin,
            value=node.value if fixed is None else fixed,
            bodies=node.bodies,
            flags=node.flags,
        )
        graph._adopt(copy)
    given = {
        node_id: None
        for node_id, place in places.items()
        if place not in known.constants and place not in known.sizes
    }
    graph._signature["Input"] = {**given, **taken}
    graph._signature["Output"] = {node.id: None for node in whole.outputs if node.id in wanted}
    types = TypeRefresher(graph)
    types.learnt.update(node_id for node_id, place in places.items() if place in known.constants)
    for node in graph:
        types.visit(node)
    return graph


class _SizeArithmetic:
    """Computes, in a graph, what follows from the sizes of dimensions."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._known: dict[str, Ref] = {}

    def dimension(self, name: str) -> None:
        kind = TensorType(DType.U8, (name,))
        given = self._graph.append(Node(self._graph.new_id(), "Input", (), (kind,), name=name))
        self._known[name] = self._add("Shape", given.ref())

    def make(self, entry: Node, sizes: np.ndarray) -> None:
        """What an input is fed with, by a node that has its id."""
        kind = entry.type
        assert isinstance(kind, TensorType)
        parts = [
            self._size(ast.parse(str(item).replace("/", "//"), mode="eval").body)
            for item in sizes.flat
        ]
        joined = self._add("Concat", *parts, shape=(len(parts),), axis=0)
        wanted = self._const(np.array(sizes.shape, np.int64))
        shaped = self._add("Reshape", joined, wanted, shape=sizes.shape)
        made = TensorType(kind.dtype, sizes.shape)
        self._graph.append(Node(entry.id, "Cast", (shaped,), (made,), {"to": int(kind.dtype)}))

    def _size(self, node: ast.expr) -> Ref:
        match node:
            case ast.Name(id=name):
                return self._known[name]
            case ast.Constant(value=int(number)):
                return self._const(np.array([number], np.int64))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._add("Neg", self._size(operand))
            case ast.BinOp(left=left, op=operator, right=right):
                # What is divided is never negative, so that rounding needs no thought.
                return self._add(_ARITHMETIC[type(operator)], self._size(left), self._size(right))
            case ast.Call(func=ast.Name(id=function), args=[left, right]):
                return self._add(function.capitalize(), self._size(left), self._size(right))
        raise ValueError(f"no expression over dimensions: {ast.unparse(node)}")

    def _const(self, value: np.ndarray) -> Ref:
        node = Node(self._graph.new_id(), "Const", (), (TensorType.of(value),), value=value)
        return self._graph.append(node).ref()

    def _add(self, op: str, *inputs: Ref, shape: tuple[int, ...] = (1,), **attrs: int) -> Ref:
        kind = TensorType(DType.I64, shape)
        return self._graph.append(Node(self._graph.new_id(), op, inputs, (kind,), attrs)).ref()


_ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "Add",
    ast.Sub: "Sub",
    ast.Mult: "Mul",
    ast.FloorDiv: "Div",
    ast.Mod: "Mod",
}


def _type_of(value: np.ndarray, declared: ValueType) -> ValueType:
    """Of a constant, whose size bodies often do not declare."""
    return TensorType(declared.dtype, value.shape) if isinstance(declared, TensorType) else declared


def _sized_later(kind: ValueType) -> ValueType:
    """A type whose sizes are not those of the program around the body, which has dimensions of its
    own: of the same name, where the size of one is all there is.
    """
    if not isinstance(kind, TensorType) or kind.shape is None:
        return kind
    dims = (
        dim if not is_symbolic(dim) else str(dim) if str(dim).isidentifier() else None
        for dim in kind.shape
    )
    return TensorType(kind.dtype, tuple(dims))
