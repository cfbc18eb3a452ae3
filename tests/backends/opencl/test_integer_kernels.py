"""Products and convolutions of codes on a device, bit for bit as the reference."""

from __future__ import annotations

import numpy as np

from tests.backends.opencl.test_kernels import DeviceCases
from tests.kernels.test_integer_conv import codes, conv, requantised
from whence.runtime.engine import Engine


def test_windows(engine: Engine) -> None:
    cases = DeviceCases(2)
    first = conv(cases, (2, 7, 9, 3), (20, 3, 3, 3), pads=(1, 1, 1, 1), dilations=(1, 2))
    cases.expect(requantised(cases, first, 20), "first layer", 0)
    groups = conv(cases, (1, 8, 9, 12), (18, 3, 3, 4), np.uint8, np.uint8, 9, 3, group=3)
    cases.expect(groups, "groups, and weights that are not centred", 0)
    cases.check_on(engine)


def test_depthwise(engine: Engine) -> None:
    cases = DeviceCases(3)
    plain = conv(cases, (2, 7, 8, 40), (40, 3, 3, 1), group=40, pads=(1, 1, 1, 1), strides=(2, 1))
    cases.expect(requantised(cases, plain, 40, rounding="single"), "three rows", 0)
    tall = conv(cases, (1, 9, 8, 13), (13, 5, 5, 1), np.uint8, np.uint8, 3, 100, group=13)
    cases.expect(tall, "five rows, and weights that are not centred", 0)
    cases.check_on(engine)


def test_products(engine: Engine) -> None:
    cases = DeviceCases(4)
    a = cases.feed(codes(cases, 3, 37, dtype=np.uint8))
    b = cases.const(codes(cases, 37, 165, dtype=np.uint8))
    zeros = cases.const(codes(cases, 165, dtype=np.uint8))
    a_zero = cases.const(np.uint8(7))
    cases.expect(cases.op("MatMulInteger", a, b, a_zero, zeros), "panels of two sizes", 0)
    stack = cases.feed(codes(cases, 3, 5, 8))
    matrices = cases.feed(codes(cases, 3, 8, 20, dtype=np.uint8))
    own = cases.feed(np.array(-3, np.int8)), cases.feed(np.array(200, np.uint8))
    cases.expect(cases.op("MatMulInteger", stack, matrices, *own), "at run time", 0)
    cases.check_on(engine)
