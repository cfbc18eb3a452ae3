"""Operators that only move or choose values work on the codes of quantised tensors, as long as both
sides mean the same by them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from whence.frontends.tflite.mapping import OperatorCall
from whence.graph.node import Ref


def keeps_codes(call: OperatorCall, index: int = 0) -> bool:
    """Do input `index` and the first output mean the same by the same codes?"""
    given, made = call.quantisation(index), call.output_quantisation(0)
    if given is None or made is None:
        return given is made
    same_scales = np.array_equal(given.scales, made.scales) and np.array_equal(
        given.zero_points, made.zero_points
    )
    return same_scales and len(given.scales) == 1


def move(call: OperatorCall, make: Callable[..., Ref], inputs: Sequence[int] = (0,)) -> None:
    """The output is what `make` makes of the values of these inputs: of their codes where all mean
    the same as in the output, and no activation follows.
    """
    if call.activation == "NONE" and all(keeps_codes(call, index) for index in inputs):
        call.output_codes(0, make(*map(call.needed, inputs)))
    else:
        call.output(0, call.activate(make(*map(call.real, inputs))))
