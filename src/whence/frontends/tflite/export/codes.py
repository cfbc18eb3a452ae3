"""What the integers of quantised tensors mean. The graph says it at QuantizeLinear and
DequantizeLinear only; a file says it of each tensor.

1. What QuantizeLinear makes and what DequantizeLinear reads have the scale and zero point of that
   node.
2. What an operator that goes out as it came reads and makes has what its own file said.
3. Operators that only move codes hand the meaning on, in both directions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whence.frontends.tflite.quantisation import quantisation_of
from whence.frontends.tflite.records import QuantisationRecord
from whence.frontends.tflite.written_back import written_call
from whence.graph.graph import Graph
from whence.graph.node import Node, Ref
from whence.types import DType, TensorType

CODE_TYPES = frozenset({DType.I8, DType.U8, DType.I16})
MOVERS = frozenset(
    {
        "ChannelsLastAveragePool", "ChannelsLastMaxPool", "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherND", "Identity",
        "Max", "MaxPool", "Min", "Pad", "ReduceMax", "ReduceMin", "Reshape", "Resize", "ReverseSequence", "Slice", "SpaceToDepth", "Split",
        "Squeeze", "Tile", "TopK", "Transpose", "Unsqueeze", "Where",
    }
)  # fmt: skip
"""Operators whose results are codes of their inputs, where they are codes at all."""


class Codes(NamedTuple):
    """real = (code - zero) · scale; one pair, or one for each index of `axis`."""

    scales: tuple[float, ...]
    zeros: tuple[int, ...]
    axis: int = 0

    @property
    def per_tensor(self) -> bool:
        return len(self.scales) == 1

    @property
    def record(self) -> QuantisationRecord:
        return QuantisationRecord(
            np.array(self.scales, np.float32), np.array(self.zeros, np.int64), self.axis
        )

    def along(self, axis: int) -> Codes:
        """The same after the tensor's axes moved: the one it speaks of is `axis` now."""
        return self if self.per_tensor else Codes(self.scales, self.zeros, axis)


def single_codes(found: QuantisationRecord | None) -> Codes | None:
    """The scale and zero point of a tensor of a file, if it has one pair."""
    if found is None or len(found.scales) != 1:
        return None
    return Codes((float(found.scales[0]),), (int(found.zero_points[0]),))


def codes_of(graph: Graph, node: Node) -> Codes | None:
    """The parameters of a QuantizeLinear or DequantizeLinear; `None` when a file cannot state them:
    not constant, or by blocks.
    """
    scale = graph.const_value(node.operand("y_scale", "x_scale"))
    zero_point = node.operand("y_zero_point", "x_zero_point")
    zero = graph.const_value(zero_point)
    kind = graph.type_of(
        node.ref() if node.op == "QuantizeLinear" else node.inputs[0] or node.ref()
    )
    if (
        scale is None
        or (zero_point is not None and zero is None)
        or node.attrs.get("block_size", 0)
        or not isinstance(kind, TensorType)
    ):
        return None
    scales = np.asarray(scale, np.float32).reshape(-1)
    zeros = (
        np.zeros(len(scales), np.int64)
        if zero is None
        else np.broadcast_to(np.asarray(zero).astype(np.int64).reshape(-1), scales.shape)
    )
    axis = node.attrs.get("axis", 1)
    rank = len(kind.shape) if kind.shape is not None else None
    if len(scales) == 1:
        return Codes((float(scales[0]),), (int(zeros[0]),))
    if rank is None or not isinstance(axis, int):
        return None
    return Codes(tuple(map(float, scales)), tuple(map(int, zeros)), 0 if rank == 1 else axis % rank)


def find_codes(graph: Graph) -> dict[Ref, Codes]:
    """The meaning of every tensor of codes, as far as the graph tells it."""
    found: dict[Ref, Codes] = {}
    for node in graph:
        if node.op not in ("QuantizeLinear", "DequantizeLinear"):
            continue
        codes = codes_of(graph, node)
        ref = node.ref() if node.op == "QuantizeLinear" else node.inputs[0]
        if codes is not None and ref is not None:
            # Another reader may see another meaning in the same codes; it then reads a copy.
            found.setdefault(ref, codes)
    for node in graph if "Call" in graph.op_counts else ():
        if node.op == "Call":
            _of_call(node, found)
    _propagate(graph, found)
    return found


def _of_call(node: Node, found: dict[Ref, Codes]) -> None:
    (written,) = written_call(node).subgraphs
    made = [node.ref(place) for place in range(len(written.outputs))]
    ends = zip((*node.inputs, *made), (*written.inputs, *written.outputs), strict=True)
    for ref, index in ends:
        codes = single_codes(quantisation_of(written.tensors[index]))
        if ref is not None and codes is not None:
            found.setdefault(ref, codes)


def _propagate(graph: Graph, found: dict[Ref, Codes]) -> None:
    movers = [node for node in graph if node.op in MOVERS]
    for _ in range(len(movers) + 1):
        before = len(found)
        for sequence in (movers, movers[::-1]):
            for node in sequence:
                _propagate_at(graph, node, found)
        if len(found) == before:
            return


def _propagate_at(graph: Graph, node: Node, found: dict[Ref, Codes]) -> None:
    ends = [ref for ref in (*node.inputs, node.ref(0)) if dtype_at(graph, ref) in CODE_TYPES]
    ends += [node.ref(index) for index in range(1, len(node.outputs)) if node.op == "Split"]
    known = {found[ref] for ref in ends if ref in found and found[ref].per_tensor}
    if len(known) != 1:
        return
    (codes,) = known
    for ref in ends:
        if ref is not None and dtype_at(graph, ref) is dtype_at(graph, node.ref()):
            found.setdefault(ref, codes)


def dtype_at(graph: Graph, ref: Ref | None) -> DType | None:
    """The element type of a value that is a tensor."""
    kind = graph.tensor_type(ref)
    return None if kind is None else kind.dtype
