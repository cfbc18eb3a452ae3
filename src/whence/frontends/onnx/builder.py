"""Makes the nodes of a graph from planned operators: upgraded, typed, entered in the ledger."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from onnx import GraphProto, ValueInfoProto

from whence.errors import ModelError, WhenceError
from whence.frontends.importer import ConstantPool, located, record_earlier
from whence.frontends.naming import check_texts, quoted
from whence.frontends.onnx.microsoft.search import MICROSOFT, SEARCHES
from whence.frontends.onnx.order import running_order
from whence.frontends.onnx.plan import Planned, PlannedCall, PlannedGraph
from whence.frontends.onnx.record import OpRecord
from whence.frontends.onnx.signature import (
    check_element_types,
    check_signature,
    known_attributes,
)
from whence.frontends.onnx.types import TensorReader, value_type
from whence.frontends.onnx.upgrade import Upgrader
from whence.frontends.origin_metadata import (
    LOAD,
    HistoryEntry,
    OriginMetadata,
    read_origin_metadata,
)
from whence.graph.graph import Graph
from whence.graph.merge import (
    merge,
    substitute,
    with_declared_elements,
    without_dims,
    without_shape,
)
from whence.graph.node import Node, Ref, const_node
from whence.ops.definition import Attr, TypeQuery
from whence.ops.types.inference import Inference, form_of_query
from whence.provenance import NO_ORIGIN, EdgeKind, Ledger, Origin, Reason, Tombstone
from whence.types import UNKNOWN, ValueType

_WITH_GRAPHS = frozenset(
    {
        ("ai.onnx.preview", "FlexAttention"),
        *(("", op) for op in ("If", "Loop", "Scan", "SequenceMap")),
        *((MICROSOFT, op) for op in SEARCHES),
    }
)
"""Operators that hold graphs, or may, and are made by the code that makes those, even where a file
has none for them.
"""
_ALWAYS_TRIED = 20_000
_MOST_ATTEMPTS = 64


@dataclass(slots=True)
class OnnxReading:
    """What all graphs of one file share while it is read."""

    tensors: TensorReader
    ledger: Ledger
    inference: Inference
    add_control: Callable[
        [NodeBuilder, OpRecord, Mapping[str, PlannedGraph], OriginMetadata | None], None
    ]
    """Makes an operator that holds graphs; making those comes back here, so it is handed in."""
    forms: dict[tuple[Hashable, bool], Sequence[ValueType]] = field(default_factory=dict)
    """The output types of operators that were found right, by their forms."""
    n_earlier: int = 0
    """How many source operators the file carries from the one it was made from."""
    history: Mapping[int, HistoryEntry] = field(default_factory=dict)
    """By source operator: the rewrite that first made it part of another operator."""
    symbols: dict[str, int] = field(default_factory=dict)
    """Named dimensions that the given input shapes fix."""
    trust_shapes: bool = True
    """False when given input shapes contradict the file's: no other shape is trusted then."""
    is_static: bool = True
    """Does the file say the shapes of all inputs? Where it leaves one open, what it says of other
    shapes may be true of some calls and not of others.
    """
    trust_ranks: bool = True
    """False when an input declared as a scalar is none: no shape of the file is trusted then."""
    n_tried: int = 0
    """The operators of nested graphs that were made so far, those of failed attempts included."""

    def attempt(self, record: OpRecord, n_operators: int) -> None:
        """Note an attempt to make a nested graph of `record`. Where a loop's body does not keep a
        shape, it is made twice; loops inside loops are then made four times, eight times, ...
        """
        self.n_tried += n_operators
        limit = max(_ALWAYS_TRIED, _MOST_ATTEMPTS * len(self.ledger.sources))
        if self.n_tried > limit:
            raise record.unsupported(
                "loops inside loops change the shapes of what they carry; to find the types out"
                f" takes more than {limit} operators"
            )

    def declared(self, values: Iterable[ValueInfoProto]) -> dict[str, ValueType]:
        """The types a file states for values."""
        types: dict[str, ValueType] = {}
        values = list(values)
        check_texts([value.name for value in values])
        for value in values:
            known = value_type(value.type)
            if known is not None:
                known = substitute(known, self.symbols)
                types[value.name] = (
                    known
                    if self.trust_shapes
                    else without_dims(known)
                    if self.trust_ranks
                    else without_shape(known)
                )
        return types


