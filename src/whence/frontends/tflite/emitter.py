"""An operator of the file while it becomes nodes: what makes these, in its graph or in one nested
in it, and what the file says of it: its tensors, their types and parameters, its options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from whence.frontends.importer import NodeImporter, OperatorOrigin
from whence.frontends.naming import quoted
from whence.frontends.origin_metadata import LOAD
from whence.frontends.tflite.quantisation import quantisation_of
from whence.frontends.tflite.records import (
    ABSENT,
    OperatorRecord,
    QuantisationRecord,
    TensorRecord,
)
from whence.frontends.tflite.scope import Assignment, GraphScope, SubgraphScope, known_results
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


class OperatorOfFile(Emitter):
    """What a mapping asks of the operator that it maps. A tensor that is not there, or an option
    that is no such value, is an error of the file that names the operator.
    """

    def __init__(
        self, subgraph: SubgraphScope, record: OperatorRecord, place: OperatorOrigin
    ) -> None:
        super().__init__(subgraph.scope, record.name, place, subgraph.path)
        self.record = record
        self.options = record.options
        self.subgraph = subgraph
        """Where it stands."""

    @property
    def n_inputs(self) -> int:
        return len(self.record.inputs)

    @property
    def n_outputs(self) -> int:
        return len(self.record.outputs)

    def has(self, index: int) -> bool:
        """Is input `index` given?"""
        return index < len(self.record.inputs) and self.record.inputs[index] != ABSENT

    def has_output(self, index: int) -> bool:
        return index < len(self.record.outputs) and self.record.outputs[index] != ABSENT

    def tensor(self, index: int) -> TensorRecord:
        """The file's record of an input that is given."""
        return self.subgraph.tensor(self.input_number(index))

    def output_tensor(self, index: int) -> TensorRecord:
        return self.subgraph.tensor(self.output_number(index))

    def type(self, index: int) -> TensorType:
        """The type of an input as it is in the file, with the shape that inference found."""
        kind = self.tensor_type_of(self.subgraph.value(self.input_number(index)))
        if kind.shape is None:
            declared = self.subgraph.declared(self.input_number(index))
            return TensorType(
                kind.dtype, None if declared.shape is None else (None,) * len(declared.shape)
            )
        return kind

    def rank(self, index: int) -> int:
        kind = self.type(index)
        if kind.shape is None:
            self.unsupported(f"the number of dimensions of input {index} is not known")
        return len(kind.shape)

    def shape(self, index: int) -> tuple[int, ...]:
        """The shape of an input that must be known."""
        shape = self.type(index).static_shape
        if shape is None:
            self.unsupported(f"the shape of input {index}, {self.type(index)}, is not known")
        return shape

    def output_type(self, index: int) -> TensorType:
        """What the file declares of an output. LiteRT does not rely on the shape, nor should a
        mapping that can do without.
        """
        return self.subgraph.declared(self.output_number(index))

    def quantisation(self, index: int) -> QuantisationRecord | None:
        """The parameters of an input that is quantised."""
        return quantisation_of(self.tensor(index)) if self.has(index) else None

    def output_quantisation(self, index: int) -> QuantisationRecord | None:
        return quantisation_of(self.output_tensor(index))

    def integer(self, option: str, default: int = 0) -> int:
        value = self.options.get(option, default)
        if not isinstance(value, int):
            self.fail(f"option {option} is {value!r}, not a whole number")
        return int(value)

    def number(self, option: str, default: float = 0.0) -> float:
        value = self.options.get(option, default)
        if not isinstance(value, int | float):
            self.fail(f"option {option} is {value!r}, not a number")
        return float(value)

    def flag(self, option: str) -> bool:
        return bool(self.options.get(option))

    def integers(self, option: str) -> tuple[int, ...]:
        value = self.options.get(option, ())
        if not isinstance(value, tuple):
            self.fail(f"option {option} is {value!r}, not a list")
        return tuple(int(item) for item in value)

    def input_number(self, index: int) -> int:
        """The number of the tensor that is this input."""
        if not self.has(index):
            self.fail(f"input {index} is missing; it has {len(self.record.inputs)}")
        return self.record.inputs[index]

    def output_number(self, index: int) -> int:
        """The number of the tensor that is this output."""
        if not self.has_output(index):
            self.fail(f"output {index} is missing; it has {len(self.record.outputs)}")
        return self.record.outputs[index]
