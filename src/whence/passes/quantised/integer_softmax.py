"""Softmax of codes of 16 bits, as LiteRT has it: exponentials and the reciprocal of their sum from
tables, the rest in integers.

1. q(softmax(dq(x))) = e · r / 2^k, where e = exp(x - max) and r = 1 / (sum of e, brought between 1
   and 2 by a power of two)

On codes of 8 bits LiteRT's kernels do not agree with each other; there, computing in real numbers
is as good as either.
"""

from __future__ import annotations

import numpy as np

from whence.graph import Node, Ref, Rewriter
from whence.graph.edit import Edit
from whence.ops.attributes import get_int
from whence.passes.quantised.fixed_point import fixed_point
from whence.passes.quantised.integer_functions import between_known
from whence.passes.quantised.quantised_op import QuantisedOp
from whence.types import DType

_RANGE = 65535
_DEEPEST = 10.0
"""Below exp(-10) an exponential is as good as none."""


def rewrite_softmax(match: QuantisedOp, rewriter: Rewriter) -> bool:
    """True when the rule applied."""
    node, x = match.op, match.operand(0)
    if (
        x is None
        or x.coding.dtype is not DType.I16
        or match.result.dtype is not DType.I16
        or not x.coding.is_single
        or x.shape is None
        or not x.shape
    ):
        return False
    rank = len(x.shape)
    scale = fixed_point(float(np.float64(x.coding.step) / (_DEEPEST / _RANGE)))
    if (
        get_int(node.attrs, "axis", -1) % rank != rank - 1
        or x.coding.zero
        or match.result.zero
        or match.activations
        or scale is None
    ):
        return False
    if (
        not np.isclose(float(match.result.step), 2.0**-15, rtol=1e-3)
        or not isinstance(x.shape[-1], int)
        or not 0 < x.shape[-1] < 1 << 15
    ):
        return False
    edit = rewriter.edit(
        *match.matched, rule="quantise(softmax(dequantise(x))) = softmax in integers"
    )
    maker = _Maker(edit, list(match.matched), rank)
    codes = maker.cast(x.codes, DType.I32)
    below = maker.op("Sub", codes, maker.over("ReduceMax", codes))
    scaled = maker.op(
        "FixedPointScale", below, maker.number(scale.multiplier), maker.number(scale.shift)
    )
    powers = maker.cast(
        maker.op("LookUp", maker.code(scaled, 32767), edit.const(_exponentials())), DType.I32
    )
    total = maker.over("ReduceSum", powers)
    # How often the sum can be halved, as a place in lists of powers of two.
    ladder = edit.const((1 << np.arange(1, 31)).astype(np.int32))
    place = maker.over(
        "ReduceSum", maker.cast(maker.op("GreaterOrEqual", total, ladder), DType.I64)
    )
    sum_64 = maker.cast(total, DType.I64)
    grown = maker.op("Mul", sum_64, maker.power(place, 30 - np.arange(31)))
    unit = maker.op(
        "Div", maker.op("Add", grown, edit.const(np.int64(1 << 13))), edit.const(np.int64(1 << 14))
    )
    reciprocal = maker.op(
        "LookUp",
        maker.code(maker.cast(unit, DType.I32), -(1 << 15) - (1 << 16)),
        edit.const(_reciprocals()),
    )
    product = maker.op("Mul", maker.cast(powers, DType.I64), maker.cast(reciprocal, DType.I64))
    half = maker.op("Div", maker.power(place, np.arange(31)), edit.const(np.int64(2)))
    result = maker.op("Div", maker.op("Add", product, half), maker.power(place, np.arange(31)))
    result = maker.op("Clip", result, edit.const(np.int64(0)), edit.const(np.int64(32767)))
    return edit.finish(match.last.ref(), maker.cast(result, DType.I16))


def _exponentials() -> np.ndarray:
    """exp at every code, the codes from -32,768 to 32,767 being -10 to 0, the values 2^-15."""
    return between_known(np.exp, _DEEPEST / _RANGE, 32767, 2.0 / _RANGE)


def _reciprocals() -> np.ndarray:
    """1 / (1 + x) at every code, the codes being 0 to 1."""
    return between_known(lambda x: 1.0 / (1.0 + x), 1.0 / _RANGE, -32768, 2.0 / _RANGE)


class _Maker:
    """Nodes of one edit that all come from the same nodes."""

    def __init__(self, edit: Edit, of: list[Node], rank: int) -> None:
        self._edit, self._of, self._rank = edit, of, rank

    def op(self, op: str, *inputs: Ref) -> Ref:
        return self._edit.node(op, inputs, of=self._of).ref()

    def cast(self, value: Ref, dtype: DType) -> Ref:
        return self._edit.node("Cast", [value], {"to": int(dtype)}, of=self._of).ref()

    def number(self, value: int) -> Ref:
        return self._edit.const(np.int32(value))

    def over(self, op: str, value: Ref) -> Ref:
        """A reduction of the last axis, which stays with size 1."""
        axes = self._edit.const(np.array([self._rank - 1], np.int64))
        return self._edit.node(op, [value, axes], {"keepdims": 1}, of=self._of).ref()

    def code(self, value: Ref, offset: int) -> Ref:
        """An int32 plus `offset` as a code of 16 bits."""
        moved = self.op("Add", value, self.number(offset))
        return self.cast(self.op("Clip", moved, self.number(-32768), self.number(32767)), DType.I16)

    def power(self, place: Ref, exponents: np.ndarray) -> Ref:
        """2 to the exponent at each place."""
        return self.op(
            "Gather",
            self._edit.const(np.left_shift(np.int64(1), exponents.astype(np.int64))),
            place,
        )
