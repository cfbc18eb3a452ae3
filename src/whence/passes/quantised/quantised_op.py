"""The pattern that every quantised operator has: quantise(activation(operator(dequantise(codes),
...))).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from whence.graph import Graph, Node, Ref
from whence.graph.search import is_single_consumer, producer_of
from whence.graph.state import SOURCES
from whence.ops.attributes import get_int
from whence.ops.quantised.quantise import integer_range, is_fixed_point, round_away, rounds_away
from whence.passes.operands import FLOATS
from whence.passes.parameters import limits
from whence.passes.pattern import dtype_of, shape_of
from whence.types import DType, Shape

CODES = frozenset({DType.I8, DType.U8, DType.I16})
BYTES = frozenset({DType.I8, DType.U8})
_MAX_ACTIVATIONS = 4


@dataclass(frozen=True, slots=True)
class Coding:
    """How codes stand for numbers: number = (code - zero point) · scale."""

    dtype: DType
    real: DType
    scale: np.ndarray
    """One, or one for each element of `axis`, or as the file has them, one for each `block`."""
    zero_point: np.ndarray
    """As many as scales, in int64."""
    axis: int
    block: int = 0

    @property
    def is_single(self) -> bool:
        return self.scale.size == 1

    @property
    def step(self) -> np.float32:
        """The scale, when there is one."""
        return np.float32(self.scale.reshape(-1)[0])

    @property
    def zero(self) -> int:
        """The zero point, when there is one."""
        return int(self.zero_point.reshape(-1)[0])

    def equals(self, other: Coding) -> bool:
        """Does every code stand for the same number in both?"""
        if (
            self.dtype is not other.dtype
            or self.real is not other.real
            or not np.array_equal(self.scale.reshape(-1), other.scale.reshape(-1))
            or not np.array_equal(self.zero_point, other.zero_point)
        ):
            return False
        return self.is_single or (self.axis, self.block, self.scale.shape) == (
            other.axis,
            other.block,
            other.scale.shape,
        )


class QuantisedOperand(NamedTuple):
    """A number behind codes: the DequantizeLinear, what it reads, and how."""

    node: Node
    codes: Ref
    coding: Coding
    value: np.ndarray | None
    """The codes when they are constant."""
    shape: Shape | None


@dataclass(frozen=True, slots=True)
class QuantisedOp:
    """One application of the pattern."""

    op: Node
    activations: tuple[Node, ...]
    """Clip and Relu between the operator and the quantisation, in order."""
    last: Node
    """The QuantizeLinear."""
    operands: tuple[QuantisedOperand | None, ...]
    """One for each input of the operator; `None` for an input that is absent or not dequantised."""
    result: Coding
    low: int
    """The codes of the result lie between `low` and `high`: the limits of the type and of the
    activation.
    """
    high: int
    is_fixed_point: bool
    """Is the arithmetic LiteRT's, or ONNX's?"""

    @property
    def matched(self) -> tuple[Node, ...]:
        """All nodes of the pattern, in order."""
        sources = tuple(operand.node for operand in self.operands if operand is not None)
        return (*dict.fromkeys(sources), self.op, *self.activations, self.last)

    def limited_to(self, ends: tuple[float, float]) -> QuantisedOp:
        """The same with its results kept between two numbers."""
        low, high = limited_codes(self.low, self.high, ends, self.result, self.is_fixed_point)
        return replace(self, low=low, high=high)

    def operand(self, index: int) -> QuantisedOperand | None:
        return self.operands[index] if index < len(self.operands) else None

    def alike(self, index: int) -> QuantisedOperand | None:
        """The operand, when it is coded as the result is: in the same type, with one scale."""
        found = self.operand(index)
        if found is None or not found.coding.is_single:
            return None
        return found if found.coding.dtype is self.result.dtype else None


def quantised_op(graph: Graph, last: Node) -> QuantisedOp | None:
    """The pattern that ends in the QuantizeLinear `last`, or `None`. The result has one scale, and
    nobody else reads what lies between.
    """
    result = coding_of(graph, last, last.ref())
    if result is None or not result.is_single or result.dtype not in CODES:
        return None
    if rounds_away(last.attrs) and not is_fixed_point(last.attrs):
        # A file of LiteRT's that computes in real numbers and then quantises.
        return None
    fixed = is_fixed_point(last.attrs)
    activations: list[Node] = []
    reader, node = last, graph.producer(last.first_input)
    while (
        node.is_a("Relu", "Clip")
        and len(activations) < _MAX_ACTIVATIONS
        and is_single_consumer(graph, node, reader)
    ):
        source = graph.producer(node.first_input)
        if source.op == "DequantizeLinear" or limits(graph, node) is None:
            break
        activations.insert(0, node)
        reader, node = node, source
    # An operator with several outputs, such as Split, may have its outputs quantised one by one.
    if (
        node.op in SOURCES
        or node.op == "DequantizeLinear"
        or (len(node.outputs) == 1 and not is_single_consumer(graph, node, reader))
    ):
        return None
    low, high = integer_range(result.dtype)
    for each in activations:
        found = limits(graph, each)
        assert found is not None
        low, high = limited_codes(low, high, found, result, fixed)
    operands = tuple(operand_of(graph, ref) for ref in node.inputs)
    return QuantisedOp(node, tuple(activations), last, operands, result, low, high, fixed)


def limited_codes(
    low: int, high: int, ends: tuple[float, float], coding: Coding, away: bool
) -> tuple[int, int]:
    """Codes from `low` to `high`, limited as the numbers behind them are. Quantising keeps the
    order, so limiting before it and after it are the same.
    """
    # An end that overflows is beyond every code.
    with np.errstate(over="ignore", invalid="ignore"):
        places = np.array(ends, np.float32) / coding.step
        places = (round_away(places) if away else np.rint(places)).astype(np.float64)
    floor, ceiling = map(int, np.clip(places + coding.zero, *integer_range(coding.dtype)))
    return min(max(low, floor), ceiling), min(max(high, floor), ceiling)


def operand_of(graph: Graph, ref: Ref | None) -> QuantisedOperand | None:
    """What is behind `ref` when it is a DequantizeLinear with known parameters."""
    node = producer_of(graph, ref, "DequantizeLinear")
    if node is None:
        return None
    codes = node.first_input
    coding = coding_of(graph, node, codes)
    if coding is None:
        return None
    return QuantisedOperand(node, codes, coding, graph.const_value(codes), shape_of(graph, codes))


def coding_of(graph: Graph, node: Node, codes: Ref) -> Coding | None:
    """The parameters of a QuantizeLinear or DequantizeLinear, when they are constant and for
    float32, for a tensor or an axis.
    """
    coding = any_coding_of(graph, node, codes)
    if (
        coding is None
        or coding.real is not DType.F32
        or coding.block
        or coding.scale.ndim > 1
        or not np.all(np.isfinite(coding.scale))
        or np.any(coding.scale <= 0)
    ):
        return None
    return coding


def any_coding_of(graph: Graph, node: Node, codes: Ref) -> Coding | None:
    """The parameters of a QuantizeLinear or DequantizeLinear, when they are constant: for numbers
    of any type, and for blocks too.
    """
    kind, scale = graph.tensor_type(codes), graph.const_value(node.operand("x_scale", "y_scale"))
    real = dtype_of(graph, node.ref() if node.op == "DequantizeLinear" else node.first_input)
    if (
        kind is None
        or real not in FLOATS
        or scale is None
        or DType.of(scale) is not real
        or scale.size == 0
        or not np.all((scale > 0) & np.isfinite(scale))
        or (scale.size > 1 and kind.rank is None)
        or get_int(node.attrs, "precision", 0)
    ):
        return None
    zero_point = zero_point_of(graph, node)
    if zero_point is None or zero_point.size not in {1, scale.size}:
        return None
    # A vector has only one axis to have scales on, whatever the attribute says.
    axis = (
        get_int(node.attrs, "axis", 1) % kind.rank if kind.rank is not None and kind.rank > 1 else 0
    )
    return Coding(
        kind.dtype,
        real,
        scale if scale.ndim > 1 else scale.reshape(-1),
        np.broadcast_to(zero_point.astype(np.int64).reshape(-1), (scale.size,)),
        axis,
        get_int(node.attrs, "block_size", 0),
    )


def zero_point_of(graph: Graph, node: Node) -> np.ndarray | None:
    """The zero point of a QuantizeLinear or DequantizeLinear, zero where it names none; `None` when
    it is not constant.
    """
    given = node.operand("x_zero_point", "y_zero_point")
    return np.zeros((), np.int64) if given is None else graph.const_value(given)


def scales_along(operand: QuantisedOperand, axis: int) -> np.ndarray | None:
    """The scales of an operand when there is one, or one for each element of `axis`; else
    `None`.
    """
    return operand.coding.scale if operand.coding.is_single or operand.coding.axis == axis else None
