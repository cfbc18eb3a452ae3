"""Real activations beside weights of 8 bits, as LiteRT has it: the activations get codes while the
model runs, each row or image a scale of its own.

1. conv(x, dq(w)) + b = float(integer_conv(codes of x, w)) · scales + b, likewise for products of
   matrices

What a file asks for is on the DequantizeLinear of the weights: `arithmetic` is "hybrid", or
"hybrid_asymmetric" when codes have a zero point too. Convolutions with a scale for each channel,
and all depthwise ones, have a zero point always.
"""

from __future__ import annotations

import numpy as np

from whence.graph import Node, Ref, Rewriter
from whence.graph.edit import Edit
from whence.ops.attributes import get_float, get_int, get_str
from whence.ops.registry import operators
from whence.ops.traits import Trait
from whence.passes.operands import consts_with_origin, tensor_of
from whence.passes.quantised.integer_sums import whole_bytes
from whence.passes.quantised.quantised_op import BYTES, QuantisedOperand, operand_of, scales_along
from whence.types import DType

HYBRIDS = operators(Trait.CONVOLUTION, Trait.CHANNELS_LAST) | (
    operators(Trait.PRODUCT) - operators(Trait.FUSED)
)


def rewrite_hybrid(node: Node, rewriter: Rewriter) -> bool:
    """True when the rule applied."""
    graph = rewriter.graph
    x, ref = node.inputs[0], node.operand("W", "B")
    kind, w = tensor_of(graph, x), None if ref is None else operand_of(graph, ref)
    if (
        x is None
        or kind is None
        or kind.dtype is not DType.F32
        or kind.rank is None
        or w is None
        or w.shape is None
        or w.coding.dtype not in BYTES
    ):
        return False
    asked, is_conv = get_str(w.node.attrs, "arithmetic", ""), node.op == "ChannelsLastConv"
    if (
        not asked.startswith("hybrid")
        or any(get_float(node.attrs, name, 1.0) != 1.0 for name in ("alpha", "beta"))
        or get_int(node.attrs, "transA", 0)
    ):
        return False
    transposed = not is_conv and bool(get_int(node.attrs, "transB", 0))
    if scales_along(w, 0 if is_conv or transposed else 1) is None or (
        not is_conv and len(w.shape) != 2
    ):
        return False
    has_zero = (
        asked == "hybrid_asymmetric"
        if not is_conv
        else not w.coding.is_single or get_int(node.attrs, "group", 1) > 1
    )
    # IntegerConv knows one zero point, so one image.
    if is_conv and has_zero and kind.shape is not None and kind.shape[0] != 1:
        return False
    if w.value is None and (is_conv or has_zero):
        return False
    absorbed = consts_with_origin(graph, [each for part in (w.node, node) for each in part.inputs])
    edit = rewriter.edit(
        *absorbed, w.node, node, rule="f(x, dequantise(w)) = f(codes of x, w) · scales"
    )
    maker = _Maker(
        edit, [w.node, node], tuple(range(1, kind.rank)) if is_conv else (kind.rank - 1,)
    )
    codes, scale, zero = maker.asymmetric(x) if has_zero else maker.symmetric(x)
    sums = _sums(maker, node, codes, zero, w, transposed)
    real = maker.op(
        "Mul", maker.cast(sums, DType.F32), maker.op("Mul", scale, maker.const(w.coding.scale))
    )
    bias = node.operand("B") if is_conv else node.operand("C")
    if bias is not None:
        real = maker.op("Add", real, bias)
    return edit.finish(node.ref(), real)


