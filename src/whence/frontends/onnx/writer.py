"""Writing a graph as an ONNX file that carries its origins."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    helper,
)

from whence.errors import UnsupportedError
from whence.frontends.files import writing
from whence.frontends.naming import UniqueNames, quoted
from whence.frontends.onnx.attributes import write_attribute
from whence.frontends.onnx.opset import LOWEST_WRITTEN, attributes_at, is_extension, lowest_opset
from whence.frontends.onnx.state import STATE
from whence.frontends.onnx.types import tensor_proto
from whence.frontends.origin_metadata import (
    HISTORY,
    SOURCES,
    TOMBSTONES,
    OriginMetadata,
    write_history,
    write_origin_metadata,
    write_sources,
    write_tombstones,
)
from whence.graph.graph import Graph
from whence.graph.node import Node, Ref
from whence.graph.state import BOUNDARY, initial_value
from whence.ops.definition import Attr
from whence.ops.neural.channels_last import OPS as CHANNELS_LAST
from whence.ops.neural.channels_last import plain_name
from whence.ops.neural.fused import OPS as SUPERNODES
from whence.ops.neural.fused import Arg, ExpandedOp, Result, expand
from whence.ops.signature import OWN_ATTRIBUTES
from whence.ops.types.onnx_node import split_name, to_type_proto
from whence.provenance import NO_ORIGIN
from whence.types import DType, TensorType, ValueType

_LOWEST_IR = 10
_LARGE = 1_500_000_000
_SMALL_TENSOR = 1024
_ALIGNMENT = 4096
_CHANNELS_LAST = frozenset(definition.name for definition in CHANNELS_LAST)
_SUPERNODES = frozenset(definition.name for definition in SUPERNODES)


def write_onnx(graph: Graph, path: str | os.PathLike[str], *, inline_limit: int = _LARGE) -> None:
    """Write the graph to `path`. Weights of more than `inline_limit` bytes in all go to a file
    beside it, `<name>.data`.
    """
    target = Path(path)
    with writing(target):
        # The file that names the weights comes last: it is there when all of them are.
        with closing(ExternalWeights(target, graph, inline_limit)) as weights:
            model = to_model(graph, weights)
        target.write_bytes(model.SerializeToString())


class ExternalWeights:
    """The file beside a model that holds its weights, when they are large."""

    def __init__(self, model: Path, graph: Graph, limit: int) -> None:
        distinct = {
            id(node.value): node.value.nbytes
            for nested in graph.nested()
            for node in nested
            if node.value is not None
        }
        self._file = (
            model.with_name(model.name + ".data").open("wb")
            if sum(distinct.values()) > limit
            else None
        )

    def place(self, proto: TensorProto, array: np.ndarray) -> bool:
        """Store a tensor beside the model and note where; `False` when it belongs inside."""
        if self._file is None or array.nbytes < _SMALL_TENSOR or array.dtype == np.object_:
            return False
        raw = tensor_proto(array, "").raw_data
        self._file.write(b"\0" * (-self._file.tell() % _ALIGNMENT))
        proto.data_location = TensorProto.EXTERNAL
        for key, value in (
            ("location", Path(self._file.name).name),
            ("offset", str(self._file.tell())),
            ("length", str(len(raw))),
        ):
            proto.external_data.add(key=key, value=value)
        self._file.write(raw)
        return True

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def to_model(graph: Graph, weights: ExternalWeights | None = None) -> ModelProto:
    """The graph as an ONNX model, in the lowest opset that can say it."""
    writing = _Writing(graph, weights)
    proto = GraphProto(name=graph.name or "graph")
    _GraphWriter(writing, graph, proto, {}, {}).write()
    opsets = [
        helper.make_opsetid(domain, version) for domain, version in sorted(writing.opsets.items())
    ]
    model = ModelProto(
        ir_version=max(_LOWEST_IR, helper.find_min_ir_version_for(opsets, ignore_unknown=True)),
        producer_name="whence",
        domain=graph.metadata.get("onnx.domain", ""),
        doc_string=graph.metadata.get("onnx.doc_string", ""),
        graph=proto,
        opset_import=opsets,
    )
    properties = {
        key: value
        for key, value in graph.metadata.items()
        if not key.startswith(("onnx.", "whence."))
    }
    if writing.state:
        properties[STATE] = json.dumps(writing.state)
    properties[SOURCES] = write_sources(graph.ledger.sources)
    properties[TOMBSTONES] = write_tombstones(graph.ledger.tombstones)
    properties[HISTORY] = write_history(graph.ledger.edges, graph.ledger.n_sources)
    helper.set_metadata_props(model, properties)
    return model


class _Writing:
    """What all graphs of one model share while it is written."""

    def __init__(self, graph: Graph, weights: ExternalWeights | None) -> None:
        self.weights = weights
        self.folded = graph.ledger.folded_origins()
        self.opsets = _opsets(graph)
        self.values = UniqueNames(mark="_")
        self.state: list[tuple[str, str]] = []
        """The names of each variable's input and output."""
        self.nodes = UniqueNames(mark="_")


