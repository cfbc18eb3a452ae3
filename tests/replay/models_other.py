"""Small models in integers, with state, and with nested graphs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import parser

from tests.replay.models_real import REAL, Model, counted
from whence.frontends.onnx.reader import read_onnx
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.types import DType

_SAME: Mapping[str, Any] = {"pads": (1, 1, 1, 1)}


def _scaled(m: Model, sums: Symbol, channels: int, rounding: str, to: int = 3) -> Symbol:
    """Bias, a factor for each channel, zero point, clipping: what follows a LiteRT convolution."""
    spread = counted((channels,), np.int32)
    total = m.op("Add", sums, m.const(spread * 50))
    factors = m.const(spread * 1_000_003 + 1_500_000_000), m.const(np.full(channels, -9, "i4"))
    scaled = m.op("FixedPointScale", total, *factors, rounding=rounding)
    low, high = (0, 255) if to == 2 else (-128, 127)
    moved = m.op("Add", scaled, m.const(np.array(5, "i4")))
    limits = m.const(np.array(low, "i4")), m.const(np.array(high, "i4"))
    return m.op("Cast", m.op("Clip", moved, *limits), to=to)


def _integer_convolutions(m: Model) -> None:
    for dtype, zero in ((DType.I8, np.int8(3)), (DType.U8, np.uint8(130))):
        image = m.input(1, 7, 9, 12, dtype=dtype)
        full = m.weights(24, 3, 3, 12, dtype=np.int8)
        sums = m.op("IntegerConv", image, full, m.const(zero), **_SAME)
        m.output(_scaled(m, sums, 24, "double"))
        one = m.weights(37, 1, 1, 12, dtype=np.int8)
        sums = m.op("IntegerConv", image, one, m.const(zero), strides=(2, 2))
        m.output(_scaled(m, sums, 37, "single", to=2))
        each = m.weights(12, 4, 4, 4, dtype=np.int8)
        m.output(m.op("IntegerConv", image, each, m.const(zero), group=3))
        back = m.weights(12, 3, 3, 8, dtype=np.int8)
        m.output(m.op("IntegerConvTranspose", image, back, m.const(zero), strides=(2, 2)))


def _integer_depthwise(m: Model) -> None:
    for dtype, zero in ((DType.I8, np.int8(3)), (DType.U8, np.uint8(130))):
        for stride in (1, 2):
            x, w = m.input(1, 9, 11, 24, dtype=dtype), m.weights(24, 3, 3, 1, dtype=np.int8)
            attrs = {"group": 24, "strides": (stride, stride), **_SAME}
            sums = m.op("IntegerConv", x, w, m.const(zero), **attrs)
            m.output(_scaled(m, sums, 24, "double"))


def _integer_products(m: Model) -> None:
    for dtype, kind in ((DType.I8, np.int8), (DType.U8, np.uint8)):
        a, b = m.input(10, 35, dtype=dtype), m.weights(35, 21, dtype=np.int8)
        m.output(m.op("MatMulInteger", a, b))
        m.output(m.op("MatMulInteger", a, m.input(35, 21, dtype=DType.I8), m.const(kind(4))))
        wide = m.op("MatMulInteger", m.input(1, 256, dtype=dtype), m.weights(256, 64, dtype="i1"))
        m.output(_scaled(m, wide, 64, "double"))


def _integer_others(m: Model) -> None:
    for dtype, kind in ((DType.I8, np.int8), (DType.U8, np.uint8)):
        x = m.input(1, 9, 10, 21, dtype=dtype)
        for op in ("ChannelsLastMaxPool", "ChannelsLastAveragePool"):
            m.output(m.op(op, x, kernel_shape=(3, 3), strides=(2, 2), **_SAME))
        scale, zero = m.const(np.float32(0.03125)), m.const(kind(9))
        codes = m.op("QuantizeLinear", m.input(6, 37), scale, zero)
        m.output(codes, m.op("DequantizeLinear", m.input(6, 37, dtype=dtype), scale, zero))
    y = m.op("DynamicQuantizeLinear", m.input(4, 30), n_outputs=3)
    m.output(y[0], y[1], y[2])
    m.output(m.op("LookUp", m.input(5, 41, dtype=DType.I8), m.weights(256, dtype=np.int8)))


def _packed_products(m: Model) -> None:
    def product(a: Symbol, bits: int, level: int, *, zeros: bool) -> Symbol:
        codes = m.weights(40, 3, 32 * bits // 8, dtype=np.uint8)
        scales = m.weights(40, 3)
        points = [m.weights(40, -(-3 * bits // 8), dtype=np.uint8)] if zeros else []
        attrs = {"K": 96, "N": 40, "bits": bits, "block_size": 32, "accuracy_level": level}
        return m.op("com.microsoft::MatMulNBits", a, codes, scales, *points, **attrs)

    for rows in (1, 7):
        a = m.input(rows, 96)
        gate = product(a, 4, 4, zeros=False)
        m.output(m.op("Mul", m.op("Sigmoid", gate), product(a, 8, 4, zeros=True)))
        m.output(product(a, 2, 4, zeros=True), product(a, 4, 0, zeros=True))
    table = [m.weights(20, 48, dtype=np.uint8), m.input(2, 3, dtype=DType.I64), m.weights(20, 3)]
    attrs = {"bits": 4, "block_size": 32, "gather_axis": 0, "quantize_axis": 1}
    m.output(m.op("com.microsoft::GatherBlockQuantized", *table, **attrs))


def _grouped_attention(m: Model) -> None:
    total = m.const(np.array([40], np.int32))
    angles = [m.weights(40, 8), m.weights(40, 8)]
    for count in (1, 6):
        past = [m.input(1, 2, 40, 16), m.input(1, 2, 40, 16)]
        operands = [m.input(1, count, 128), None, None, *past, m.input(1, dtype=DType.I32), total]
        attrs = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}
        op = "com.microsoft::GroupQueryAttention"
        y = m.op(op, *operands, *angles, n_outputs=3, **attrs)
        m.output(y[0], y[1], y[2])


def _quantised(m: Model) -> None:
    def real(codes: Symbol, scale: float, zero: Any) -> Symbol:
        return m.op("DequantizeLinear", codes, m.const(np.float32(scale)), m.const(zero))

    def coded(x: Symbol, scale: float) -> Symbol:
        return m.op("QuantizeLinear", x, m.const(np.float32(scale)), m.const(np.uint8(0)))

    def weights(*shape: int) -> Symbol:
        return real(m.weights(*shape, dtype=np.int8), 2.0**-8, np.int8(0))

    x = real(coded(m.op("Abs", m.input(1, 8, 12, 12)), 2.0**-6), 2.0**-6, np.uint8(0))
    x = m.op("Relu", m.op("Conv", x, weights(16, 8, 3, 3), **_SAME))
    x = real(coded(x, 2.0**-4), 2.0**-4, np.uint8(0))
    x = m.op("Relu", m.op("Conv", x, weights(16, 1, 3, 3), group=16, **_SAME))
    x = real(coded(x, 2.0**-4), 2.0**-4, np.uint8(0))
    y = real(coded(m.op("Conv", x, weights(16, 16, 1, 1)), 2.0**-3), 2.0**-3, np.uint8(0))
    y = real(coded(m.op("Add", x, y), 2.0**-3), 2.0**-3, np.uint8(0))
    y = real(coded(m.op("Sigmoid", y), 2.0**-8), 2.0**-8, np.uint8(0))
    m.output(coded(m.op("GlobalAveragePool", y), 2.0**-8))


def _hybrid(m: Model) -> None:
    x = m.input(7, 40)
    for depth, columns in ((40, 64), (64, 24)):
        small = m.op("DynamicQuantizeLinear", x, n_outputs=3)
        weights = m.weights(depth, columns, dtype=np.int8)
        sums = m.op("MatMulInteger", small[0], weights, small[2], m.const(np.int8(0)))
        factor = m.op("Mul", small[1], m.const(np.float32(2.0**-8)))
        x = m.op("Relu", m.op("Mul", m.op("Cast", sums, to=1), factor))
    m.output(x)


def _state() -> Graph:
    build = GraphBuilder("state")
    x = build.input("x", DType.F32, (1, 16))
    state = build.variable("h", np.zeros((1, 16), np.float32))
    product = build.op("MatMul", state, build.const(counted((16, 16))))
    after = build.op("Tanh", build.op("Add", product, x))
    build.assign("h", after)
    build.output("y", build.op("Exp", after))
    return build.finish()


_IF = """
<ir_version: 10, opset_import: ["" : 21]>
branches (float[2,4] x, bool c) => (float[2,4] y) {
  a = Exp(x)
  m = If (c) <
    then_branch = yes () => (float[2,4] p) { p = Mul(a, x) },
    else_branch = no () => (float[2,4] r) { t = Neg(x) r = Softmax(t) }
  >
  y = Tanh(m)
}"""
_SCAN = """
<ir_version: 10, opset_import: ["" : 21]>
scan (float[1,4] start, float[6,1,4] steps) => (float[1,4] last, float[6,1,4] all) {
  last, all = Scan <num_scan_inputs = 1,
    body = turn (float[1,4] h, float[1,4] x) => (float[1,4] k, float[1,4] s) {
      p = Add(h, x)
      k = Tanh(p)
      s = Exp(k)
    }> (start, steps)
}"""

_COUNTED = """
<ir_version: 10, opset_import: ["" : 21]>
counted (float[4,6] x, int64[30] labels, float[9] table) => (float[9] y, int64[n] values) {
  at = NonZero(x)
  rows = Transpose <perm = [1, 0]> (at)
  picked = GatherND(x, rows)
  last = Constant <value_ints = [-1]> ()
  whole = Cast <to = 7> (picked)
  place = Unsqueeze(whole, last)
  y = ScatterND(table, place, picked)
  values, first, inverse, counts = Unique <sorted = 0> (labels)
}"""


def _finished(name: str, add: Callable[[Model], None]) -> Graph:
    model = Model(name)
    add(model)
    return model.finish()


def _read(text: str) -> Graph:
    return read_onnx(parser.parse_model(text))


_INTEGER: Mapping[str, Callable[[Model], None]] = {
    "hybrid": _hybrid,
    "integer_convolutions": _integer_convolutions,
    "integer_depthwise": _integer_depthwise,
    "integer_others": _integer_others,
    "integer_products": _integer_products,
    "grouped_attention": _grouped_attention,
    "packed_products": _packed_products,
    "quantised": _quantised,
}


def models() -> dict[str, Callable[[], Graph]]:
    """All models by name; each call makes one anew."""
    made = {
        name: functools.partial(_finished, name, add) for name, add in {**REAL, **_INTEGER}.items()
    }
    return {
        **made,
        "counted": functools.partial(_read, _COUNTED),
        "branches": functools.partial(_read, _IF),
        "scan": functools.partial(_read, _SCAN),
        "state": _state,
    }
