"""Operators that only move or choose values work on the codes of quantised tensors, as long as both
sides mean the same by them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whence.frontends.tflite.mapping import OperatorCall
from whence.graph.node import Ref


def keeps_codes(call: OperatorCall, index: int = 0, output: int = 0) -> bool:
    """Do input `index` and output `output` mean the same by the same codes?"""
    given, made = call.quantisation(index), call.output_quantisation(output)
    if given is None or made is None:
        return given is made
    same_scales = np.array_equal(given.scales, made.scales) and np.array_equal(
        given.zero_points, made.zero_points
    )
    return same_scales and len(given.scales) == 1


def move(call: OperatorCall, make: Callable[[Ref], Ref]) -> None:
    """The output is the first input with its values moved by `make`."""
    if keeps_codes(call):
        call.output_codes(0, make(call.needed(0)))
    else:
        call.output(0, make(call.real(0)))
