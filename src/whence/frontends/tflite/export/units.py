"""Which nodes of a graph are written as one operator.

0. A product of matrices followed by the addition of a constant row is one operator with a bias.
1. An operator followed by Relu or a Clip that TFLite has a name for, and read by nothing else, has
   it as its fused activation.
2. Q(activation(op(DQ ...))) is the quantised operator on the codes, where TFLite has one for these
   types.
3. A view between such an operator and its QuantizeLinear becomes a view of the codes.
4. DequantizeLinear is written only for readers that need the real numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from whence.frontends.tflite.export.codes import CODE_TYPES, codes_of, dtype_at
from whence.frontends.tflite.quantisation import ROUND_AWAY
from whence.graph.graph import Graph
from whence.graph.node import Node, Ref
from whence.graph.state import BOUNDARY
from whence.ops.attributes import get_float, get_str
from whence.ops.registry import operators
from whence.ops.traits import Trait
from whence.types import DType, TensorType

_FUSING = frozenset(
    {
        "Add",
        "Sub",
        "Mul",
        "Div",
        "ChannelsLastConv",
        "ChannelsLastAveragePool",
        "ChannelsLastMaxPool",
        "Gemm",
        "MatMul",
    }
)
"""Operators that may hold an activation. (CONCATENATION has a field for one, and LiteRT refuses
it.)
"""
_QUANTISED: Mapping[str, frozenset[DType]] = {
    **dict.fromkeys(
        (
            "Add", "Sub", "Mul", "ChannelsLastConv", "ChannelsLastConvTranspose", "ChannelsLastAveragePool", "Gemm", "MatMul", "Concat",
            "LeakyRelu", "Max", "Min", "Relu", "Sigmoid", "Tanh", "Softmax", "Clip", "HardSwish", "PRelu", "ReduceMean", "Resize", "Pad",
        ),
        CODE_TYPES,
    ),
    **dict.fromkeys(("LogSoftmax", "ReduceSum", "Elu", "Gelu", "Exp", "ReduceMax", "ReduceMin"), frozenset({DType.I8, DType.U8})),
    "Div": frozenset({DType.U8}),
    **dict.fromkeys(("Abs", "Log"), frozenset({DType.I8, DType.I16})),
}  # fmt: skip
"""Operators that TFLite has on codes, and of which types."""
_SAME_SCALE = frozenset(
    {
        "Concat",
        "Max",
        "Min",
        "Pad",
        "ReduceMax",
        "ReduceMin",
        "Resize",
        "ChannelsLastAveragePool",
        "ChannelsLastMaxPool",
    }
)
"""Operators whose kernels hand codes through as they are: inputs and result must share a scale."""
NONE, RELU, RELU_N1_TO_1, RELU6 = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class ExportUnit:
    """Nodes that become one operator."""

    node: Node
    bias: Node | None = None
    """The addition of a constant row to a product."""
    activation: Node | None = None
    view: Node | None = None
    """A view of the result, before it is quantised: the codes are viewed so instead."""
    quantise: Node | None = None

    @property
    def last(self) -> Node:
        """The node whose result the operator makes."""
        return self.quantise or self.activation or self.bias or self.node

    @property
    def members(self) -> tuple[Node, ...]:
        return tuple(
            node
            for node in (self.node, self.bias, self.activation, self.view, self.quantise)
            if node is not None
        )


def find_units(graph: Graph) -> dict[int, ExportUnit]:
    """For each node that is written with others, the unit it belongs to."""
    found: dict[int, ExportUnit] = {}
    for node in graph:
        if (
            node.id in found
            or node.op in BOUNDARY
            or node.op in ("QuantizeLinear", "DequantizeLinear")
            or len(node.outputs) != 1
        ):
            continue
        unit = _unit(graph, node)
        if unit.last is not node:
            found.update((member.id, unit) for member in unit.members)
    return found


def activation_of(graph: Graph, node: Node) -> int:
    """The number TFLite has for an activation, `NONE` when it has none."""
    if node.op == "Relu":
        return RELU
    if node.op != "Clip":
        return NONE
    low, high = (_bound(graph, node, name) for name in ("min", "max"))
    if (low, high) == (0.0, 6.0):
        return RELU6
    if (low, high) == (-1.0, 1.0):
        return RELU_N1_TO_1
    return RELU if low == 0.0 and node.operand("max") is None else NONE


def _bound(graph: Graph, node: Node, name: str) -> float | None:
    value = graph.const_value(node.operand(name))
    return None if value is None else float(np.asarray(value).reshape(-1)[0])


def _only_reader(graph: Graph, node: Node) -> Node | None:
    uses = graph.uses(node.ref())
    if len(uses) == 1 and uses[0][1] == 0 and uses[0][0].op not in ("Output", "Assign"):
        return uses[0][0]
    return None


def _unit(graph: Graph, node: Node) -> ExportUnit:
    bias, activation, reader = None, None, _only_reader(graph, node)
    if reader is not None and node.op == "MatMul" and bias_operand(graph, node, reader) is not None:
        bias, reader = reader, _only_reader(graph, reader)
    if (
        reader is not None
        and node.op in _FUSING
        and activation_of(graph, reader) != NONE
        and dtype_at(graph, node.ref()) is DType.F32
    ):
        activation, reader = reader, _only_reader(graph, reader)
    view = None
    if reader is not None and reader.op in VIEWS and node.op not in VIEWS:
        view, reader = reader, _only_reader(graph, reader)
    if (
        reader is not None
        and reader.op == "QuantizeLinear"
        and _is_quantised(graph, node, bias, reader)
    ):
        return ExportUnit(node, bias, activation, view, reader)
    return ExportUnit(node, bias, activation)


def bias_operand(graph: Graph, product: Node, add: Node) -> Ref | None:
    """The constant row that `add` adds to a product with stored weights, if it does."""
    others = [ref for ref in add.inputs if ref is not None and ref.node != product.id]
    weights = product.operand("B")
    if (
        add.op != "Add"
        or len(others) != 1
        or weights is None
        or not _is_constant(graph, weights)
        or not _is_constant(graph, others[0])
    ):
        return None
    columns, kind = graph.tensor_type(weights), graph.tensor_type(others[0])
    row = (
        columns is not None
        and kind is not None
        and kind.shape is not None
        and columns.shape is not None
        and len(columns.shape) == 2
        and kind.shape == columns.shape[-1:]
    )
    return others[0] if row and dtype_at(graph, product.ref()) is DType.F32 else None


def _is_constant(graph: Graph, ref: Ref) -> bool:
    node = graph[ref.node]
    return node.value is not None or (
        node.op == "DequantizeLinear" and graph.const_value(node.inputs[0]) is not None
    )


def behind(graph: Graph, ref: Ref, ops: Collection[str]) -> Ref:
    """What a value is before operators among `ops`, each of its first input."""
    node = graph[ref.node]
    while node.op in ops and node.inputs[0] is not None:
        ref, node = node.inputs[0], graph[node.inputs[0].node]
    return ref


VIEWS = operators(Trait.RESHAPE) | {"Transpose"}


def dequantise_before(graph: Graph, ref: Ref | None) -> Node | None:
    """The DequantizeLinear that makes a value, when a file can state its parameters; views of its
    result may stand between.
    """
    source = None if ref is None else behind(graph, ref, VIEWS)
    if source is None or graph[source.node].op != "DequantizeLinear":
        return None
    node = graph[source.node]
    codes = codes_of(graph, node)
    return node if codes is not None and (codes.per_tensor or source == ref) else None


def _is_quantised(graph: Graph, node: Node, bias: Node | None, quantise: Node) -> bool:
    """Does TFLite have the operator on these codes?"""
    made = codes_of(graph, quantise)
    kind = quantise.type
    if (
        get_str(quantise.attrs, "arithmetic", "") == ROUND_AWAY
        or made is None
        or not made.per_tensor
        or not isinstance(kind, TensorType)
        or kind.dtype not in _QUANTISED.get(node.op, ())
    ):
        return False
    if node.op == "Elu" and get_float(node.attrs, "alpha", 1.0) != 1.0:
        # Written in several steps, which are on real numbers.
        return False
    inputs = [
        ref
        for ref in node.inputs
        if ref is not None and (dtype := dtype_at(graph, ref)) is not None and dtype.is_float
    ]
    if bias is not None and (row := bias_operand(graph, node, bias)) is not None:
        inputs.append(row)
    if node.op in ("Clip", "Resize"):
        # Bounds and scales are parameters here, not operands.
        if node.op == "Clip" and activation_of(graph, node) == NONE:
            return False
        inputs = inputs[:1]
    if not inputs:
        return False
    sources = [dequantise_before(graph, ref) for ref in inputs]
    weighed = node.op in ("ChannelsLastConv", "ChannelsLastConvTranspose", "Gemm", "MatMul")
    for source in sources[:1] if weighed else sources:
        codes = None if source is None else codes_of(graph, source)
        if codes is None or not codes.per_tensor or _codes_type(graph, source) is not kind.dtype:
            return False
    if weighed:
        others = list(zip(inputs, sources, strict=True))[1:]
        return _weights_fit(graph, node, kind.dtype, others)
    if node.op in _SAME_SCALE and not (node.op == "Concat" and kind.dtype is DType.U8):
        return all(codes_of(graph, each) == made for each in sources if each is not None)
    return True


def _weights_fit(
    graph: Graph, node: Node, dtype: DType, others: list[tuple[Ref, Node | None]]
) -> bool:
    if not others or others[0][1] is None:
        return False
    weights, codes = others[0][1], codes_of(graph, others[0][1])
    kind = _codes_type(graph, weights)
    if (
        codes is None
        or kind is not (DType.U8 if dtype is DType.U8 else DType.I8)
        or (kind is DType.I8 and any(codes.zeros) and _is_stored(graph, weights))
    ):
        return False
    if not _is_stored(graph, weights) and node.op != "MatMul":
        return False
    # A bias is in whole numbers already, or is a constant that can be brought to them.
    return len(others) < 2 or all(
        graph[ref.node].is_const or (made is not None and _is_stored(graph, made))
        for ref, made in others[1:]
    )


def _is_stored(graph: Graph, dequantise: Node) -> bool:
    return graph.const_value(dequantise.inputs[0]) is not None


def _codes_type(graph: Graph, dequantise: Node | None) -> DType | None:
    return None if dequantise is None else dtype_at(graph, dequantise.inputs[0])