def _opsets(graph: Graph) -> dict[str, int]:
    """The opset of each domain that can express every node, nested ones included."""
    opsets = {"": LOWEST_WRITTEN}
    for nested in graph.nested():
        for node in nested:
            if node.op in BOUNDARY:
                continue
            types = _input_types(nested, node)
            for step in _steps(node, types):
                inputs = [
                    types[slot.index] if isinstance(slot, Arg) else node.type
                    for slot in step.inputs
                ]
                domain, _ = split_name(step.op)
                # All steps of several have one output, of one type.
                needed = lowest_opset(step.op, step.attrs, inputs, node.outputs)
                opsets[domain] = max(opsets.get(domain, 1), needed)
    return opsets


def _input_types(graph: Graph, node: Node) -> list[ValueType | None]:
    return [None if ref is None else graph.type_of(ref) for ref in node.inputs]


def _steps(node: Node, types: Sequence[ValueType | None]) -> list[ExpandedOp]:
    """The operators of ONNX that a node is written as: itself, or those that say the same as one of
    ours.
    """
    if node.op in _SUPERNODES:
        return expand(node.op, node.attrs, types)
    if node.op not in _CHANNELS_LAST:
        attrs = {key: value for key, value in node.attrs.items() if key not in OWN_ATTRIBUTES}
        formal = len(node.inputs) - _captures(node)
        return [ExpandedOp(node.op, tuple(map(Arg, range(formal))), attrs)]
    first = types[0]
    rank = first.rank if isinstance(first, TensorType) else None
    if rank is None:
        raise UnsupportedError(
            f"operator {quoted(node.name)} works channels last on a tensor of unknown rank, which"
            " ONNX cannot say"
        )
    others = [Arg(index) for index, kind in enumerate(types) if kind is not None and index]
    return [
        ExpandedOp("Transpose", (Arg(0),), {"perm": (0, rank - 1, *range(1, rank - 1))}),
        ExpandedOp(plain_name(node.op), (Result(0), *others), node.attrs),
        ExpandedOp("Transpose", (Result(1),), {"perm": (0, *range(2, rank), 1)}),
    ]


def _captures(node: Node) -> int:
    count = node.attrs.get("captures", 0)
    return count if node.bodies and isinstance(count, int) else 0


def _result_name(node: Node) -> str:
    return node.name if node.op == "Output" else str(node.attrs["variable"]) + "_next"


_NO_ORIGINS = OriginMetadata(NO_ORIGIN, NO_ORIGIN)


