"""Quotients and remainders of a division that rounds down, which TensorFlow and PyTorch have alike."""

from __future__ import annotations

import numpy as np

from whence.frontends.importer import NodeImporter
from whence.graph.node import Ref


def floor_quotient(call: NodeImporter, a: Ref, b: Ref) -> Ref:
    if call.tensor_type_of(a).dtype.is_float:
        return call.op("Floor", call.op("Div", a, b))
    # Whole numbers divide towards zero. a - (a mod b) is a multiple of b where the remainder has
    # the sign of b, so that division cannot round.
    return call.op("Div", call.op("Sub", a, call.op("Mod", a, b)), b)


def floor_remainder(call: NodeImporter, a: Ref, b: Ref) -> Ref:
    """The remainder that has the sign of the divisor. Of real numbers it is exact, as that with the
    sign of the dividend is: a - b · ⌊a / b⌋ would be off by b where the quotient is rounded up.
    """
    dtype = call.tensor_type_of(a).dtype
    if not dtype.is_float:
        return call.op("Mod", a, b)
    zero = call.const(np.array(0, dtype.numpy))
    rest = call.op("Mod", a, b, fmod=1)
    differ = call.op("Xor", call.op("Less", rest, zero), call.op("Less", b, zero))
    wrong = call.op("And", differ, call.op("Not", call.op("Equal", rest, zero)))
    return call.op("Where", wrong, call.op("Add", rest, b), rest)
