"""One graph written as one subgraph: units in order, dequantised values where needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from whence.errors import UnsupportedError
from whence.frontends.naming import quoted
from whence.frontends.origin_metadata import OriginMetadata, merged_origins
from whence.frontends.tflite.export import exports
from whence.frontends.tflite.export.call import ExportCall
from whence.frontends.tflite.export.codes import Codes, codes_of, find_codes
from whence.frontends.tflite.export.composites import Composite, find_composites
from whence.frontends.tflite.export.formulas import formula_exporter
from whence.frontends.tflite.export.state import WrittenState
from whence.frontends.tflite.export.tidy import tidy
from whence.frontends.tflite.export.units import (
    VIEWS,
    ExportUnit,
    behind,
    dequantise_before,
    find_units,
)
from whence.frontends.tflite.export.writing import Buffers, Subgraph
from whence.frontends.tflite.records import CIRCLE, SubgraphRecord
from whence.frontends.tflite.tensors import DTYPES
from whence.graph.graph import Graph
from whence.graph.node import Node, Ref
from whence.graph.state import BOUNDARY
from whence.ops.attributes import get_ints
from whence.provenance import NO_ORIGIN, Origin, union_of
from whence.types import TensorType

Nested = Callable[[Graph, str], int]
"""Writes a nested graph as a subgraph of its own and says its number."""


class GraphWriter:
    """Writes one graph. `nested` writes the graphs that operators hold.

    `folded` has, by node, the part of its origin that is no work of its own.
    """

    def __init__(
        self,
        graph: Graph,
        buffers: Buffers,
        form: str,
        nested: Nested,
        folded: Mapping[int, Origin],
    ) -> None:
        self.graph = graph
        self.subgraph = Subgraph(buffers)
        self.is_circle = form == CIRCLE
        self.format_name = "Circle" if self.is_circle else "TFLite"
        self.nested = nested
        self._folded = folded
        self._codes = find_codes(graph)
        self._units = find_units(graph)
        self._composites = {
            root: each for root, each in find_composites(graph).items() if self._is_plain(root)
        }
        self._inside = {node.id for each in self._composites.values() for node in each.inside}
        self.state = WrittenState(self)
        self._tensors: dict[Ref, int] = {}
        self._in_codes: dict[Ref, int] = {}
        self._before_views: dict[Ref, int] = {}
        self._names: dict[Ref, str] = {}
        self._origins = union_of(
            node.origin
            for node in graph
            if node.op not in ("Const", "DequantizeLinear", "Identity")
        )

    def write(self, name: str, *, is_main: bool = True) -> SubgraphRecord:
        inputs = self._begin()
        self.state.begin()
        for node in self.graph:
            unit = self._units.get(node.id, ExportUnit(node))
            if unit.node is node and not self._is_lazy(node):
                self._operator(unit)
        outputs = [self.tensor(node.first_input) for node in self.graph.outputs]
        if not is_main:
            outputs = self._distinct(outputs)
        self.state.finish()
        tidy(self.subgraph, outputs)
        return self.subgraph.record(name, inputs, outputs)

    def _distinct(self, outputs: list[int]) -> list[int]:
        """Outputs of a called subgraph, all different tensors: LiteRT fills only one of equals."""
        found: list[int] = []
        for tensor, node in zip(outputs, self.graph.outputs, strict=True):
            ref = node.first_input
            kind = self.graph.type_of(ref)
            if tensor in found and isinstance(kind, TensorType):
                made = self.subgraph.tensor(node.name, kind, self._codes.get(ref))
                self._reshape(node, tensor, made, kind)
                tensor = made
            found.append(tensor)
        return found

    def _begin(self) -> list[int]:
        """Inputs get their tensors, outputs their names."""
        self.subgraph.reserve([node.name for node in self.graph.outputs])
        inputs = []
        for node in self.graph.inputs:
            self.subgraph.release(node.name)
            self._tensors[node.ref()] = self.subgraph.tensor(
                node.name, node.type, self._codes.get(node.ref())
            )
            inputs.append(self._tensors[node.ref()])
        for node in self.graph.outputs:
            self._names.setdefault(self._behind(node.first_input), node.name)
        return inputs

    def _behind(self, ref: Ref) -> Ref:
        """The value that a value is a mere copy of."""
        return behind(self.graph, ref, ("Identity",))

    def _is_plain(self, node_id: int) -> bool:
        """Is it written as it stands, without quantisation? An activation after it does no harm."""
        unit = self._units.get(node_id)
        return unit is None or (unit.quantise is None and unit.node.id == node_id)

    def _is_lazy(self, node: Node) -> bool:
        """Written when first asked for: often all readers take the codes, or the copy's source."""
        if (
            node.op in BOUNDARY
            or node.op in ("DequantizeLinear", "Identity")
            or node.id in self._inside
            or node.id in self.state.between
        ):
            return True
        return (
            node.op in VIEWS
            and isinstance(kind := node.type, TensorType)
            and kind.dtype.is_float
            and dequantise_before(self.graph, node.ref()) is not None
        )

    def _operator(self, unit: ExportUnit) -> None:
        composite = self._composites.get(unit.node.id)
        if composite is not None and unit.last is unit.node:
            self._composite(unit.node, composite)
            return
        exporter = exports().get(unit.node.op) or formula_exporter(unit.node.op)
        if exporter is None:
            raise UnsupportedError(
                f"operator {quoted(unit.node.name)} ({unit.node.op}) cannot be written as"
                f" {self.format_name}: there is nothing like it in that format"
            )
        exporter(ExportCall(self, unit))
        if unit.view is not None:
            self._view(unit.view, self.before_view(unit), self.result(unit.last.ref()))

    def before_view(self, unit: ExportUnit) -> int:
        """The codes that an operator makes before they are viewed otherwise."""
        inner = unit.activation or unit.bias or unit.node
        if inner.ref() not in self._before_views:
            assert unit.quantise is not None
            kind, coded = inner.type, unit.quantise.type
            assert isinstance(kind, TensorType)
            assert isinstance(coded, TensorType)
            name = f"{unit.quantise.name}/codes"
            self._before_views[inner.ref()] = self.subgraph.tensor(
                name, TensorType(coded.dtype, kind.shape), codes_of(self.graph, unit.quantise)
            )
        return self._before_views[inner.ref()]

    def _view(self, node: Node, tensor: int, made: int) -> None:
        kind = node.type
        assert isinstance(kind, TensorType)
        if node.op == "Transpose":
            order = get_ints(
                node.attrs, "perm", tuple(reversed(range(len(self.subgraph.tensors[tensor].shape))))
            )
            wanted = self.subgraph.constant(np.array(order, np.int32))
            origins = self.origins_of(node)
            self.subgraph.operator("TRANSPOSE", [tensor, wanted], [made], origins)
        else:
            self._reshape(node, tensor, made, kind)

    def _composite(self, node: Node, composite: Composite) -> None:
        inputs = [
            (
                self.subgraph.constant(each.astype(np.int32))
                if isinstance(each, np.ndarray)
                else self.tensor(each)
            )
            for each in composite.inputs
        ]
        origins = merged_origins(self.origins_of(each) for each in (node, *composite.inside))
        made = [self.result(node.ref())]
        self.subgraph.operator(composite.op, inputs, made, origins, composite.options)

    # ---- tensors ----

    def tensor(self, ref: Ref) -> int:
        """The tensor of a value as the graph has it."""
        ref = self._behind(ref)
        known = self._tensors.get(ref)
        if known is not None:
            return known
        node = self.graph[ref.node]
        if node.is_const:
            if node.value is None:
                raise UnsupportedError(
                    f"constant {quoted(node.name)} has no data and cannot be written"
                )
            self._tensors[ref] = self.subgraph.constant(
                node.value, self._names.get(ref, node.name), self._codes.get(ref)
            )
        elif node.op == "Variable":
            self.state.read(node)
        else:
            self._operator(ExportUnit(node))
        return self._tensors[ref]

    def adopt(self, ref: Ref, tensor: int) -> None:
        """A value is a tensor that is there already."""
        self._tensors[ref] = tensor

    def result(self, ref: Ref) -> int:
        """The tensor of a value that an operator makes now."""
        if ref not in self._tensors:
            node = self.graph[ref.node]
            wanted = self._names.get(ref)
            if wanted is not None:
                self.subgraph.release(wanted)
            suffix = f":{ref.index}" if ref.index else ""
            name = wanted if wanted is not None else f"{node.name or node.op}{suffix}"
            self._tensors[ref] = self.subgraph.tensor(
                name, self.graph.type_of(ref), self._codes.get(ref)
            )
        return self._tensors[ref]

    def codes_tensor(self, ref: Ref) -> int:
        """The codes of a value that DequantizeLinear makes, views of it included."""
        ref = self._behind(ref)
        node = self.graph[ref.node]
        source = node.inputs[0] if node.inputs else None
        if source is None:
            raise UnsupportedError(f"{quoted(node.name)} has no codes")
        if ref not in self._in_codes:
            self._in_codes[ref] = (
                self._as_read(node, source)
                if node.op == "DequantizeLinear"
                else self._view_of_codes(node, source)
            )
        return self._in_codes[ref]

    def _as_read(self, node: Node, source: Ref) -> int:
        """The codes that a DequantizeLinear reads. Where it takes them for something else than
        others do, a copy of them says so.
        """
        tensor, meant = self.tensor(source), codes_of(self.graph, node)
        kind = self.graph.type_of(source)
        if meant is None or self.codes_at(source) == meant or not isinstance(kind, TensorType):
            return tensor
        if (value := self.graph.const_value(source)) is not None:
            return self.subgraph.constant(value, self.graph[source.node].name, meant)
        made = self.subgraph.tensor(f"{node.name}/codes", kind, meant)
        self._reshape(node, tensor, made, kind)
        return made

    def _view_of_codes(self, node: Node, source: Ref) -> int:
        inner = self.codes_tensor(source)
        kind = node.type
        assert isinstance(kind, TensorType)
        codes = TensorType(DTYPES[self.subgraph.tensors[inner].type], kind.shape)
        made = self.subgraph.tensor(f"{node.name}/codes", codes, self.codes_behind(node.ref()))
        self._view(node, inner, made)
        return made

    def _reshape(self, node: Node, tensor: int, made: int, kind: TensorType) -> None:
        sizes = [dim if isinstance(dim, int) else -1 for dim in kind.shape or ()]
        if kind.shape is None or sizes.count(-1) > 1:
            raise UnsupportedError(
                f"operator {quoted(node.name)} ({node.op}) cannot be written as {self.format_name}:"
                " its result's shape is not known"
            )
        wanted = self.subgraph.constant(np.array(sizes, np.int32))
        inputs, options = [tensor, wanted], {"new_shape": tuple(sizes)}
        self.subgraph.operator("RESHAPE", inputs, [made], self.origins_of(node), options)

    def codes_behind(self, ref: Ref) -> Codes | None:
        made_by = dequantise_before(self.graph, self._behind(ref))
        return None if made_by is None else codes_of(self.graph, made_by)

    def codes_at(self, ref: Ref) -> Codes | None:
        """The meaning of a tensor of codes."""
        return self._codes.get(self._behind(ref))

    def known(self, ref: Ref | None) -> np.ndarray | None:
        """A value that is known now, in the numbers of the graph."""
        if ref is None:
            return None
        node = self.graph[ref.node]
        if node.op != "DequantizeLinear":
            return node.value
        stored, codes = self.graph.const_value(node.inputs[0]), codes_of(self.graph, node)
        if stored is None or codes is None:
            return None
        spread = [1] * np.ndim(stored)
        if not codes.per_tensor:
            spread[codes.axis] = -1
        scales = np.array(codes.scales, np.float64).reshape(spread)
        zeros = np.array(codes.zeros, np.float64).reshape(spread)
        return np.asarray((np.asarray(stored, np.float64) - zeros) * scales).astype(np.float32)

    def origins_of(self, node: Node) -> OriginMetadata:
        return OriginMetadata(node.origin, node.origin & self._folded.get(node.id, NO_ORIGIN))

    def origins_of_unit(self, unit: ExportUnit) -> OriginMetadata:
        """Where an operator came from. A DequantizeLinear that is not written counts where nothing
        else stands for its source operators.
        """
        parts = [self.origins_of(member) for member in unit.members]
        if unit.quantise is not None:
            for member in unit.members:
                for ref in member.inputs:
                    made_by = dequantise_before(self.graph, ref)
                    if made_by is not None:
                        origin, folded = self.origins_of(made_by)
                        parts.append(OriginMetadata(origin - self._origins, folded - self._origins))
        return merged_origins(parts)
