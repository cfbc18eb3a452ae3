"""Operators on quantised tensors, said as dequantise, compute, quantise, and the LSTM with
quantised weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from whence.frontends.onnx.microsoft.fused import with_channels_second
from whence.frontends.onnx.record import OpRecord, Restate, Rewrite, as_named
from whence.frontends.onnx.upgrades.quantised import qlinear_conv
from whence.frontends.onnx.upgrades.softmax import as_result, flattened, shape_with
from whence.ops.definition import Attr
from whence.types import DType


def _real(build: Rewrite, first: int, **attrs: Attr) -> str:
    """The real numbers behind the inputs (values, scale, zero point) from `first` on."""
    record = build.record
    return build.op(
        "DequantizeLinear",
        record.required(first),
        record.required(first + 1),
        record.input(first + 2),
        **attrs,
    )


def _quantise(build: Rewrite, data: str, scale: int = 3, like: int = 0) -> list[OpRecord]:
    """The record's result: `data` quantised by the inputs `scale` and the next, its zero point; in
    the type of that, or of input `like`.
    """
    record, attrs = build.record, dict[str, Attr]()
    dtype = build.dtype(record.required(like))
    if not record.input(scale + 1) and dtype is not None:
        attrs["output_dtype"] = int(dtype)
    inputs = (record.required(scale), record.input(scale + 1))
    return build.result("QuantizeLinear", data, *inputs, **attrs)


def _binary(record: OpRecord, build: Rewrite, op: str) -> Sequence[OpRecord]:
    return _quantise(build, build.op(op, _real(build, 0), _real(build, 3)), 6)


def _unary(record: OpRecord, build: Rewrite, op: str) -> Sequence[OpRecord]:
    data = build.op(op, _real(build, 0), **record.attrs)
    return _quantise(build, data)


def _pool(record: OpRecord, build: Rewrite, op: str) -> Sequence[OpRecord]:
    attrs = record.attrs_without("channels_last")
    data = with_channels_second(
        build,
        _real(build, 0),
        lambda data: build.op(op, data, **attrs),
        are_last=bool(record.integer("channels_last", 0)),
    )
    return _quantise(build, data)


def _concat(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    parts = [_real(build, first) for first in range(2, len(record.inputs) - 1, 3)]
    return _quantise(build, build.op("Concat", *parts, axis=record.integer("axis", 0)), 0, 2)


def _softmax(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    axis = record.integer("axis", -1)
    if record.integer("opset", 13) >= 13:
        return _quantise(build, build.op("Softmax", _real(build, 0), axis=axis))
    shape = shape_with(build, record.required(0), axis)
    return _quantise(build, flattened(build, "Softmax", _real(build, 0), axis, shape))


def _where(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    data = build.op("Where", record.required(0), _real(build, 1), _real(build, 4))
    return _quantise(build, data, 7, 1)


def _reduce_mean(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    axes = record.integers("axes")
    data = build.op(
        "ReduceMean",
        _real(build, 0),
        build.ints(*axes) if axes else "",
        keepdims=record.integer("keepdims", 1),
    )
    return _quantise(build, data)


def _conv(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    def convolved(data: str) -> str:
        plain = record.with_(
            inputs=[data, *record.inputs[1:]],
            outputs=[build.scope.fresh(f"{record.name}/QLinearConv")],
            attrs=record.attrs_without("channels_last"),
        )
        build.records.extend(qlinear_conv(plain, Rewrite(plain, build.scope)))
        return plain.outputs[0]

    are_last = bool(record.integer("channels_last", 0))
    with_channels_second(build, record.required(0), convolved, are_last=are_last)
    return as_result(build)


def _gemm(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """alpha * a @ b + c, where c is in units of alpha * scale of a * scale of b; real numbers when
    no output scale is given.
    """
    alpha = record.number("alpha", 1.0)
    # One scale for each column of b, if not one for all: its rows when it is transposed.
    left, right = _real(build, 0), _real(build, 3, axis=0 if record.integer("transB", 0) else 1)
    *_, codes_of_bias, scale = record.operands(8)
    bias = ""
    if codes_of_bias:
        unit = build.op("Mul", record.required(1), record.required(4))
        if alpha != 1.0:
            unit = build.op("Mul", unit, build.like(alpha, record.required(1)))
        bias = build.op("DequantizeLinear", codes_of_bias, unit, axis=-1)
    attrs: dict[str, Attr] = {
        "alpha": alpha,
        "transA": record.integer("transA", 0),
        "transB": record.integer("transB", 0),
    }
    if not scale:
        return build.result("Gemm", left, right, bias, **attrs)
    return _quantise(build, build.op("Gemm", left, right, bias, **attrs), 7)


def _mat_mul_integer_to_float(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    *_, a_zero_point, b_zero_point, bias = record.operands(7)
    a, b, a_scale, b_scale = (record.required(index) for index in range(4))
    product = build.op("MatMulInteger", a, b, a_zero_point, b_zero_point)
    return _scaled(build, product, a_scale, b_scale, bias)


def _dynamic_quantise_mat_mul(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    data, scale, zero = build.multi("DynamicQuantizeLinear", 3, record.required(0))
    *_, b_zero_point, bias = record.operands(5)
    product = build.op("MatMulInteger", data, record.required(1), zero, b_zero_point)
    return _scaled(build, product, scale, record.required(2), bias)


def _scaled(
    build: Rewrite, product: str, left_scale: str, right_scale: str, bias: str
) -> list[OpRecord]:
    real = build.cast(product, DType.F32)
    scale = build.op("Mul", left_scale, right_scale)
    if not bias:
        return build.result("Mul", real, scale)
    return build.result("Add", build.op("Mul", real, scale), bias)


def _dynamic_quantise_lstm(record: OpRecord, build: Rewrite) -> Sequence[OpRecord]:
    """An LSTM with the real weights. ONNX Runtime also rounds the activations to 8 bits at every
    step, which only loses precision.
    """
    weight = _real_weights(build, record.required(1), record.required(8), record.required(9))
    recurrent = _real_weights(build, record.required(2), record.required(10), record.required(11))
    inputs = [
        record.required(0),
        weight,
        recurrent,
        *(record.input(index) for index in range(3, 8)),
    ]
    build.into(record.outputs, "LSTM", *inputs, **record.attrs)
    return build.records


def _real_weights(build: Rewrite, quantised: str, scale: str, zero: str) -> str:
    """The weights of [directions, depth, gates] as [directions, gates, depth]; a scale for each
    direction, or for each gate of each.
    """
    whole = build.rank(scale) == 1
    axes = build.ints(1, 2) if whole else build.ints(1)
    centred = build.op(
        "Sub",
        build.cast(quantised, DType.F32),
        build.cast(build.op("Unsqueeze", zero, axes), DType.F32),
    )
    return build.op(
        "Transpose", build.op("Mul", centred, build.op("Unsqueeze", scale, axes)), perm=(0, 2, 1)
    )


RESTATEMENTS: Mapping[str, Restate] = {
    "QuantizeLinear": as_named,
    "DequantizeLinear": as_named,
    "QLinearAdd": partial(_binary, op="Add"),
    "QLinearMul": partial(_binary, op="Mul"),
    "QLinearSigmoid": partial(_unary, op="Sigmoid"),
    "QLinearLeakyRelu": partial(_unary, op="LeakyRelu"),
    "QLinearAveragePool": partial(_pool, op="AveragePool"),
    "QLinearGlobalAveragePool": partial(_pool, op="GlobalAveragePool"),
    "QLinearConcat": _concat,
    "QLinearSoftmax": _softmax,
    "QLinearWhere": _where,
    "QLinearReduceMean": _reduce_mean,
    "QLinearConv": _conv,
    "QGemm": _gemm,
    "MatMulIntegerToFloat": _mat_mul_integer_to_float,
    "DynamicQuantizeMatMul": _dynamic_quantise_mat_mul,
    "DynamicQuantizeLSTM": _dynamic_quantise_lstm,
}