def _sums(
    maker: _Maker, node: Node, codes: Ref, zero: Ref | None, w: QuantisedOperand, transposed: bool
) -> Ref:
    if w.value is None:
        return maker.op(
            "MatMulInteger", codes, maker.op("Transpose", w.codes) if transposed else w.codes
        )
    value = w.value
    if node.op != "ChannelsLastConv":
        weights = maker.const(whole_bytes(value.T if transposed else value))
        sums = maker.op("MatMulInteger", codes, weights)
        if zero is None:
            return sums
        columns = maker.const(
            value.astype(np.int32).sum(axis=1 if transposed else 0, dtype=np.int32)
        )
        return maker.op("Sub", sums, maker.op("Mul", maker.cast(zero, DType.I32), columns))
    inputs = [codes, maker.const(whole_bytes(np.moveaxis(value, 1, -1)))]
    if zero is not None:
        inputs.append(
            maker.op("Reshape", maker.cast(zero, DType.I8), maker.const(np.empty(0, np.int64)))
        )
    attrs = {name: each for name, each in node.attrs.items() if name != "kernel_shape"}
    return maker.edit.node("IntegerConv", inputs, attrs, of=maker.of, name=node.name).ref()


class _Maker:
    """Nodes of one edit that all come from the same nodes."""

    def __init__(self, edit: Edit, of: list[Node], axes: tuple[int, ...]) -> None:
        self.edit, self.of, self._axes = edit, of, axes

    def op(self, op: str, *inputs: Ref) -> Ref:
        return self.edit.node(op, inputs, of=self.of).ref()

    def const(self, value: np.ndarray | np.generic) -> Ref:
        return self.edit.const(value)

    def cast(self, value: Ref, dtype: DType) -> Ref:
        return self.edit.node("Cast", [value], {"to": int(dtype)}, of=self.of).ref()

    def over(self, op: str, value: Ref) -> Ref:
        return self.edit.node(
            op, [value, self.const(np.array(self._axes, np.int64))], {"keepdims": 1}, of=self.of
        ).ref()

    def codes(self, value: Ref) -> Ref:
        """To the nearest code, halves away from zero."""
        inputs = [value, self.const(np.float32(1)), self.const(np.int8(0))]
        return self.edit.node(
            "QuantizeLinear", inputs, {"arithmetic": "fixed_point"}, of=self.of
        ).ref()

    def symmetric(self, x: Ref) -> tuple[Ref, Ref, Ref | None]:
        """Codes from -127 to 127, and their scale."""
        most, top = self.over("ReduceMax", self.op("Abs", x)), self.const(np.float32(127))
        most = self.op("Where", self.op("Equal", most, self.const(np.float32(0))), top, most)
        return (
            self.codes(self.op("Mul", x, self.op("Div", top, most))),
            self.op("Div", most, top),
            None,
        )

    def asymmetric(self, x: Ref) -> tuple[Ref, Ref, Ref | None]:
        """Codes from -128 to 127, their scale and their zero point, which is in float32. The zero
        point is found in double precision.
        """
        none, one = self.const(np.float64(0)), self.const(np.float64(1))
        low = self.op("Min", self.cast(self.over("ReduceMin", x), DType.F64), none)
        high = self.op("Max", self.cast(self.over("ReduceMax", x), DType.F64), none)
        is_flat = self.op("Equal", low, high)
        step = self.op("Div", self.op("Sub", high, low), self.const(np.float64(255)))
        step = self.op("Where", is_flat, one, step)
        first, last = self.op("Div", low, step), self.op("Div", high, step)
        from_low = self.op("Sub", self.const(np.float64(-128)), first)
        from_high = self.op("Sub", self.const(np.float64(127)), last)
        # Of both ends the one whose numbers are smaller is rounded less.
        low_error = self.op("Add", self.const(np.float64(128)), self.op("Abs", first))
        high_error = self.op("Add", self.const(np.float64(127)), self.op("Abs", last))
        zero = self.op("Where", self.op("Less", low_error, high_error), from_low, from_high)
        zero = self.op("Clip", zero, self.const(np.float64(-128)), self.const(np.float64(127)))
        size = self.op("Floor", self.op("Add", self.op("Abs", zero), self.const(np.float64(0.5))))
        zero = self.op("Where", is_flat, none, self.op("Mul", self.op("Sign", zero), size))
        zero, scale = self.cast(zero, DType.F32), self.cast(step, DType.F32)
        inverse = self.op("Div", self.const(np.float32(1)), scale)
        return self.codes(self.op("Add", self.op("Mul", x, inverse), zero)), scale, zero
