"""Everything a file holds, in file order and numbered, before the first node is made.

An operator that holds nested graphs is numbered before what they hold; a call of a local function
before the function's operators, which are listed once for every call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto

from whence.errors import ModelError
from whence.frontends.naming import UniqueNames, check_texts, quoted
from whence.frontends.onnx.attributes import read_attribute
from whence.frontends.onnx.metadata import program_place
from whence.frontends.onnx.record import OpRecord
from whence.frontends.onnx.types import TensorReader
from whence.frontends.origin_metadata import OriginMetadata, read_origin_metadata
from whence.ops.definition import Attr
from whence.provenance import SourceOp

_DEEPEST = 200
_MOST_INLINED = 2_000_000
FunctionKey = tuple[str, str, str]


@dataclass(slots=True)
class Planned:
    """The operators of a graph or function call. What few have is stored by position."""

    records: list[OpRecord] = field(default_factory=list)
    bodies: dict[int, dict[str, PlannedGraph]] = field(default_factory=dict)
    calls: dict[int, PlannedCall] = field(default_factory=dict)
    origins: dict[int, OriginMetadata] = field(default_factory=dict)

    def inner_reads(self) -> dict[int, tuple[str, ...]]:
        """By position, the values that nested graphs read from outside."""
        return {
            position: tuple(dict.fromkeys(name for body in bodies.values() for name in body.free))
            for position, bodies in self.bodies.items()
        }


@dataclass(slots=True)
class PlannedGraph(Planned):
    """A graph of the file."""

    proto: GraphProto = field(default_factory=GraphProto)
    free: tuple[str, ...] = ()
    """The values it reads from outside, in order of first use. Empty for the main graph."""


@dataclass(slots=True)
class PlannedCall(Planned):
    """The body of a local function, as called from one place."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    opsets: Mapping[str, int] = field(default_factory=dict)


