"""One operator of a file becoming nodes of a graph: what all readers share.

A reader says of each operator of its file who it is (`OperatorOrigin`) and makes a `NodeImporter`
for it, most often a class of its own that adds how the file's operands are read. What it emits has
the operator's name and origin, types that are inferred from its operands, and a place in the
ledger:

    origin = OperatorOrigin("conv1", 3, frozenset({3}))
    call = NodeImporter(graph, ConstantPool(graph), origin, "CONV_2D")
    y = call.op("Relu", call.op("Conv", x, call.const(weights)))
    call.enter(call.keep([y], 3))

Nodes enter the graph together, once it is known which of them stands for the operator and so bears
its number; the others are recorded as what it was lowered to.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, overload

import numpy as np

from whence.errors import ModelError, UnsupportedError, WhenceError
from whence.frontends.naming import quoted, shown
from whence.frontends.origin_metadata import LOAD, HistoryEntry
from whence.graph.graph import Graph
from whence.graph.node import Node, Ref, const_node
from whence.ops.definition import Attr, TypeQuery, labelled
from whence.provenance import NO_ORIGIN, EdgeKind, Ledger, Origin
from whence.types import DType, TensorType, ValueType

_SMALL = 64
_AS_IT_WAS = HistoryEntry(EdgeKind.COPY, LOAD, "read with its origin")
NO_HISTORY: Mapping[int, HistoryEntry] = {}


@dataclass(frozen=True, slots=True)
class OperatorOrigin:
    """One operator of the file as the ledger knows it."""

    name: str
    number: int
    """Its number among the source operators; 0 when it stems from several, or an earlier file."""
    origin: Origin
    folded: Origin = NO_ORIGIN
    """The part of the origin that left no run-time work in the operator, where the file says so."""


class ConstantPool:
    """The constants that a reader adds to a graph. Small unnamed ones are shared."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._shared: dict[tuple[str, tuple[int, ...], bytes], Ref] = {}

    def add(self, array: np.ndarray, name: str = "") -> Ref:
        small = not name and array.nbytes <= _SMALL and array.dtype != np.object_
        key = (str(array.dtype), array.shape, array.tobytes()) if small else None
        if key is not None and key in self._shared:
            return self._shared[key]
        ref = self._graph.prepend(const_node(self._graph.new_id(), array, name)).ref()
        if key is not None:
            self._shared[key] = ref
        return ref


