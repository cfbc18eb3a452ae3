"""What a piece of work costs, in picoseconds: the weights by which a kernel's measured time is
split over the operators in it.

A kernel computes while it waits for memory: some of what is shorter, arithmetic or memory traffic,
hides behind the other (`CostModel.overlapped_ps`). So what an operator adds to a kernel is not what
it would cost by itself: an error function added to a sum that comes from memory is a sixth of the
time on one machine, and most of it on another.

All figures are those of the machine that the model ran on (`whence.rates`), measured once by
`whence.calibration`, or nominal where it never was. Only proportions within one kernel matter.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import NamedTuple

from whence.building.nominal_rates import SIMPLE
from whence.graph import Graph, Node
from whence.ops.cost import cost, measured_functions
from whence.ops.definition import Cost, OpClass
from whence.ops.registry import classes_of, operators
from whence.ops.traits import Trait
from whence.rates import BY_UNITS, ArithmeticUnit, MachineRates, MemoryLevel
from whence.types import TensorType

VIEWS = operators(Trait.VIEW)
"""Operators whose result is their operand, element by element in the same order: nothing to do for
its consumers, wherever it lies.
"""
_CONTRACTIONS = OpClass.CONV | OpClass.MATMUL | OpClass.RECURRENT

# A power with one of these constant exponents is a product or a root: so many simple operations.
_CHEAP_EXPONENTS = frozenset({-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0})
_CHEAP_POWER = 2
# A float32 product by matrix units is three of bfloat16.
_BF16_PRODUCTS = 3

# What Python goes through in the caches from one run to the next.
_CALLER_BYTES = 512 << 10


class Traffic(NamedTuple):
    """The bytes that a kernel moves."""

    near: int
    """What other kernels of the run have just written, or will read soon,"""
    far: int
    """and what was last used a whole run ago: weights, inputs and outputs of the model."""
    slices: int = 1
    """Of the near part, which other kernels write and read in between."""

    @property
    def bytes(self) -> int:
        return self.near + self.far


@dataclass(frozen=True, slots=True)
class CostModel:
    """Costs on one machine, for runs that touch `footprint` bytes: weights, arena, inputs and
    outputs.
    """

    rates: MachineRates
    footprint: int = 0

    def arithmetic_ps(self, graph: Graph, node: Node, flops: int, *, by_units: bool = False) -> int:
        """What the arithmetic of `node` costs on one thread, which the operator's definition counts
        as `flops` operations, by matrix units or by vectors. Products are counted at the peak rate:
        no kernel is quicker.
        """
        simple_ps = self.rates.element_ps[SIMPLE]
        if node.op == "Pow" and _has_cheap_exponent(graph, node):
            return round(_CHEAP_POWER * simple_ps * elements_of(node))
        if measured := measured_functions(node.op):
            each = sum(self.rates.element_ps[name] for name in measured)
            return round(each * elements_of(node))
        if not is_contraction(node.op):
            return round(flops * simple_ps)
        if by_units and ArithmeticUnit.BF16 in self.rates.peak:
            return round(_BF16_PRODUCTS * 1000 * flops / self.rates.peak_of(ArithmeticUnit.BF16, 1))
        unit = ArithmeticUnit.INT8 if is_integer(graph, node) else ArithmeticUnit.F32
        return round(1000 * flops / self.rates.peak_of(unit, 1))

    def node_ps(self, graph: Graph, node: Node) -> int | None:
        """Picoseconds of arithmetic of one node; `None` when a dimension that matters is
        unknown.
        """
        whole = node_cost(graph, node)
        return None if whole is None else self.arithmetic_ps(graph, node, whole.flops)

    def fused_transpose_ps(self, node: Node, kernel_bytes: int) -> int:
        """What a fused transpose costs, in a kernel with this much traffic:
        neighbours are no neighbours any more.
        """
        perm = node.attrs.get("perm")
        if (
            node.op != "Transpose"
            or not isinstance(perm, tuple)
            or not perm
            or perm[-1] == len(perm) - 1
        ):
            return 0
        near, far = self.rates.transpose_ps
        return round(elements_of(node) * (near if kernel_bytes <= self.rates.cache_bytes else far))

    def moving_ps(self, traffic: Traffic) -> int:
        """What it costs to move so much, on one thread."""
        near, far = self.levels(traffic)
        return round(traffic.near * near.byte_ps + traffic.far * far.byte_ps)

    def levels(self, traffic: Traffic) -> tuple[MemoryLevel, MemoryLevel]:
        """Where its near and its far part lie."""
        # What was used a run ago lies behind all that a run touches. The caller works between two
        # runs, too.
        since = max(self.footprint, traffic.bytes) + _CALLER_BYTES
        return self.rates.level(traffic.near // traffic.slices), self.rates.level(since)

    def byte_ps(self, traffic: Traffic) -> float:
        """What a byte of it costs, on average."""
        return self.moving_ps(traffic) / traffic.bytes if traffic.bytes else 0.0

    def overlapped_ps(self, arithmetic: int, memory: int, traffic: Traffic) -> int:
        """How long a kernel takes that spends so much on arithmetic and so much on memory: some of
        the smaller hides behind the larger.
        """
        shown = 1.0 - self._overlap(traffic)
        return max(arithmetic, memory) + round(min(arithmetic, memory) * shown)

    def arithmetic_within(self, elapsed: int, memory: int, traffic: Traffic) -> int:
        """How much arithmetic a kernel does that takes so long in all, if it spends so much on
        memory: `overlapped_ps` backwards, at least 0.
        """
        shown = 1.0 - self._overlap(traffic)
        if elapsed >= memory * (1.0 + shown):
            return round(elapsed - memory * shown)
        return max(0, round((elapsed - memory) / shown)) if shown > 0 else 0

    def epilogue(self, anchor: str, op: str, *, by_units: bool = False) -> float:
        """How much longer a function takes behind this anchor than by itself, as a factor."""
        kinds = classes_of(anchor)
        known = self.rates.epilogue
        family = "convolution" if kinds & OpClass.CONV else "product"
        if by_units and any(name.startswith(family + BY_UNITS) for name in known):
            family += BY_UNITS
        family += " "
        if not kinds & (OpClass.CONV | OpClass.MATMUL) or not (measured := measured_functions(op)):
            return 1.0
        # An engine that computes one of them by scalar code says nothing about the others.
        usual = [known[family + name] for name in self.rates.element_ps if family + name in known]
        middle = statistics.median(usual) if usual else 1.0
        return sum(known.get(family + name, middle) for name in measured) / len(measured)

    def _overlap(self, traffic: Traffic) -> float:
        near, far = self.levels(traffic)
        return (far if traffic.far >= traffic.near else near).overlap


class KernelModel:
    """How long a kernel takes with this traffic and arithmetic, and what leaving out a part of it
    would save. In a convolution or product, `others_read` are the bytes that other operators in it
    read, and `busy_ps` is what all threads together spent on it, 0 where that is not known.
    """

    def __init__(
        self,
        model: CostModel,
        traffic: Traffic,
        computing: int,
        others_read: int | None,
        busy_ps: int,
    ) -> None:
        self._model, self._traffic = model, traffic
        self._moving, self._computing, self._alone = model.moving_ps(traffic), computing, 0
        if others_read is not None:
            # What others read, they read between the sums of one tile and those of the next, where
            # there is no arithmetic for it to hide behind.
            self._alone = min(self._moving, round(others_read * model.byte_ps(traffic)))
            self._moving -= self._alone
            # How far a product or convolution stays below the peak rate depends on its shape. How
            # long the kernel took tells: what it took longer than by this model is the anchor's.
            spent = max(0, busy_ps - self._alone)
            within = model.arithmetic_within(spent, self._moving, traffic)
            self._computing = max(computing, within)
        self.whole = self._alone + model.overlapped_ps(self._computing, self._moving, traffic)
        """Picoseconds."""

    def saved(self, arithmetic: int, read: int) -> int:
        """By an operator with this arithmetic that reads so many bytes beside its main operand."""
        without = round(read * self._model.byte_ps(self._traffic))
        apart = min(self._alone, without)
        left = max(0, self._computing - arithmetic), max(0, self._moving - (without - apart))
        overlapped = self._model.overlapped_ps(*left, self._traffic)
        return self.whole - (self._alone - apart) - overlapped


def node_cost(graph: Graph, node: Node) -> Cost | None:
    """Operations and bytes of one node; `None` when a dimension that matters is unknown."""
    return cost(graph.query(node), node.outputs)


def is_integer(graph: Graph, node: Node) -> bool:
    """Are its products of bytes?"""
    first = graph.tensor_type(node.inputs[0]) if node.inputs else None
    return first is not None and first.dtype.numpy.itemsize == 1


def is_contraction(op: str) -> bool:
    """Is most of its arithmetic multiply-and-add on data that is used again and again?"""
    return bool(classes_of(op) & _CONTRACTIONS)


def elements_of(node: Node) -> int:
    """How many elements its first result has; 1 where that is unknown."""
    kind = node.outputs[0] if node.outputs else None
    return (kind.elements if isinstance(kind, TensorType) else None) or 1


def _has_cheap_exponent(graph: Graph, node: Node) -> bool:
    value = graph.const_value(node.operand("Y"))
    return value is not None and value.size == 1 and float(value.reshape(-1)[0]) in _CHEAP_EXPONENTS