class Planner:
    """Numbers operators and gives them unique names. `sources` is filled in file order."""

    def __init__(
        self,
        tensors: TensorReader,
        functions: Sequence[FunctionProto],
        sources: list[SourceOp],
        *,
        continues: bool,
    ) -> None:
        self.sources = sources
        self._tensors = tensors
        self._functions: dict[FunctionKey, FunctionProto] = {
            (default_domain(function.domain), function.name, function.overload): function
            for function in functions
        }
        self._n_first = len(sources)
        self._continues = continues
        self._names = UniqueNames(source.name for source in sources)
        self._positions: dict[int, list[int]] = {}
        self._sizes: dict[FunctionKey, int] = {}
        for function in functions:
            check_texts(
                (
                    function.domain,
                    function.name,
                    function.overload,
                    *function.input,
                    *function.output,
                )
            )

    def graph(
        self,
        proto: GraphProto,
        scope: str = "",
        bindings: Mapping[str, AttributeProto] | None = None,
        depth: int = 0,
    ) -> PlannedGraph:
        if depth > _DEEPEST:
            raise ModelError(
                f"graphs and functions are nested more than {_DEEPEST} deep at {quoted(scope)}"
            )
        if depth == 0 and self._functions and self._count(proto.node, ()) > _MOST_INLINED:
            raise ModelError(
                f"with its functions inlined, the model has more than {_MOST_INLINED} operators"
            )
        check_texts([proto.name, *(value.name for value in (*proto.input, *proto.output))])
        planned = PlannedGraph(proto=proto)
        self._operators(planned, proto.node, scope, bindings or {}, depth)
        if depth:
            planned.free = _free_names(planned)
        else:
            self._locate_origins()
        return planned

    def _locate_origins(self) -> None:
        """Source operators of an earlier file stand where the operators that carry them do."""
        self.sources[: self._n_first] = [
            replace(source, positions=tuple(self._positions.get(source.id, ())))
            for source in self.sources[: self._n_first]
        ]

    def _operators(
        self,
        planned: Planned,
        nodes: Sequence[NodeProto],
        scope: str,
        bindings: Mapping[str, AttributeProto],
        depth: int,
    ) -> None:
        for position, node in enumerate(nodes):
            record = self._record(planned, node, scope, position)
            key = (record.domain, record.op, node.overload) if self._functions else None
            function = self._functions.get(key) if key is not None else None
            attributes = _bound(node, bindings) if bindings or node.attribute else ()
            if function is not None and key is not None:
                planned.calls[position] = self._call(
                    record, key, function, attributes, scope, depth
                )
                continue
            for attribute in attributes:
                check_texts((attribute.name,))
                if attribute.type == AttributeProto.GRAPH:
                    record.bodies[attribute.name] = attribute.g
                    body = self.graph(
                        attribute.g, f"{scope}{record.name}/{attribute.name}/", bindings, depth + 1
                    )
                    planned.bodies.setdefault(position, {})[attribute.name] = body
                else:
                    record.attrs[attribute.name] = read_attribute(attribute, self._tensors, record)

    def _record(self, planned: Planned, node: NodeProto, scope: str, position: int) -> OpRecord:
        # A slice is a list, made in half the time that `list` takes.
        inputs, outputs = node.input[:], node.output[:]
        op, domain, given = node.op_type, default_domain(node.domain), node.name
        check_texts((op, domain, given, *inputs, *outputs))
        metadata: dict[str, str] = {}
        if node.metadata_props:
            metadata = {entry.key: entry.value for entry in node.metadata_props}
            check_texts((*metadata, *metadata.values()))
        origins = read_origin_metadata(metadata, self._n_first, given) if self._continues else None
        number = 0 if origins is not None else len(self.sources) + 1
        if not op:
            raise ModelError(f"operator {quoted(given)} does not say its type")
        wanted = given or next((name for name in outputs if name), "") or f"{op}_{number}"
        if origins is not None:
            planned.origins[position] = origins
            for source in origins.origin:
                self._positions.setdefault(source, []).append(position)
            name = wanted
        else:
            name = self._names.take(wanted)
            place = program_place(given, metadata)
            kind = f"{domain}::{op}" if domain else op
            self.sources.append(
                SourceOp(
                    number,
                    name,
                    kind,
                    scope.rstrip("/"),
                    place.module,
                    place.line,
                    place.stack,
                    tuple(outputs),
                    (position,),
                )
            )
        record = OpRecord(op, domain, name, inputs, outputs, {}, {}, number, metadata)
        planned.records.append(record)
        return record

    def _call(
        self,
        record: OpRecord,
        key: FunctionKey,
        function: FunctionProto,
        attributes: Sequence[AttributeProto],
        scope: str,
        depth: int,
    ) -> PlannedCall:
        if len(record.inputs) > len(function.input) or len(record.outputs) > len(function.output):
            raise ModelError(f"{record} has more inputs or outputs than the function it calls")
        bindings = {default.name: default for default in function.attribute_proto}
        bindings.update((attribute.name, attribute) for attribute in attributes)
        opsets = {default_domain(entry.domain): entry.version for entry in function.opset_import}
        planned = PlannedCall(
            inputs=tuple(function.input), outputs=tuple(function.output), opsets=opsets
        )
        self._operators(planned, function.node, f"{scope}{record.name}/", bindings, depth + 1)
        return planned

    def _size(self, key: FunctionKey, callers: tuple[FunctionKey, ...]) -> int:
        """How many operators a function is when everything it calls is inlined. Found before
        anything is, since it may be very many.
        """
        if key in callers:
            raise ModelError(f"function {quoted(key[1])} of domain {quoted(key[0])} calls itself")
        if len(callers) > _DEEPEST:
            raise ModelError(
                f"functions call each other more than {_DEEPEST} deep at {quoted(key[1])}"
            )
        if key not in self._sizes:
            self._sizes[key] = self._count(self._functions[key].node, (*callers, key))
        return self._sizes[key]

    def _count(self, nodes: Sequence[NodeProto], callers: tuple[FunctionKey, ...]) -> int:
        count = len(nodes)
        for node in nodes:
            key = (default_domain(node.domain), node.op_type, node.overload)
            if key in self._functions:
                count += self._size(key, callers)
            count += sum(
                self._count(attribute.g.node, callers)
                for attribute in node.attribute
                if attribute.type == AttributeProto.GRAPH
            )
        return count


def default_domain(domain: str) -> str:
    """ONNX's own domain has two names."""
    return "" if domain == "ai.onnx" else domain


def _bound(node: NodeProto, bindings: Mapping[str, AttributeProto]) -> list[AttributeProto]:
    """A node's attributes, with those that refer to an attribute of the enclosing function replaced
    by what the call gave.
    """
    attributes: list[AttributeProto] = []
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            attributes.append(attribute)
        elif attribute.ref_attr_name in bindings:
            given = AttributeProto()
            given.CopyFrom(bindings[attribute.ref_attr_name])
            given.name = attribute.name
            attributes.append(given)
    return attributes


def _free_names(planned: PlannedGraph) -> tuple[str, ...]:
    proto = planned.proto
    own = {value.name for value in proto.input}
    own.update(tensor.name for tensor in proto.initializer)
    own.update(tensor.values.name for tensor in proto.sparse_initializer)
    for record in planned.records:
        own.update(record.outputs)
    inner = planned.inner_reads()
    free: dict[str, Attr | None] = {}
    for position, record in enumerate(planned.records):
        free.update(
            (name, None)
            for name in (*record.inputs, *inner.get(position, ()))
            if name and name not in own
        )
    free.update((value.name, None) for value in proto.output if value.name not in own)
    return tuple(free)
