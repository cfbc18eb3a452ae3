"""Makes the nodes of an operator of the file, in its graph or in one nested in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from whence.frontends.importer import NodeImporter, OperatorOrigin
from whence.frontends.naming import quoted
from whence.frontends.origin_metadata import LOAD
from whence.frontends.tflite.scope import Assignment, GraphScope, known_results
from whence.frontends.tflite.variables import Key
from whence.graph.graph import Graph
from whence.graph.node import Node, Ref
from whence.ops.definition import Attr, TypeQuery
from whence.provenance import Reason, Tombstone
from whence.types import DType, TensorType, ValueType

_LONGEST_ROW = 1 << 24


class Emitter(NodeImporter):
    """Makes the nodes of one operator, in the graph it stands in or in one that it holds."""

    def __init__(
        self, scope: GraphScope, name: str, place: OperatorOrigin, path: tuple[int, ...]
    ) -> None:
        super().__init__(scope.graph, scope.constants, place, name, scope.reading.history)
        self.scope = scope
        self._path = path
        self._is_accounted_for = False
        """Does the ledger know of the operator even if it leaves no node here?"""

    def value_of(self, ref: Ref) -> np.ndarray | None:
        return self.scope.value_of(ref)

    def learn(self, node: Node, query: TypeQuery) -> None:
        for index, result in enumerate(known_results(query, node.outputs) or ()):
            self.scope.learn(node.ref(index), result)

    def ints(self, *values: int) -> Ref:
        """A list of whole numbers, as canonical operators take axes and shapes."""
        return self.const(np.array(values, np.int64))

    def scalar(self, value: float, dtype: DType) -> Ref:
        return self.const(np.array(value, dtype.numpy))

    def row(self, values: Sequence[float], count: int) -> np.ndarray:
        """Real numbers, each so many times: a file may declare any size, and have no data for it."""
        if len(values) * count > _LONGEST_ROW:
            self.unsupported(f"it has {count} elements along an axis")
        return np.repeat(np.asarray(values, np.float32), count)

    # ---- nodes ----

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
        node = self.hold(
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

    def clip(self, ref: Ref, low: float, high: float) -> Ref:
        dtype = self.tensor_type_of(ref).dtype
        return self.op("Clip", ref, self.scalar(low, dtype), self.scalar(high, dtype))

    # ---- variables ----

    def assign(self, key: Key, ref: Ref) -> None:
        """Give a variable a new value, for the operators after this one and for the next run."""
        scope = self.scope
        if scope.is_nested:
            # Stands for the operator: the graph that this one is held in assigns.
            scope.present[key] = self.op("Identity", ref)
            return
        before = scope.assigned.get(key)
        if before is not None and before.claims:
            rule = "another value is assigned before the run ends"
            self.add_tombstone(before.place, Reason.DEAD, rule)
        scope.present[key] = ref
        claims = not self._pending
        scope.assigned[key] = Assignment(ref, self.name, self.place, claims)
        self._is_accounted_for = True

    # ---- graphs ----

    def inline(self, index: int, arguments: Sequence[Ref]) -> list[Ref]:
        """Read subgraph `index` into the present graph in place of a call; its outputs."""
        self.enter()
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
        inner.enter()
        for position, ref in enumerate(outputs):
            graph.append(Node(graph.new_id(), "Output", (ref,), (), name=f"output_{position}"))
        return graph

    # ---- into the graph ----

    def add_tombstone(self, place: OperatorOrigin, reason: Reason, rule: str) -> None:
        """Say that an operator leaves no node, and why."""
        stone = Tombstone(place.number, place.origin, reason, LOAD, rule)
        self.scope.graph.ledger.add_tombstone(stone)

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
        node = self.hold(
            Node(
                number or scope.graph.new_id(),
                "Assign",
                [assignment.value],
                (),
                {"variable": name},
            )
        )
        self.enter(node if assignment.claims else None)
