"""Emitting the nodes that one operator of a file becomes: into the graph it stands in, or into a
graph that it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn, overload

import numpy as np

from whence.errors import ModelError, UnsupportedError
from whence.frontends.naming import quoted, shown
from whence.frontends.origin_metadata import LOAD, Passage
from whence.frontends.tflite.scope import Assignment, GraphScope, OperatorOrigin, known_results
from whence.frontends.tflite.variables import Key
from whence.graph.graph import Graph
from whence.graph.node import Node, Ref
from whence.ops.definition import Attr
from whence.provenance import EdgeKind, Reason, Tombstone
from whence.types import DType, TensorType, ValueType

_AS_IT_WAS = Passage(EdgeKind.COPY, LOAD, "read with its origin")


class Emitter:
    """Makes nodes with the origin of one operator. They enter the graph together, when it is known
    which of them bears the operator's number.
    """

    def __init__(
        self, scope: GraphScope, name: str, place: OperatorOrigin, path: tuple[int, ...]
    ) -> None:
        self.scope = scope
        self.name = name
        """The operator's type as the schema names it: `CONV_2D`, `CUSTOM:name`."""
        self.place = place
        self._path = path
        self._pending: list[Node] = []
        self._types: dict[int, tuple[ValueType, ...]] = {}
        self._is_accounted_for = False
        """Does the ledger know of the operator even if it leaves no node here?"""

    # ---- values ----

    def const(self, array: np.ndarray, name: str = "") -> Ref:
        return self.scope.const(array, name)

    def ints(self, *values: int) -> Ref:
        """A list of whole numbers, as canonical operators take axes and shapes."""
        return self.const(np.array(values, np.int64))

    def type_of(self, ref: Ref) -> ValueType:
        """The type of a value, of this operator's own as well."""
        own = self._types.get(ref.node)
        return self.scope.graph.type_of(ref) if own is None else own[ref.index]

    def tensor_type_of(self, ref: Ref) -> TensorType:
        kind = self.type_of(ref)
        if not isinstance(kind, TensorType):
            self.fail(f"a value is not a tensor but {kind}")
        return kind

    # ---- nodes ----

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
        attrs = attrs or {}
        types = [None if ref is None else self.type_of(ref) for ref in given]
        values = [None if ref is None else self.scope.value_of(ref) for ref in given]
        found = self.scope.infer(op, attrs, types, values, 1 if outputs is None else outputs)
        node = self._hold(Node(self.scope.graph.new_id(), op, given, found, attrs))
        for index, result in enumerate(known_results(op, attrs, types, values, found) or ()):
            self.scope.learn(node.ref(index), result)
        return node.ref() if outputs is None else [node.ref(index) for index in range(outputs)]

    def emit_holder(
        self,
        op: str,
        inputs: Sequence[Ref | None],
        bodies: Mapping[str, Graph],
        types: Sequence[ValueType],
        captures: int = 0,
        attrs: Mapping[str, Attr] | None = None,
    ) -> list[Ref]:
        """An operator that holds graphs (`If`, `Loop`), the last `captures` of its inputs read by
        those graphs alone; `types` are its outputs'.
        """
        node = self._hold(
            Node(
                self.scope.graph.new_id(),
                op,
                list(inputs),
                types,
                {**(attrs or {}), "captures": captures},
                bodies=bodies,
            )
        )
        return [node.ref(index) for index in range(len(types))]

    def cast(self, ref: Ref, dtype: DType) -> Ref:
        """The value as `dtype`; the same one when it is that already."""
        return (
            ref
            if self.tensor_type_of(ref).dtype is dtype
            else self.emit("Cast", [ref], {"to": int(dtype)})
        )

    def clip(self, ref: Ref, low: float, high: float) -> Ref:
        dtype = self.tensor_type_of(ref).dtype.numpy
        return self.emit(
            "Clip", [ref, self.const(np.array(low, dtype)), self.const(np.array(high, dtype))]
        )

    # ---- variables ----

    def assign(self, key: Key, ref: Ref) -> None:
        """Give a variable a new value, for the operators after this one and for the next run."""
        scope = self.scope
        if scope.is_nested:
            # Stands for the operator: the graph that this one is held in assigns.
            scope.present[key] = self.emit("Identity", [ref])
            return
        before = scope.assigned.get(key)
        if before is not None and before.claims:
            scope.graph.ledger.bury(
                Tombstone(
                    before.place.number,
                    before.place.origin,
                    Reason.DEAD,
                    LOAD,
                    "another value is assigned before the run ends",
                    None,
                )
            )
        scope.present[key] = ref
        claims = not self._pending
        scope.assigned[key] = Assignment(ref, self.name, self.place, claims)
        self._is_accounted_for = True

    # ---- graphs ----

    def inline(self, index: int, arguments: Sequence[Ref]) -> list[Ref]:
        """Read subgraph `index` into the present graph, as if its operators stood here; its
        outputs.
        """
        self.flush()
        return self.scope.read(index, arguments, self._path)

    def body(
        self,
        label: str,
        inputs: Sequence[ValueType],
        fill: Callable[[Emitter, list[Ref]], Sequence[Ref]],
    ) -> Graph:
        """A closed graph for an operator to hold. `fill` makes its nodes, emitting into it, and
        says what its outputs are.
        """
        outer = self.scope
        graph = Graph(f"{self.place.name}/{label}", outer.graph.ledger, outer.graph.inference)
        scope = GraphScope(outer.reading, graph, is_nested=True)
        inner = Emitter(scope, self.name, self.place, self._path)
        refs = [
            graph.append(Node(graph.new_id(), "Input", (), (kind,), name=f"input_{position}")).ref()
            for position, kind in enumerate(inputs)
        ]
        outputs = list(fill(inner, refs))
        inner.flush()
        for position, ref in enumerate(outputs):
            graph.append(Node(graph.new_id(), "Output", (ref,), (), name=f"output_{position}"))
        return graph

    # ---- errors ----

    def fail(self, message: str) -> NoReturn:
        """The file is wrong."""
        raise ModelError(f"{self}: {message}")

    def unsupported(self, message: str) -> NoReturn:
        """The file is right, and whence cannot do it."""
        raise UnsupportedError(f"{self}: {message}")

    def __str__(self) -> str:
        return f"operator {quoted(self.place.name)} ({shown(self.name)})"

    # ---- into the graph ----

    def flush(self) -> None:
        """Put what was emitted so far into the graph."""
        for node in self._pending:
            self._enter(node, EdgeKind.LOWER)
        self._pending.clear()

    def finish_assignment(self, key: Key, assignment: Assignment) -> None:
        """Put the `Assign` of a variable into the main graph, where everything is read."""
        scope = self.scope
        name = scope.reading.names[key]
        kind, found = scope.graph.variable(name).type, self.tensor_type_of(assignment.value)
        shape = found.static_shape
        assert isinstance(kind, TensorType)
        if found.dtype is not kind.dtype or (shape is not None and shape != kind.static_shape):
            self.unsupported(f"it assigns {found} to variable {quoted(name)}, which is {kind}")
        number = scope.reading.claim(self.place.number) if assignment.claims else 0
        node = self._hold(
            Node(
                number or scope.graph.new_id(),
                "Assign",
                [assignment.value],
                (),
                {"variable": name},
            )
        )
        self._pending.clear()
        self._enter(node, EdgeKind.COPY if assignment.claims else EdgeKind.LOWER)

    def _hold(self, node: Node) -> Node:
        node.name, node.origin = self.place.name, self.place.origin
        self._pending.append(node)
        self._types[node.id] = node.outputs
        return node

    def _enter(self, node: Node, kind: EdgeKind) -> None:
        graph = self.scope.graph
        if node.is_const:
            graph.prepend(node)
        else:
            graph.append(node)
        place, ledger = self.place, graph.ledger
        if place.number == 0 and kind is EdgeKind.COPY:
            for source in sorted(place.origin):
                passage = self.scope.reading.history.get(source, _AS_IT_WAS)
                # What the file says of this operator decides: of what became of a source, one may
                # do its work and another only hold its effect. Where it says nothing, as the tables
                # by themselves do, what carries a source is taken to do its work.
                known = (
                    EdgeKind.FOLD
                    if source in place.folded
                    else EdgeKind.COPY
                    if passage.kind is EdgeKind.FOLD
                    else passage.kind
                )
                ledger.record(node.id, [(source, known)], passage.pass_name, passage.rule)
        elif node.id != place.number:
            parents = [
                (source, EdgeKind.FOLD if source in place.folded else kind)
                for source in sorted(place.origin)
            ]
            ledger.record(node.id, parents, LOAD, f"{self.name} in canonical operators")
