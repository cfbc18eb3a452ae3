"""Softmax of codes of 16 bits, as LiteRT has it: exponentials and the reciprocal of their sum from
tables, the rest in integers.

1. q(softmax(dq(x))) = e · r / 2^k, where e = exp(x - max) and r = 1 / (sum of e, brought between 1
   and 2 by a power of two)

On codes of 8 bits LiteRT's kernels do not agree with each other; there, computing in real numbers
is as good as either.
"""

from __future__ import annotations

import numpy as np

from whence.graph import Ref, Rewriter
from whence.graph.maker import Maker
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
    node, x = match.op, match.alike(0)
    if x is None or match.result.dtype is not DType.I16 or not x.shape:
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
    make, last = Maker(edit, match.matched), np.array([rank - 1])
    codes = make.cast(x.codes, DType.I32)
    below = make("Sub", codes, make("ReduceMax", codes, last, keepdims=1))
    scaled = make("FixedPointScale", below, *scale)
    powers = make.cast(make("LookUp", _code(make, scaled, 32767), _exponentials()), DType.I32)
    total = make("ReduceSum", powers, last, keepdims=1)
    # How often the sum can be halved, as a place in lists of powers of two.
    ladder = (1 << np.arange(1, 31)).astype(np.int32)
    halvings = make.cast(make("GreaterOrEqual", total, ladder), DType.I64)
    place = make("ReduceSum", halvings, last, keepdims=1)
    grown = make("Mul", make.cast(total, DType.I64), _power(make, place, 30 - np.arange(31)))
    unit = make("Div", make("Add", grown, np.int64(1 << 13)), np.int64(1 << 14))
    unit = _code(make, make.cast(unit, DType.I32), -(1 << 15) - (1 << 16))
    reciprocal = make.cast(make("LookUp", unit, _reciprocals()), DType.I64)
    product = make("Mul", make.cast(powers, DType.I64), reciprocal)
    half = make("Div", _power(make, place, np.arange(31)), np.int64(2))
    result = make("Div", make("Add", product, half), _power(make, place, np.arange(31)))
    result = make("Clip", result, np.int64(0), np.int64(32767))
    return edit.finish(match.last.ref(), make.cast(result, DType.I16))


def _code(make: Maker, value: Ref, offset: int) -> Ref:
    """An int32 plus `offset` as a code of 16 bits."""
    moved = make("Add", value, np.int32(offset))
    return make.cast(make("Clip", moved, np.int32(-32768), np.int32(32767)), DType.I16)


def _power(make: Maker, place: Ref, exponents: np.ndarray) -> Ref:
    """2 to the exponent at each place."""
    return make("Gather", np.left_shift(np.int64(1), exponents.astype(np.int64)), place)


def _exponentials() -> np.ndarray:
    """exp at every code, the codes from -32,768 to 32,767 being -10 to 0, the values 2^-15."""
    return between_known(np.exp, _DEEPEST / _RANGE, 32767, 2.0 / _RANGE)


def _reciprocals() -> np.ndarray:
    """1 / (1 + x) at every code, the codes being 0 to 1."""
    return between_known(lambda x: 1.0 / (1.0 + x), 1.0 / _RANGE, -32768, 2.0 / _RANGE)
