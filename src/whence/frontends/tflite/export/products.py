"""Products of matrices, and attention, which is said in products and a softmax."""

from __future__ import annotations

import math

import numpy as np

from whence.frontends.tflite.export.call import ExportCall, Exports
from whence.frontends.tflite.export.units import dequantise_before
from whence.frontends.tflite.schema import Option, activation_names
from whence.ops.attributes import get_str
from whence.types import DType, TensorType


def _fully_connected(call: ExportCall, weights: int, count: int, *, keep: bool) -> None:
    options: dict[str, Option] = {"weights_format": 0, "keep_num_dims": keep}
    if not call.is_quantised and not call.type_of_tensor(weights).is_float:
        # How a runtime that also quantises the input is to do it: as the file that the model came
        # from says, else with a zero point, as converters have asked for since 2020.
        made_by = dequantise_before(call.graph, call.node.operand("B"))
        said = "" if made_by is None else get_str(made_by.attrs, "arithmetic", "")
        options["asymmetric_quantize_inputs"] = said != "hybrid"
    bias = call.bias(call.bias_of_unit(), count, weights)
    version = (
        4 if call.is_quantised and call.type_of_tensor(weights) is DType.I8 else 2 if keep else 1
    )
    if not (keep and call.is_circle):
        call.emit("FULLY_CONNECTED", [call.input(0), weights, bias], options, version=version)
        return
    # onert takes the input for a matrix whatever the option says.
    made, shape = call.output(), call.output_shape()
    flat = call.between(
        TensorType(call.type_of_tensor(made), (math.prod(shape[:-1]), count)),
        call.codes_of_tensor(made),
    )
    source = call.reshaped(call.input(0), (math.prod(shape[:-1]), call.shape(0)[-1]))
    call.emit(
        "FULLY_CONNECTED",
        [source, weights, bias],
        {**options, "keep_num_dims": False, "fused_activation_function": call.activation},
        outputs=[flat],
        version=version,
    )
    call.emit_reshape(flat, shape, made)


def _gemm(call: ExportCall) -> None:
    """alpha · a · b + beta · c: fully connected with stored weights, else product and sum."""
    alpha, beta = call.number("alpha", 1.0), call.number("beta", 1.0)
    transposed = bool(call.integer("transB"))
    plain = alpha == 1.0 and (beta == 1.0 or not call.has(2)) and not call.integer("transA")
    rows = 0 if transposed else 1
    count = call.shape(1)[rows]
    row_bias = (
        not call.has(2)
        or call.shape(2) == (count,)
        or (call.value(2) is not None and call.shape(2) in ((1, count), (1,), ()))
    )
    if plain and row_bias:
        weights = call.weights(1, (0, 1) if transposed else (1, 0))
        if weights is None and transposed and not call.is_quantised:
            weights = call.input(1)
        if weights is not None:
            _fully_connected(call, weights, count, keep=False)
            return
    if call.is_quantised:
        call.unsupported("quantised, with weights that are not stored or with factors")
    _product_and_sum(call, alpha, beta)


def _product_and_sum(call: ExportCall, alpha: float, beta: float) -> None:
    kind = call.output_type()
    last = not call.has(2) and alpha == 1.0
    options: dict[str, Option] = {
        "adj_x": bool(call.integer("transA")),
        "adj_y": bool(call.integer("transB")),
    }
    if last and not call.activation:
        call.emit("BATCH_MATMUL", [call.input(0), call.input(1)], options)
        return
    made = call.step("BATCH_MATMUL", [call.input(0), call.input(1)], kind, options)
    if alpha != 1.0 or not call.has(2):
        factor = call.scalar(alpha, kind)
        if not call.has(2):
            call.emit("MUL", [made, factor])
            return
        made = call.step("MUL", [made, factor], kind)
    added = call.input(2)
    if beta != 1.0:
        added = call.step("MUL", [added, call.scalar(beta, kind)], call.type(2))
    call.emit("ADD", [made, added])


