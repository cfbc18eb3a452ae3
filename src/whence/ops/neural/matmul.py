"""Matrix products: MatMul, Gemm, Einsum, their integer forms, and the determinant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from whence.errors import ModelError
from whence.ops.attributes import get_float, get_int, get_str
from whence.ops.definition import Call, OpClass, OpDef, Pattern, TypeQuery, Value, count, sizes
from whence.ops.operand import CODING, DATA, UNARY, named, variadic
from whence.ops.precision import narrow, optional_tensor, rounded_once, tensor, widen
from whence.ops.quantised.quantise import centred, requantise
from whence.ops.traits import Trait
from whence.ops.types.spatial_rules import gemm as infer_gemm
from whence.ops.types.type_rules import matmul as infer_matmul
from whence.types import DType, ValueType


def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """`a @ b` with NumPy's broadcasting, in the operands' own type."""
    if a.ndim > 2 and b.ndim == 2 and a.size:
        # One large product instead of one small product per matrix of the stack.
        return np.asarray(a.reshape(-1, a.shape[-1]) @ b).reshape(*a.shape[:-1], b.shape[1])
    return np.asarray(np.matmul(a, b))


def wrap_int32(exact: np.ndarray) -> np.ndarray:
    """Whole numbers in float64 as int32, overflow wrapping around as 32-bit accumulators do."""
    return exact.astype(np.int64).astype(np.int32)


def _matmul(call: Call) -> Value:
    a, b = tensor(call, 0), tensor(call, 1)
    return narrow(multiply(widen(a), widen(b)), a.dtype)


def gemm(call: Call) -> np.ndarray:
    """alpha · A' · B' + beta · C in the working type; inputs and attributes as ONNX's Gemm."""
    a, b, c = widen(tensor(call, 0)), widen(tensor(call, 1)), optional_tensor(call, 2)
    alpha, beta = get_float(call.attrs, "alpha", 1.0), get_float(call.attrs, "beta", 1.0)
    a = a.T if get_int(call.attrs, "transA", 0) else a
    b = b.T if get_int(call.attrs, "transB", 0) else b
    y = np.asarray(a @ b)
    if alpha != 1.0:
        y = (y * alpha).astype(y.dtype, copy=False)
    if c is not None and beta != 0.0:
        c = widen(c)
        y = y + (c if beta == 1.0 else (c * beta).astype(c.dtype, copy=False))
    return y


def _gemm(call: Call) -> Value:
    return narrow(gemm(call), tensor(call, 0).dtype)


def _einsum(call: Call) -> Value:
    operands = [tensor(call, index) for index in range(len(call.inputs))]
    equation = get_str(call.attrs, "equation", "").replace(" ", "")
    try:
        result = np.einsum(equation, *(widen(operand) for operand in operands), optimize=True)
    except ValueError as error:
        raise ModelError(
            f"{call.op}: equation {equation!r} does not fit its operands: {error}"
        ) from error
    return narrow(np.asarray(result), operands[0].dtype)


def _per_row(parameter: np.ndarray) -> np.ndarray:
    """A left-hand parameter that broadcasts against its matrix: a vector has one per row."""
    if parameter.size == 1:
        return parameter.reshape(())
    if parameter.ndim == 1:
        return parameter[:, np.newaxis]
    return parameter


def _per_column(parameter: np.ndarray) -> np.ndarray:
    """A right-hand parameter that broadcasts against its matrix: a vector has one per column."""
    return parameter.reshape(()) if parameter.size == 1 else parameter


def _matmul_integer(call: Call) -> Value:
    a_zero, b_zero = optional_tensor(call, 2), optional_tensor(call, 3)
    a = centred(tensor(call, 0), None if a_zero is None else _per_row(a_zero))
    b = centred(tensor(call, 1), None if b_zero is None else _per_column(b_zero))
    return wrap_int32(multiply(a, b))


def _qlinear_matmul(call: Call) -> Value:
    a = centred(tensor(call, 0), _per_row(tensor(call, 2)))
    b = centred(tensor(call, 3), _per_column(tensor(call, 5)))
    a_scale, b_scale, y_scale = (tensor(call, index).astype(np.float32) for index in (1, 4, 6))
    y_zero = tensor(call, 7)
    scale = _per_row(a_scale) * _per_column(b_scale) / _per_column(y_scale)
    return requantise(
        multiply(a, b).astype(np.float32) * scale, _per_column(y_zero), DType.of(y_zero)
    )


def matmul_flops(query: TypeQuery, outputs: Sequence[ValueType], left: int = 0) -> int:
    """Two operations per multiply-add; the last axis of input `left` is summed over."""
    transposed = get_int(query.attrs, "transA", 0) or get_int(query.attrs, "trans_a", 0)
    return 2 * count(outputs[0]) * sizes(query.types[left])[-2 if transposed else -1]


def _einsum_flops(query: TypeQuery, outputs: Sequence[ValueType]) -> int:
    """One multiplication per operand and one addition for each point of the index space."""
    terms = get_str(query.attrs, "equation", "").replace(" ", "").split("->")[0].split(",")
    extents: dict[str, int] = {}
    for term, kind in zip(terms, query.types, strict=False):
        shape = sizes(kind)
        before, dots, after = term.partition("...")
        hidden = len(shape) - len(before) - len(after)
        labels = [
            *before,
            *(f"...{hidden - position}" for position in range(hidden if dots else 0)),
            *after,
        ]
        for label, extent in zip(labels, shape, strict=False):
            extents[label] = max(extents.get(label, 1), extent)
    return len(terms) * math.prod(extents.values())


def _det_flops(query: TypeQuery, outputs: Sequence[ValueType]) -> int:
    *batch, _, size = sizes(query.types[0])
    return math.prod(batch) * 2 * size**3 // 3


_product = partial(
    OpDef,
    pattern=Pattern.OUT_ELEMWISE_FUSABLE,
    classes=OpClass.MATMUL,
    flops=matmul_flops,
    traits=Trait.PRODUCT,
)
_quantised = partial(OpDef, classes=OpClass.MATMUL | OpClass.QUANTISE, flops=matmul_flops)
OPS: tuple[OpDef, ...] = (
    _product(
        "MatMul",
        infer=infer_matmul,
        reference=_matmul,
        operands=named("A", "B"),
        traits=Trait.PRODUCT | Trait.ROW_WISE,
    ),
    _product("Gemm", infer=infer_gemm, reference=_gemm, operands=named("A", "B", "C")),
    OpDef(
        "Einsum",
        classes=OpClass.MATMUL,
        reference=_einsum,
        flops=_einsum_flops,
        operands=variadic("Inputs"),
    ),
    _quantised(
        "MatMulInteger",
        pattern=Pattern.OUT_ELEMWISE_FUSABLE,
        reference=_matmul_integer,
        operands=named("A", "B", a_zero_point=CODING, b_zero_point=CODING),
    ),
    _quantised(
        "QLinearMatMul",
        reference=_qlinear_matmul,
        operands=named(
            "a",
            a_scale=CODING,
            a_zero_point=CODING,
            b=DATA,
            b_scale=CODING,
            b_zero_point=CODING,
            y_scale=CODING,
            y_zero_point=CODING,
        ),
    ),
    OpDef(
        "Det",
        reference=rounded_once(lambda x, _: np.linalg.det(x)),
        flops=_det_flops,
        operands=UNARY,
    ),
)
