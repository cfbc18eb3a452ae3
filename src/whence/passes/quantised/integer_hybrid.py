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
from whence.graph.maker import Maker
from whence.ops.attributes import get_int, get_str
from whence.ops.registry import operators
from whence.ops.traits import Trait
from whence.passes.operands import PRODUCTS
from whence.passes.origins import absorbing
from whence.passes.parameters import only_multiplies
from whence.passes.pattern import dtype_of, shape_of
from whence.passes.quantised.integer_sums import whole_bytes
from whence.passes.quantised.quantised_op import BYTES, QuantisedOperand, operand_of, scales_along
from whence.types import DType

HYBRIDS = operators(Trait.CONVOLUTION, Trait.CHANNELS_LAST) | PRODUCTS


def rewrite_hybrid(node: Node, rewriter: Rewriter) -> bool:
    """True when the rule applied."""
    graph = rewriter.graph
    x, w = node.first_input, operand_of(graph, node.operand("W", "B"))
    shape = shape_of(graph, x)
    if (
        shape is None
        or dtype_of(graph, x) is not DType.F32
        or w is None
        or w.shape is None
        or w.coding.dtype not in BYTES
    ):
        return False
    asked, is_conv = get_str(w.node.attrs, "arithmetic", ""), node.op == "ChannelsLastConv"
    if not asked.startswith("hybrid") or not only_multiplies(node):
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
    if is_conv and has_zero and shape[0] != 1:
        return False
    if w.value is None and (is_conv or has_zero):
        return False
    rule = "f(x, dequantise(w)) = f(codes of x, w) · scales"
    make = Maker(absorbing(rewriter, [w.node, node], rule), [w.node, node])
    axes = np.arange(1, len(shape)) if is_conv else np.array([len(shape) - 1])
    codes, scale, zero = (_asymmetric if has_zero else _symmetric)(make, x, axes)
    sums = _sums(make, node, codes, zero, w, transposed)
    real = make("Mul", make.cast(sums, DType.F32), make("Mul", scale, w.coding.scale))
    bias = node.operand("B") if is_conv else node.operand("C")
    if bias is not None:
        real = make("Add", real, bias)
    return make.edit.finish(node.ref(), real)


def _sums(
    make: Maker, node: Node, codes: Ref, zero: Ref | None, w: QuantisedOperand, transposed: bool
) -> Ref:
    if w.value is None:
        weights = make("Transpose", w.codes) if transposed else w.codes
        return make("MatMulInteger", codes, weights)
    value = w.value
    if node.op != "ChannelsLastConv":
        sums = make("MatMulInteger", codes, whole_bytes(value.T if transposed else value))
        if zero is None:
            return sums
        columns = value.astype(np.int32).sum(axis=1 if transposed else 0, dtype=np.int32)
        return make("Sub", sums, make("Mul", make.cast(zero, DType.I32), columns))
    inputs = [codes, make.edit.const(whole_bytes(np.moveaxis(value, 1, -1)))]
    if zero is not None:
        inputs.append(make("Reshape", make.cast(zero, DType.I8), np.empty(0, np.int64)))
    attrs = {name: each for name, each in node.attrs.items() if name != "kernel_shape"}
    return make.edit.node("IntegerConv", inputs, attrs, of=make.of, name=node.name).ref()


def _codes(make: Maker, value: Ref) -> Ref:
    """To the nearest code, halves away from zero."""
    return make("QuantizeLinear", value, np.float32(1), np.int8(0), arithmetic="fixed_point")


def _symmetric(make: Maker, x: Ref, axes: np.ndarray) -> tuple[Ref, Ref, Ref | None]:
    """Codes from -127 to 127, and their scale."""
    most = make("ReduceMax", make("Abs", x), axes, keepdims=1)
    top = make.edit.const(np.float32(127))
    most = make("Where", make("Equal", most, np.float32(0)), top, most)
    return _codes(make, make("Mul", x, make("Div", top, most))), make("Div", most, top), None


def _asymmetric(make: Maker, x: Ref, axes: np.ndarray) -> tuple[Ref, Ref, Ref | None]:
    """Codes from -128 to 127, their scale and their zero point, which is in float32. The zero point
    is found in double precision.
    """
    none = make.edit.const(np.float64(0))
    low = make("Min", make.cast(make("ReduceMin", x, axes, keepdims=1), DType.F64), none)
    high = make("Max", make.cast(make("ReduceMax", x, axes, keepdims=1), DType.F64), none)
    is_flat = make("Equal", low, high)
    step = make("Div", make("Sub", high, low), np.float64(255))
    step = make("Where", is_flat, np.float64(1), step)
    first, last = make("Div", low, step), make("Div", high, step)
    from_low, from_high = (
        make("Sub", np.float64(end), place) for end, place in ((-128, first), (127, last))
    )
    # Of both ends the one whose numbers are smaller is rounded less.
    low_error = make("Add", np.float64(128), make("Abs", first))
    high_error = make("Add", np.float64(127), make("Abs", last))
    zero = make("Where", make("Less", low_error, high_error), from_low, from_high)
    zero = make("Clip", zero, np.float64(-128), np.float64(127))
    size = make("Floor", make("Add", make("Abs", zero), np.float64(0.5)))
    zero = make("Where", is_flat, none, make("Mul", make("Sign", zero), size))
    zero, scale = make.cast(zero, DType.F32), make.cast(step, DType.F32)
    inverse = make("Div", np.float32(1), scale)
    return _codes(make, make("Add", make("Mul", x, inverse), zero)), scale, zero
