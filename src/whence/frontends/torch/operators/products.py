"""Products of matrices, and attention."""

from __future__ import annotations

from whence.frontends.torch.call import AtenCall, Mappings, Value
from whence.graph.node import Ref
from whence.ops.definition import Attr
from whence.types import DType


def _linear(call: AtenCall) -> Value:
    """x · weightᵀ + bias, over the last axis of x."""
    x, weight, bias = call.ref("input"), call.ref("weight"), call.optional("bias")
    if call.rank("input") == 2 and call.rank("weight") == 2:
        return call.op("Gemm", x, weight, bias, transB=1)
    transposed = call.transpose(weight, (1, 0)) if call.rank("weight") == 2 else weight
    product = call.op("MatMul", x, transposed)
    return product if bias is None else call.op("Add", product, bias)


def _matmul(call: AtenCall) -> Value:
    right = "mat2" if "mat2" in call.args else "other"
    return call.op("MatMul", call.ref("self"), call.ref(right))


def _addmm(call: AtenCall) -> Value:
    attrs: dict[str, Attr] = {"alpha": call.real("alpha", 1.0), "beta": call.real("beta", 1.0)}
    attrs = {name: value for name, value in attrs.items() if value != 1.0}
    left, right, bias = call.ref("mat1"), call.ref("mat2"), call.ref("self")
    return call.emit("Gemm", [left, right, bias], attrs)


def _baddbmm(call: AtenCall) -> Value:
    product = call.scaled(call.op("MatMul", call.ref("batch1"), call.ref("batch2")), "alpha")
    bias = call.scaled(call.ref("self"), "beta")
    # With beta = 0, PyTorch does not even look at the bias.
    return product if call.real("beta", 1.0) == 0 else call.op("Add", bias, product)


def _attention(call: AtenCall) -> Value:
    if call.real("dropout_p") > 0:
        call.unsupported("attention with dropout, as in training; call .eval() first")
    rank = call.rank("query")
    operands = [call.ref(name) for name in ("query", "key", "value")]
    mask = call.optional("attn_mask")
    attrs: dict[str, Attr] = {}
    if call.plain("is_causal"):
        attrs["is_causal"] = 1
    if (scale := call.plain("scale")) is not None:
        attrs["scale"] = float(scale)
    if mask is not None and call.dtype("attn_mask") is not DType.BOOL:
        mask = call.cast(mask, call.dtype("query"))
    if rank == 3:
        # One head for each sample.
        operands = [call.op("Unsqueeze", ref, call.numbers(1)) for ref in operands]
        if mask is not None and call.rank("attn_mask") == 3:
            mask = call.op("Unsqueeze", mask, call.numbers(1))
    elif rank != 4:
        call.unsupported(f"attention on tensors of {rank} dimensions")
    y: Ref = call.emit("Attention", [*operands, mask], attrs)
    if rank == 3:
        y = call.op("Squeeze", y, call.numbers(1))
    return call.alone(y)


MAPPINGS: Mappings = {
    "aten::linear": _linear,
    "aten::matmul": _matmul,
    "aten::mm": _matmul,
    "aten::bmm": _matmul,
    "aten::addmm": _addmm,
    "aten::baddbmm": _baddbmm,
    "aten::mv": lambda call: call.op("MatMul", call.ref("self"), call.ref("vec")),
    "aten::dot": lambda call: call.op("MatMul", call.ref("self"), call.ref("tensor")),
    "aten::scaled_dot_product_attention": _attention,
    "aten::_scaled_dot_product_flash_attention_for_cpu": _attention,
}
