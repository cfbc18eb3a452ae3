"""What the export of one operator works with: `ExportCall`, the operator of the graph and the means
to say it in a file's operators.

    def _leaky_relu(call: ExportCall) -> None:
        call.emit("LEAKY_RELU", [call.input(0)], {"alpha": call.number("alpha", 0.01)})

- `input(i)` is the tensor of an input: in codes where the operator is written as a quantised one,
  as the graph has it elsewhere.
- `value(i)` is an input that is known now, in the numbers of the graph; `integers(i)` such a list
  of whole numbers.
- `emit` writes an operator. Without `outputs` it makes the results of the node, activation and
  quantisation included; `between` makes a tensor for a step on the way there.

What the format cannot say raises through `unsupported`, which names the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn, TypeAlias

import numpy as np

from whence.errors import UnsupportedError
from whence.frontends.naming import quoted
from whence.frontends.tflite.export.codes import Codes, codes_of, single_codes
from whence.frontends.tflite.export.units import NONE, ExportUnit, activation_of, bias_operand
from whence.frontends.tflite.export.writing import TYPE_NAMES
from whence.frontends.tflite.records import PACKAGES, TFLITE
from whence.frontends.tflite.schema import Option, enum_names
from whence.frontends.tflite.tensors import DTYPES
from whence.graph.graph import Graph
from whence.graph.node import Node, Ref
from whence.ops.attributes import get_float, get_int, get_ints, get_str
from whence.types import Dim, DType, Shape, TensorType

if TYPE_CHECKING:
    from whence.frontends.tflite.export.graph_writer import GraphWriter

Exporter: TypeAlias = "Callable[[ExportCall], None]"
Exports: TypeAlias = Mapping[str, Exporter]


_ACTIVATED = frozenset({"ADD", "SUB", "MUL", "DIV", "FULLY_CONNECTED", "L2_NORMALIZATION"})
"""Operators that may hold an activation: that which makes the results of a node holds the node's,
one on the way there none, unless their exporter says otherwise.
"""


class ExportCall:
    """One operator of the graph while it is written."""

    def __init__(self, writer: GraphWriter, unit: ExportUnit) -> None:
        self.node: Node = unit.node
        self.graph: Graph = writer.graph
        self.writer = writer
        self.unit = unit

    # ---- the operator as the graph has it ----

    @property
    def is_quantised(self) -> bool:
        """Is it written on codes?"""
        return self.unit.quantise is not None

    @property
    def is_circle(self) -> bool:
        return self.writer.is_circle

    def was(self, op: str) -> bool:
        """Is it what an operator of that type in the first file became?"""
        return any(self.graph.ledger.source(source).op == op for source in self.node.origin)

    @property
    def activation(self) -> int:
        """The number of the activation that belongs to the operator."""
        if self.unit.activation is None:
            return NONE
        return activation_of(self.graph, self.unit.activation)

    def has(self, index: int) -> bool:
        return self.node.input(index) is not None

    def ref(self, index: int) -> Ref:
        found = self.node.input(index)
        if found is None:
            self.unsupported(f"input {index} is missing")
        return found

    def type(self, index: int) -> TensorType:
        """The type of an input as the graph has it: real numbers even where codes are written."""
        return self._tensor_type(self.ref(index))

    def output_type(self, index: int = 0) -> TensorType:
        return self._tensor_type(self.node.ref(index))

    def shape(self, index: int) -> tuple[int, ...]:
        """The shape of an input that must be known."""
        return self._static(self.type(index), f"input {index}")

    def output_shape(self, index: int = 0) -> tuple[int, ...]:
        return self._static(self.output_type(index), "its result")

    def rank(self, index: int) -> int:
        return len(self.known_rank(self.type(index)))

    def known_rank(self, kind: TensorType) -> Shape:
        if kind.shape is None:
            self.unsupported("a number of dimensions is not known")
        return kind.shape

    def axis(self, name: str, default: int, rank: int) -> int:
        return get_int(self.node.attrs, name, default) % max(rank, 1)

    def reduced(self, index: int, axes: Collection[int]) -> TensorType:
        """The type of an input with these axes reduced to one place each."""
        kind = self.type(index)
        dims = enumerate(self.known_rank(kind))
        return TensorType(kind.dtype, tuple(1 if axis in axes else dim for axis, dim in dims))

    def is_used(self, index: int) -> bool:
        """Does anybody read result `index`?"""
        return index < len(self.node.outputs) and bool(self.graph.uses(self.node.ref(index)))

    def has_attr(self, name: str) -> bool:
        return name in self.node.attrs

    def integer(self, name: str, default: int = 0) -> int:
        return get_int(self.node.attrs, name, default)

    def number(self, name: str, default: float) -> float:
        return get_float(self.node.attrs, name, default)

    def text(self, name: str, default: str) -> str:
        return get_str(self.node.attrs, name, default)

    def numbers(self, name: str, default: Sequence[int]) -> tuple[int, ...]:
        return tuple(get_ints(self.node.attrs, name, tuple(default)))

    def value(self, index: int) -> np.ndarray | None:
        """An input that is known now; what DequantizeLinear makes of a constant is known, too."""
        return self.writer.known(self.node.input(index))

    def integers(self, index: int, what: str) -> tuple[int, ...]:
        """The whole numbers in an input that must be known now."""
        value = self.value(index)
        if value is None:
            self.unsupported(
                f"its {what} are computed while the model runs; {self.writer.format_name} wants"
                " them in the file"
            )
        return tuple(int(item) for item in np.asarray(value).reshape(-1))

    # ---- tensors ----

    def input(self, index: int) -> int:
        """The tensor of input `index`, in codes where the operator is written so."""
        return self.operand(self.ref(index))

    def inputs(self) -> list[int]:
        """The tensors of all inputs, none of which is left out."""
        return [self.input(index) for index in range(len(self.node.inputs))]

    def operand(self, ref: Ref) -> int:
        kind = self._tensor_type(ref)
        if self.is_quantised and kind.dtype.is_float:
            return self.writer.codes_tensor(ref)
        return self.writer.tensor(ref)

    def index_input(self, index: int) -> int:
        """Positions, sizes or axes as 32-bit numbers, which is what operators of a file take."""
        value = self.value(index)
        if value is not None:
            return self.ints(value)
        return self.narrow(self.input(index), self.type(index))

    def narrow(self, tensor: int, kind: TensorType) -> int:
        if kind.dtype is DType.I32:
            return tensor
        options = cast_options(kind.dtype, DType.I32)
        return self.step("CAST", [tensor], TensorType(DType.I32, kind.shape), options)

    def ints(self, values: int | Sequence[int] | np.ndarray) -> int:
        """A constant of 32-bit numbers. What says \"to the end\" in 64 bits says so in 32."""
        limits = np.iinfo(np.int32)
        array = np.clip(np.asarray(values, np.int64), limits.min, limits.max)
        return self.const(array.astype(np.int32))

    def const(self, array: np.ndarray, name: str = "", codes: Codes | None = None) -> int:
        return self.writer.subgraph.constant(array, name, codes)

    def scalar(self, value: float, like: TensorType) -> int:
        """A number of the element type of `like`; not for quantised operators."""
        return self.const(np.array(value, like.dtype.numpy))

    def weights(self, index: int, order: Sequence[int]) -> int | None:
        """A stored input with its axes in another order: in codes where the graph has codes and the
        operator may take them. Weights over one axis are taken for ones over two where `order` has
        two. `None` if the input is not stored.
        """
        ref = self.ref(index)
        node, codes = self.graph[ref.node], None
        # A float operator takes codes where the first file's did: there both nodes are one
        # operator.
        is_hybrid = bool(node.origin) and node.origin <= self.node.origin
        if node.op == "DequantizeLinear" and (self.is_quantised or is_hybrid):
            value, codes = self.graph.const_value(node.inputs[0]), codes_of(self.graph, node)
            if codes is None:
                return None
            codes = codes.along(order.index(codes.axis))
        else:
            value = self.value(index)
        if value is None:
            return None
        added = (1,) * (len(order) - value.ndim)
        value = value.reshape(*value.shape[:2], *added, *value.shape[2:])
        return self.const(value.transpose(order), self._constant_name(ref), codes)

    def bias(self, ref: Ref | None, count: int, weights: int) -> int:
        """A bias of `count` elements, zero where there is none; of a quantised operator in units of
        input scale times weight scale.
        """
        value = np.zeros(count, np.float32) if ref is None else self.writer.known(ref)
        if (
            value is None
            and ref is not None
            and not self.is_quantised
            and self._tensor_type(ref).shape == (count,)
        ):
            return self.writer.tensor(ref)
        if value is None:
            self.unsupported("its bias is computed while the model runs")
        value = np.broadcast_to(np.asarray(value, np.float64).reshape(-1), (count,))
        name = "" if ref is None else self._constant_name(ref)
        if not self.is_quantised:
            return self.const(value.astype(self.output_type().dtype.numpy), name)
        source = self.writer.codes_behind(self.ref(0))
        weighing = self.writer.subgraph.tensors[weights].quantisation
        if source is None or weighing is None:
            self.unsupported("the scales of its input and weights are not known")
        scales = (np.float32(source.scales[0]) * weighing.scales.astype(np.float32)).astype(
            np.float32
        )
        whole = np.rint(value / scales.astype(np.float64))
        wide = self.type_of_tensor(self.input(0)) is DType.I16
        limit = np.iinfo(np.int64 if wide else np.int32)
        codes = np.clip(whole, float(limit.min), float(limit.max)).astype(limit.dtype)
        return self.const(codes, name, Codes(tuple(map(float, scales)), (0,) * len(scales)))

    def type_of_tensor(self, tensor: int) -> DType:
        """The type that a tensor of the file has."""
        return DTYPES[self.writer.subgraph.tensors[tensor].type]

    def codes_of_tensor(self, tensor: int) -> Codes | None:
        """The scale and zero point of a tensor of the file that has one pair."""
        return single_codes(self.writer.subgraph.tensors[tensor].quantisation)

    def output(self, index: int = 0) -> int:
        """The tensor that the operator makes."""
        last = self.unit.last
        if self.unit.view is not None:
            return self.writer.before_view(self.unit)
        return self.writer.result(last.ref(index if last is self.node else 0))

    def between(self, kind: TensorType, codes: Codes | None = None) -> int:
        """A tensor for a step on the way to the result."""
        return self.writer.subgraph.tensor(f"{self.node.name or self.node.op}/step", kind, codes)

    def step(
        self,
        op: str,
        inputs: Sequence[int | None],
        kind: TensorType,
        options: Mapping[str, Option] | None = None,
        version: int = 1,
        codes: Codes | None = None,
    ) -> int:
        """An operator on the way to the result; its tensor."""
        result = self.between(kind, codes)
        self.emit(op, inputs, options, outputs=[result], version=version)
        return result

    def emit(
        self,
        op: str,
        inputs: Sequence[int | None],
        options: Mapping[str, Option] | None = None,
        *,
        outputs: Sequence[int] | None = None,
        version: int = 1,
        custom: bytes = b"",
        intermediates: Sequence[int] = (),
    ) -> None:
        """Write an operator; without `outputs`, the one that makes all results of the node.
        `custom` are the options of a custom operator, `intermediates` tensors that say what it
        computes on the way.
        """
        made = (
            [self.output(index) for index in range(len(self.unit.last.outputs))]
            if outputs is None
            else outputs
        )
        activation = self.activation if outputs is None else NONE
        plain = {"fused_activation_function": activation} if op in _ACTIVATED else {}
        origins = self.writer.origins_of_unit(self.unit)
        self.writer.subgraph.operator(
            op, inputs, made, origins, {**plain, **(options or {})}, version, custom, intermediates
        )

    def transposed(
        self, tensor: int, kind: TensorType, order: Sequence[int]
    ) -> tuple[int, TensorType]:
        """The tensor with its axes in another order."""
        shape = self.known_rank(kind)
        result = TensorType(kind.dtype, tuple(shape[axis] for axis in order))
        return self.step("TRANSPOSE", [tensor, self.ints(order)], result), result

    def emit_channels_last(
        self,
        op: str,
        options: Mapping[str, Option],
        others: Sequence[int] = (),
        made: Sequence[Dim] | None = None,
    ) -> None:
        """Write an operator on images whose channels are last, for one on images whose channels
        come first. `made` is the shape of its result, if not that of its input.
        """
        transposed, kind = self.transposed(self.input(0), self.type(0), (0, 2, 3, 1))
        result = kind if made is None else TensorType(kind.dtype, tuple(made))
        step = self.step(op, [transposed, *others], result, options)
        self.emit("TRANSPOSE", [step, self.ints((0, 3, 1, 2))])

    def reshaped(self, tensor: int, shape: Sequence[int]) -> int:
        """The tensor in another shape; codes mean what they meant."""
        made = self.between(
            TensorType(self.type_of_tensor(tensor), tuple(shape)), self.codes_of_tensor(tensor)
        )
        self.emit_reshape(tensor, shape, made)
        return made

    def emit_reshape(self, tensor: int, shape: Sequence[int], made: int | None = None) -> None:
        """Write a RESHAPE, which has the shape as an operand and as an option; without `made`, the
        one that makes the result of the node.
        """
        outputs = None if made is None else [made]
        self.emit(
            "RESHAPE", [tensor, self.ints(shape)], {"new_shape": tuple(shape)}, outputs=outputs
        )

    def bias_of_unit(self) -> Ref | None:
        """The row that is added to a product."""
        if self.unit.bias is not None:
            return bias_operand(self.graph, self.node, self.unit.bias)
        return self.node.operand("C")

    def unsupported(self, why: str) -> NoReturn:
        raise UnsupportedError(
            f"operator {quoted(self.node.name)} ({self.node.op}) cannot be written as"
            f" {self.writer.format_name}: {why}"
        )

    def _constant_name(self, ref: Ref | None) -> str:
        """What a stored operand is called: the constant itself, where it is dequantised."""
        node = None if ref is None else self.graph[ref.node]
        if node is not None and node.op == "DequantizeLinear" and node.inputs[0] is not None:
            node = self.graph[node.inputs[0].node]
        return "" if node is None else node.name

    def _tensor_type(self, ref: Ref) -> TensorType:
        kind = self.graph.type_of(ref)
        if not isinstance(kind, TensorType):
            self.unsupported(f"it has a value of type {kind}")
        return kind

    def _static(self, kind: TensorType, what: str) -> tuple[int, ...]:
        shape = kind.static_shape
        if shape is None:
            self.unsupported(f"the shape of {what}, {kind}, is not known")
        return shape


def type_number(dtype: DType) -> int:
    """The number that both schemas have for an element type."""
    name = TYPE_NAMES.get(dtype)
    if name is None:
        raise UnsupportedError(f"TFLite and Circle have no type {dtype}")
    numbers = enum_names(PACKAGES[TFLITE], "TensorType")
    return next(number for number, each in numbers.items() if each == name)


def cast_options(before: DType, after: DType) -> dict[str, Option]:
    return {"in_data_type": type_number(before), "out_data_type": type_number(after)}