class NodeBuilder:
    """Adds the operators of one graph, or of one function call inside it, to a `Graph`. It is the
    `Scope` that upgrades see.
    """

    def __init__(
        self, reading: OnnxReading, graph: Graph, upgrader: Upgrader, *, nested: bool
    ) -> None:
        self.reading = reading
        self._nested = nested
        self.graph = graph
        self.upgrader = upgrader
        self.values: dict[str, Ref | None] = {}
        """Where each named value is made; `None` for a function input that is left out."""
        self.declared: dict[str, ValueType] = {}
        self.given: set[str] = set()
        """The values that exist before any operator has run."""
        self._constants = ConstantPool(graph)
        self._constant_names: dict[Ref, str] = {}
        self._count = 0

    # ---- what upgrades may ask ----

    def fresh(self, hint: str) -> str:
        self._count += 1
        name = f"{hint}\0{self._count}"
        return name if name not in self.values else self.fresh(hint)

    def constant(self, array: np.ndarray) -> str:
        ref = self._constants.add(array)
        name = self._constant_names.get(ref)
        if name is None:
            name = self._constant_names[ref] = self.fresh("constant")
            self.values[name] = ref
        return name

    def type_of(self, value: str) -> ValueType | None:
        ref = self.values.get(value)
        return None if ref is None else self.graph.type_of(ref)

    def value_of(self, value: str) -> np.ndarray | None:
        return self.graph.const_value(self.values.get(value))

    # ---- the parts of a graph ----

    def add_input(self, name: str, known: ValueType) -> Node:
        node = self.graph.append(Node(self.graph.new_id(), "Input", (), (known,), name=name))
        self._give(name, node.ref())
        return node

    def add_const(
        self, name: str, array: np.ndarray, origins: OriginMetadata | None = None
    ) -> None:
        origin = NO_ORIGIN if origins is None else origins.origin
        node = self.graph.append(const_node(self.graph.new_id(), array, name, origin))
        self.sign(node.id, origins)
        self._give(name, node.ref())

    def add_initializers(self, proto: GraphProto, given: Container[str]) -> None:
        """The constants of a graph, less those that are given as inputs."""
        n_earlier = self.reading.n_earlier
        for tensor in proto.initializer:
            if tensor.name in given:
                continue
            origins = None
            if n_earlier and tensor.metadata_props:
                origins = read_origin_metadata(
                    {entry.key: entry.value for entry in tensor.metadata_props},
                    n_earlier,
                    tensor.name,
                )
            self.add_const(tensor.name, self.reading.tensors.read(tensor), origins)
        for sparse in proto.sparse_initializer:
            if sparse.values.name in given:
                continue
            self.add_const(sparse.values.name, self.reading.tensors.read_sparse(sparse))

    def add_output(self, name: str) -> None:
        ref = self.values.get(name)
        if ref is None:
            raise ModelError(f"the graph's output {quoted(name)} is made by nothing in it")
        self.graph.append(Node(self.graph.new_id(), "Output", (ref,), (), name=name))

    def add_constants(self, planned: Planned) -> None:
        """The operators that are constants; they stand before everything else."""
        for position, record in enumerate(planned.records):
            if _is_constant(record):
                self._operator(record, planned, position)

    def add_operators(self, planned: Planned) -> None:
        """All other operators, each after what it reads."""
        inner = planned.inner_reads() if planned.bodies else {}
        for position in running_order(planned.records, inner, self.given):
            record = planned.records[position]
            if not _is_constant(record):
                self._operator(record, planned, position)

    def _operator(self, record: OpRecord, planned: Planned, position: int) -> None:
        origins = planned.origins.get(position) if planned.origins else None
        try:
            if position in planned.calls:
                self._call(record, planned.calls[position], origins)
            elif position in planned.bodies or (record.domain, record.op) in _WITH_GRAPHS:
                self.reading.add_control(self, record, planned.bodies.get(position, {}), origins)
            else:
                self._plain(record, origins)
        except WhenceError as error:
            raise _located(error, record) from error

    def _plain(self, record: OpRecord, origins: OriginMetadata | None) -> None:
        records = self.upgrader(record, self)
        main = record.source or self.graph.new_id()
        if len(records) == 1:
            # Of what is said in other operators here, those see to the elements.
            as_written = records[0] is record and not self._nested
            self.append(
                records[0], main, self.origin_of(record, origins), check_elements=as_written
            )
            self.sign(main, origins)
            return
        # The last of those that make the operator's outputs stands for it; the others help.
        wanted = {name for name in record.outputs if name}
        keeper = max(
            (index for index, each in enumerate(records) if wanted.intersection(each.outputs)),
            default=len(records) - 1,
        )
        origin = self.origin_of(record, origins)
        self.sign(main, origins)
        self.append_all(records, main, origin, self.upgrader.rule(record), keeper)

    def append_all(
        self,
        records: Sequence[OpRecord],
        main: int,
        origin: Origin,
        rule: str,
        keeper: int | None = None,
    ) -> None:
        """Make operators that say one of the file together. The one at `keeper` is node `main` and
        stands for it, if it is among these; the others help.
        """
        for index, each in enumerate(records):
            if index == keeper:
                self.append(each, main, origin)
                continue
            helper = self.graph.new_id()
            self.append(each, helper, origin)
            self.graph.ledger.record(helper, [(main, EdgeKind.LOWER)], LOAD, rule)

    def origin_of(self, record: OpRecord, origins: OriginMetadata | None) -> Origin:
        return origins.origin if origins is not None else frozenset((record.source,))

    def sign(self, node_id: int, origins: OriginMetadata | None) -> None:
        """Enter a node that a former run of whence wrote: it continues the chain."""
        if origins is not None:
            record_earlier(
                self.graph.ledger, node_id, origins.origin, origins.folded, self.reading.history
            )

    def append(
        self,
        record: OpRecord,
        node_id: int,
        origin: Origin,
        *,
        captures: Sequence[Ref] = (),
        bodies: Mapping[str, Graph] | None = None,
        types: Sequence[ValueType] | None = None,
        check_elements: bool = False,
    ) -> Node:
        """Make the node of one operator of the newest opset. Types are inferred unless given; with
        `check_elements`, operands must have elements that its definition takes.
        """
        graph = self.graph
        outputs = list(record.outputs)
        while outputs and not outputs[-1]:
            outputs.pop()
        if not outputs:
            # An operator whose results nobody names still runs; it has one output that nobody
            # reads.
            outputs = [""]
        if _is_constant(record):
            value = record.attrs["value"]
            assert isinstance(value, np.ndarray)
            node = const_node(node_id, value, record.name, origin)
        else:
            inputs = [self._ref(name, record) for name in record.inputs]
            attrs: Mapping[str, Attr] = record.attrs
            if bodies is None:
                while inputs and inputs[-1] is None:
                    inputs.pop()
            else:
                inputs.extend(captures)
                attrs = {**attrs, "captures": len(captures)}
            op = f"{record.domain}::{record.op}" if record.domain else record.op
            found = types
            if found is None:
                query = graph.query_for(op, inputs, attrs, len(outputs))
                attrs, found = self._checked(record, query, inputs, check_elements)
            if not self.declared.keys().isdisjoint(outputs):
                found = self._declared_elements(node_id, found, outputs)
            node = Node(
                node_id, op, inputs, found, attrs, name=record.name, origin=origin, bodies=bodies
            )
        if node.is_const and graph.last is not None and not graph.last.is_const:
            graph.prepend(node)
        else:
            graph.append(node)
        for index, name in enumerate(outputs):
            if name:
                self._define(name, Ref(node_id, index))
        return node

    def _declared_elements(
        self, node_id: int, found: Sequence[ValueType], outputs: Sequence[str]
    ) -> list[ValueType]:
        """The types with element types that only the file knows. What it says of shapes is noted as
        a claim, where it says more than was found.
        """
        declared = [self.declared.get(name) for name in outputs]
        if self.reading.trust_shapes and self.reading.is_static and not self._nested:
            claims = tuple(
                kind if kind is not None and merge(known, kind) != known else None
                for known, kind in zip(found, declared, strict=True)
            )
            if any(claims):
                self.graph.claims[node_id] = claims
        return [
            with_declared_elements(known, kind) for known, kind in zip(found, declared, strict=True)
        ]

    def _checked(
        self,
        record: OpRecord,
        query: TypeQuery,
        inputs: Sequence[Ref | None],
        check_elements: bool,
    ) -> tuple[Mapping[str, Attr], Sequence[ValueType]]:
        """The attributes that the operator has, and the types of its outputs, once its form is
        found right. Layers repeat: of operators alike, one is looked at.
        """
        # In a nested graph, what does not fit may be a branch that is never taken.
        form = None if self._nested else form_of_query(query)
        known = self.reading.forms.get((form, check_elements))
        if known is not None:
            return query.attrs, known
        attrs = known_attributes(query.op, record, query.attrs)
        if attrs is not query.attrs:
            # Each operator that has others is warned of.
            form, query = None, replace(query, attrs=attrs)
        check_signature(query.op, record, inputs, query.n_outputs, attrs)
        if check_elements:
            check_element_types(query.op, record, query.types)
        found = self._infer(query)
        if form is not None:
            self.reading.forms[form, check_elements] = found
        return attrs, found

    def _infer(self, query: TypeQuery) -> Sequence[ValueType]:
        try:
            return self.reading.inference.infer(query)
        except ModelError:
            # A branch for inputs of another shape contradicts the shapes this model has; it is
            # never taken.
            if self._nested:
                return (UNKNOWN,) * query.n_outputs
            raise

    def _ref(self, name: str, record: OpRecord) -> Ref | None:
        if not name:
            return None
        try:
            return self.values[name]
        except KeyError:
            raise ModelError(
                f"{record} reads {quoted(name)}, which nothing before it makes"
            ) from None

    def _define(self, name: str, ref: Ref) -> None:
        if not name:
            raise ModelError("an input or initializer of the graph has no name")
        if name in self.values:
            raise ModelError(f"{quoted(name)} is made twice")
        self.values[name] = ref

    def _give(self, name: str, ref: Ref) -> None:
        self._define(name, ref)
        self.given.add(name)

    def _call(self, record: OpRecord, planned: PlannedCall, origins: OriginMetadata | None) -> None:
        """A local function's operators, in place of its call."""
        body = NodeBuilder(
            self.reading,
            self.graph,
            Upgrader({**self.upgrader.opsets, **planned.opsets}),
            nested=self._nested,
        )
        for index, formal in enumerate(planned.inputs):
            given = record.input(index)
            body.values[formal] = self._ref(given, record) if given else None
            body.given.add(formal)
        body.add_constants(planned)
        body.add_operators(planned)
        into: int | None = None
        for formal, name in zip(planned.outputs, record.outputs, strict=False):
            if not name:
                continue
            ref = body.values.get(formal)
            if ref is None:
                raise ModelError(
                    f"{record} calls a function that does not make its output {quoted(formal)}"
                )
            self._define(name, ref)
            into = ref.node if into is None else into
        rule = f"a call of {record.op} is its body"
        self.graph.ledger.add_tombstone(
            Tombstone(
                record.source, self.origin_of(record, origins), Reason.INLINED, LOAD, rule, into
            )
        )


def build_graph(
    reading: OnnxReading,
    planned: PlannedGraph,
    upgrader: Upgrader,
    graph: Graph,
    inputs: Mapping[str, ValueType],
    outer: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Fill `graph` with the operators of a graph of the file.

    `inputs` are all its inputs with their types, those that stand for captured values last; `outer`
    are the constants that a nested graph reads from outside, `None` for the main graph.
    """
    build = NodeBuilder(reading, graph, upgrader, nested=outer is not None)
    proto = planned.proto
    build.declared = reading.declared((*proto.value_info, *proto.output))
    build.add_initializers(proto, inputs)
    for name, array in (outer or {}).items():
        build.add_const(name, array)
    build.add_constants(planned)
    for name, known in inputs.items():
        build.add_input(name, known)
    build.add_operators(planned)
    for value in proto.output:
        build.add_output(value.name)


def _is_constant(record: OpRecord) -> bool:
    return record.op == "Constant" and not record.domain


def _located(error: WhenceError, record: OpRecord) -> WhenceError:
    return error if quoted(record.name) in str(error) else located(error, str(record))