def _matmul(call: ExportCall) -> None:
    left, right = call.rank(0), call.rank(1)
    if left < 2 or right < 2:
        _with_vectors(call, left, right)
        return
    if right == 2:
        weights = call.weights(1, (1, 0))
        if weights is not None:
            _fully_connected(call, weights, call.shape(1)[1], keep=left != 2)
            return
    options: dict[str, Option] = {"adj_x": False, "adj_y": False}
    inputs = [call.input(0), call.input(1)]
    if left < right:
        # The operand with fewer dimensions comes second everywhere but here.
        shape = (1,) * (right - left) + call.shape(0)
        inputs[0] = call.reshaped(inputs[0], shape)
    elif right < left:
        inputs[1] = call.reshaped(inputs[1], (1,) * (left - right) + call.shape(1))
    version = 2 if call.is_quantised else 1
    if call.activation:
        if call.is_quantised:
            call.unsupported("a quantised product of two computed matrices with an activation")
        made = call.step("BATCH_MATMUL", inputs, call.output_type(), options, version)
        call.emit(activation_names()[call.activation], [made])
        return
    call.emit("BATCH_MATMUL", inputs, options, version=version)


def _with_vectors(call: ExportCall, left: int, right: int) -> None:
    """A vector on the left is a row, on the right a column; the added axis is removed."""
    if call.is_quantised or call.activation:
        call.unsupported("a product with a vector, quantised or with an activation")
    a, b = call.shape(0), call.shape(1)
    first = call.reshaped(call.input(0), (1, *a)) if left == 1 else call.input(0)
    second = call.reshaped(call.input(1), (*b, 1)) if right == 1 else call.input(1)
    shape = call.output_shape()
    full = (
        *shape[: len(shape) - (right != 1)],
        *((1,) if left == 1 else ()),
        *(shape[len(shape) - 1 :] if right != 1 else (1,)),
    )
    made = call.step(
        "BATCH_MATMUL",
        [first, second],
        TensorType(call.output_type().dtype, full),
        {"adj_x": False, "adj_y": False},
    )
    call.emit_reshape(made, shape)


_HIDDEN = -1e9
"""The score of a hidden key. Minus infinity would make NaN of a row without keys."""


def _attention(call: ExportCall) -> None:
    """softmax(scale · q · kᵀ + mask) · v over (batch, heads, sequence, size)."""
    others = range(1, len(call.node.outputs))
    if any(call.has(index) for index in (4, 5, 6)) or any(map(call.is_used, others)):
        call.unsupported("keys and values of former runs")
    if (
        call.rank(0) != 4
        or call.number("softcap", 0.0)
        or any(call.integer(f"{side}_window_size", -1) >= 0 for side in ("left", "right"))
    ):
        call.unsupported("packed heads, a limit on scores, or a window")
    batch, heads, queries, size = call.shape(0)
    keys = call.shape(1)[2]
    if call.shape(1)[1] != heads or call.shape(2)[1] != heads:
        call.unsupported("heads that share their keys")
    kind = call.type(0)
    scores_kind = TensorType(kind.dtype, (batch, heads, queries, keys))
    scaled = call.step(
        "MUL",
        [call.input(0), call.scalar(call.number("scale", 1 / math.sqrt(size)), kind)],
        kind,
    )
    scores = call.step(
        "BATCH_MATMUL", [scaled, call.input(1)], scores_kind, {"adj_x": False, "adj_y": True}
    )
    for mask in _masks(call, queries, keys):
        scores = call.step("ADD", [scores, mask], scores_kind)
    weights = call.step("SOFTMAX", [scores], scores_kind, {"beta": 1.0})
    call.emit(
        "BATCH_MATMUL",
        [weights, call.input(2)],
        {"adj_x": False, "adj_y": False},
        outputs=[call.output(0)],
    )


def _masks(call: ExportCall, queries: int, keys: int) -> list[int]:
    """What is added to the scores."""
    found = []
    if call.integer("is_causal"):
        found.append(call.const(np.triu(np.full((queries, keys), _HIDDEN, np.float32), 1)))
    if not call.has(3):
        return found
    kind = call.type(3)
    if call.shape(3)[-1] != keys:
        call.unsupported(f"a mask for {call.shape(3)[-1]} of {keys} keys")
    mask = call.input(3)
    if kind.dtype is DType.BOOL:
        numbers = TensorType(DType.F32, kind.shape)
        mask = call.step(
            "SELECT_V2", [mask, call.scalar(0, numbers), call.scalar(_HIDDEN, numbers)], numbers
        )
    return [*found, mask]


EXPORTS: Exports = {"Attention": _attention, "Gemm": _gemm, "MatMul": _matmul}