class _GraphWriter:
    """Writes one graph. `captured` are the names, outside, of the values its last inputs stand for;
    `shared` those of outer constants.
    """

    def __init__(
        self,
        writing: _Writing,
        graph: Graph,
        proto: GraphProto,
        captured: Mapping[int, str],
        shared: Mapping[int, str],
        *,
        keeps_names: bool = False,
    ) -> None:
        self._keeps_names = keeps_names
        """Its inputs and outputs are known by their names."""
        self._writing = writing
        self._graph = graph
        self._proto = proto
        self._captured = captured
        self._shared = dict(shared)
        self._names: dict[Ref, str] = {}

    def write(self) -> None:
        copies = self._name_ends()
        for node in self._graph:
            if node.op == "Const":
                self._const(node)
            elif node.op not in BOUNDARY:
                self._operator(node)
        for ref, name in copies:
            self._node("Identity", name, [self._names[ref]], [name], {}, _NO_ORIGINS)

    def _name_ends(self) -> list[tuple[Ref, str]]:
        """Give inputs and outputs their names. Returns the outputs that must be copies: of inputs,
        constants and other outputs.
        """
        graph, writing = self._graph, self._writing
        for node in graph.inputs:
            outside = self._captured.get(node.id)
            self._names[node.ref()] = outside if outside is not None else self._end_name(node.name)
            if outside is None:
                self._proto.input.append(_value_info(self._names[node.ref()], node.type))
        for node in graph.variables:
            name = self._names[node.ref()] = writing.values.take(node.name)
            self._proto.input.append(_value_info(name, node.type))
            self._tensor(name, np.ascontiguousarray(initial_value(node)), {})
        copies: list[tuple[Ref, str]] = []
        for node in graph.results:
            ref = node.inputs[0]
            if ref is None:
                raise UnsupportedError(f"the graph's output {quoted(node.name)} reads nothing")
            name = self._end_name(_result_name(node))
            if node.op == "Assign":
                variable = graph.variable(str(node.attrs["variable"]))
                writing.state.append((self._names[variable.ref()], name))
            self._proto.output.append(_value_info(name, graph.type_of(ref)))
            if ref in self._names or graph[ref.node].op in BOUNDARY:
                copies.append((ref, name))
            else:
                self._names[ref] = name
        return copies

    def _end_name(self, name: str) -> str:
        return name if self._keeps_names else self._writing.values.take(name)

    def _const(self, node: Node) -> None:
        if node.value is None:
            raise UnsupportedError(
                f"constant {quoted(node.name)} has no data and cannot be written"
            )
        known = self._shared.get(id(node.value))
        if known is not None and not node.origin:
            self._names[node.ref()] = known
            return
        name = self._writing.values.take(node.name or f"const_{node.id}")
        self._names[node.ref()] = self._shared[id(node.value)] = name
        origins = write_origin_metadata(*self._origins(node)) if node.origin else {}
        self._tensor(name, node.value, origins)

    def _tensor(self, name: str, array: np.ndarray, origins: dict[str, str]) -> None:
        weights = self._writing.weights
        proto = self._proto.initializer.add()
        proto.name = name
        if weights is not None and weights.place(proto, array):
            proto.data_type = int(DType.of(array))
            proto.dims.extend(array.shape)
        else:
            proto.CopyFrom(tensor_proto(array, name))
        helper.set_metadata_props(proto, origins)

    def _operator(self, node: Node) -> None:
        outputs = [self._output_name(node, index) for index in range(len(node.outputs))]
        inputs = ["" if ref is None else self._names[ref] for ref in node.inputs]
        origins = self._origins(node)
        steps = _steps(node, _input_types(self._graph, node))
        results = [self._writing.values.take(f"{node.name}/{step.op}") for step in steps[:-1]]
        for step, made in zip(steps, [*([name] for name in results), outputs], strict=True):
            arguments = [
                inputs[slot.index]
                if isinstance(slot, Arg)
                else results[slot.step]
                if isinstance(slot, Result)
                else self._scalar(node, slot.value)
                for slot in step.inputs
            ]
            name = node.name if made is outputs else made[0]
            proto = self._node(step.op, name, arguments, made, step.attrs, origins)
        captured = inputs[len(inputs) - _captures(node) :]
        for name, body in node.bodies.items():
            self._body(proto, name, body, captured, keeps_names=is_extension(node.op))

    def _origins(self, node: Node) -> OriginMetadata:
        folded = self._writing.folded.get(node.id, NO_ORIGIN)
        return OriginMetadata(node.origin, folded & node.origin)

    def _output_name(self, node: Node, index: int) -> str:
        ref = node.ref(index)
        if ref not in self._names:
            base = node.name or f"{node.op}_{node.id}"
            self._names[ref] = self._writing.values.take(base if index == 0 else f"{base}_{index}")
        return self._names[ref]

    def _scalar(self, node: Node, value: float) -> str:
        dtype = node.type.dtype if isinstance(node.type, TensorType) else DType.F32
        name = self._writing.values.take(f"{node.name}/scalar")
        self._tensor(name, np.array(value, dtype.numpy), {})
        return name

    def _body(
        self,
        proto: NodeProto,
        name: str,
        body: Graph,
        captured: Sequence[str],
        *,
        keeps_names: bool,
    ) -> None:
        attribute = proto.attribute.add(name=name, type=AttributeProto.GRAPH)
        attribute.g.name = body.name or name
        ends = body.inputs[len(body.inputs) - len(captured) :]
        outside = {node.id: value for node, value in zip(ends, captured, strict=True)}
        _GraphWriter(
            self._writing, body, attribute.g, outside, self._shared, keeps_names=keeps_names
        ).write()

    def _node(
        self,
        op: str,
        name: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        attrs: Mapping[str, Attr],
        origins: OriginMetadata,
    ) -> NodeProto:
        domain, plain = split_name(op)
        proto: NodeProto = self._proto.node.add(
            op_type=plain,
            domain=domain,
            name=self._writing.nodes.take(name or plain),
            input=inputs,
            output=outputs,
        )
        for key, value in attributes_at(op, attrs, self._writing.opsets[domain]).items():
            write_attribute(proto, key, value)
        helper.set_metadata_props(proto, write_origin_metadata(*origins))
        return proto


def _value_info(name: str, kind: ValueType) -> ValueInfoProto:
    info = ValueInfoProto(name=name)
    if not (isinstance(kind, TensorType) and kind.dtype is DType.UNDEFINED):
        info.type.CopyFrom(to_type_proto(kind))
    return info