class NodeImporter:
    """Makes the nodes of one operator."""

    def __init__(
        self,
        graph: Graph,
        constants: ConstantPool,
        place: OperatorOrigin,
        name: str,
        history: Mapping[int, HistoryEntry] = NO_HISTORY,
    ) -> None:
        self.graph = graph
        self.place = place
        self.name = name
        """The operator's type as the file names it: `CONV_2D`, `aten.relu`."""
        self._constants = constants
        self._history = history
        self._pending: list[Node] = []
        self._types: dict[int, tuple[ValueType, ...]] = {}

    # ---- values ----

    def const(self, array: np.ndarray, name: str = "") -> Ref:
        return self._constants.add(array, name)

    def type_of(self, ref: Ref) -> ValueType:
        """The type of a value, of this operator's own as well."""
        own = self._types.get(ref.node)
        return self.graph.type_of(ref) if own is None else own[ref.index]

    def tensor_type_of(self, ref: Ref) -> TensorType:
        kind = self.type_of(ref)
        if not isinstance(kind, TensorType):
            self.fail(f"a value is not a tensor but {kind}")
        return kind

    def value_of(self, ref: Ref) -> np.ndarray | None:
        """The value, if it is known while the file is read."""
        node = self.graph.get(ref.node)
        return node.value if node is not None and node.is_const else None

    # ---- nodes ----

    def op(self, name: str, /, *inputs: Ref | None, **attrs: Attr) -> Ref:
        """A canonical operator with one output, on values of the graph."""
        return self.emit(name, inputs, attrs)

    @overload
    def emit(
        self, op: str, inputs: Sequence[Ref | None], attrs: Mapping[str, Attr] | None = None
    ) -> Ref: ...
    @overload
    def emit(
        self,
        op: str,
        inputs: Sequence[Ref | None],
        attrs: Mapping[str, Attr] | None = None,
        *,
        outputs: int,
    ) -> list[Ref]: ...
    def emit(
        self,
        op: str,
        inputs: Sequence[Ref | None],
        attrs: Mapping[str, Attr] | None = None,
        *,
        outputs: int | None = None,
    ) -> Ref | list[Ref]:
        """A canonical operator on values of the graph. One reference, or a list of them when
        `outputs` says how many it makes.
        """
        given = list(inputs)
        while given and given[-1] is None:
            given.pop()
        query = TypeQuery(
            op,
            attrs or {},
            tuple(None if ref is None else self.type_of(ref) for ref in given),
            tuple(None if ref is None else self.value_of(ref) for ref in given),
            1 if outputs is None else outputs,
        )
        found = self.graph.inference.infer(query)
        node = self.hold(Node(self.graph.new_id(), op, given, found, query.attrs))
        self.learn(node, query)
        return node.ref() if outputs is None else [node.ref(index) for index in range(outputs)]

    def learn(self, node: Node, query: TypeQuery) -> None:
        """Called for each node that is emitted: for readers that work values out on the way."""

    def hold(self, node: Node) -> Node:
        """A node of the operator, to enter the graph with the others."""
        node.name, node.origin = self.place.name, self.place.origin
        self._pending.append(node)
        self._types[node.id] = node.outputs
        return node

    def makes(self, ref: Ref) -> bool:
        """Is the value made by a node of this operator that has not entered the graph yet?"""
        return any(node.id == ref.node for node in self._pending)

    def cast(self, ref: Ref, dtype: DType) -> Ref:
        """The value as `dtype`; the same one when it is that already."""
        return (
            ref if self.tensor_type_of(ref).dtype is dtype else self.op("Cast", ref, to=int(dtype))
        )

    # ---- into the graph ----

    def keep(self, results: Collection[Ref], number: int) -> Node | None:
        """The node that stands for the operator, the last that makes one of its results; it gets
        the number, unless that is 0. `None` when no node of the operator makes one.
        """
        made = {ref.node for ref in results}
        keeper = next((node for node in reversed(self._pending) if node.id in made), None)
        if keeper is not None and number:
            self.rename(keeper, number)
        return keeper

    def rename(self, node: Node, number: int) -> None:
        """Give a node that is not in the graph yet another id."""
        old, node.id = node.id, number
        for each in self._pending:
            each.inputs = tuple(renamed(ref, old, number) for ref in each.inputs)
        self._types[number] = self._types[old]

    def enter(self, keeper: Node | None = None) -> None:
        """Put what was emitted so far into the graph and into the ledger."""
        for node in self._pending:
            self._enter(node, EdgeKind.COPY if node is keeper else EdgeKind.LOWER)
        self._pending.clear()

    def _enter(self, node: Node, kind: EdgeKind) -> None:
        graph, place = self.graph, self.place
        if node.is_const:
            graph.prepend(node)
        else:
            graph.append(node)
        if place.number == 0 and kind is EdgeKind.COPY:
            record_earlier(graph.ledger, node.id, place.origin, place.folded, self._history)
        elif node.id != place.number:
            parents = [
                (source, EdgeKind.FOLD if source in place.folded else kind)
                for source in sorted(place.origin)
            ]
            graph.ledger.record(node.id, parents, LOAD, f"{self.name} in canonical operators")

    # ---- errors ----

    def fail(self, message: str) -> NoReturn:
        """The file is wrong."""
        raise ModelError(f"{self}: {message}")

    def unsupported(self, message: str) -> NoReturn:
        """The file is right, and whence cannot do it."""
        raise UnsupportedError(f"{self}: {message}")

    def __str__(self) -> str:
        return f"operator {quoted(self.place.name)} ({shown(self.name)})"


def add_variable(graph: Graph, name: str, value: np.ndarray) -> Ref:
    """A variable that begins with a value, as each run reads it."""
    attrs: dict[str, Attr] = {}
    if np.any(value):
        flat = value.reshape(-1)
        # One element says it all where all are equal.
        attrs["initial"] = np.array(flat[0]) if np.all(flat == flat[0]) else value
    kind = TensorType.of(value)
    return graph.prepend(Node(graph.new_id(), "Variable", (), (kind,), attrs, name=name)).ref()


def record_earlier(
    ledger: Ledger,
    node_id: int,
    origin: Origin,
    folded: Origin,
    history: Mapping[int, HistoryEntry],
) -> None:
    """Enter a node that a former run of whence wrote: it continues the chain."""
    for source in sorted(origin):
        entry = history.get(source, _AS_IT_WAS)
        # What the file says of this operator decides: of the outcomes of a source, one may do its
        # work and another only hold its effect. Where it says nothing, as tables by themselves do,
        # what carries a source is taken to do its work.
        kind = (
            EdgeKind.FOLD
            if source in folded
            else EdgeKind.COPY
            if entry.kind is EdgeKind.FOLD
            else entry.kind
        )
        ledger.record(node_id, [(source, kind)], entry.pass_name, entry.rule)


def located(error: WhenceError, operator: str) -> WhenceError:
    """The same error, naming the user's operator ("operator ...") when it does not yet."""
    text = str(error)
    if text.startswith("operator "):
        return error
    kind = UnsupportedError if isinstance(error, UnsupportedError) else ModelError
    return kind(labelled(operator, text))


def renamed(ref: Ref | None, old: int, new: int) -> Ref | None:
    return Ref(new, ref.index) if ref is not None and ref.node == old else ref
