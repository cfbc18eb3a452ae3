"""Products of matrices."""

from __future__ import annotations

from whence.frontends.torch.call import AtenCall, Mappings, Value
from whence.ops.definition import Attr


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


MAPPINGS: Mappings = {
    "aten::linear": _linear,
    "aten::matmul": _matmul,
    "aten::mm": _matmul,
    "aten::bmm": _matmul,
    "aten::addmm": _addmm,
    "aten::baddbmm": _baddbmm,
    "aten::mv": lambda call: call.op("MatMul", call.ref("self"), call.ref("vec")),
    "aten::dot": lambda call: call.op("MatMul", call.ref("self"), call.ref("tensor")),
}
