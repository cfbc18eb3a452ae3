"""Products of matrices."""

from __future__ import annotations

from whence.frontends.torch.call import AtenCall, Mapper
from whence.graph.node import Ref
from whence.ops.definition import Attr


def _linear(call: AtenCall) -> None:
    """x · weightᵀ + bias, over the last axis of x."""
    x, weight, bias = call.ref("input"), call.ref("weight"), call.optional("bias")
    if call.rank("input") == 2 and call.rank("weight") == 2:
        call.result(call.emit("Gemm", [x, weight, bias], {"transB": 1}))
        return
    transposed = call.transpose(weight, (1, 0)) if call.rank("weight") == 2 else weight
    product = call.emit("MatMul", [x, transposed])
    call.result(product if bias is None else call.emit("Add", [product, bias]))


def _matmul(call: AtenCall) -> None:
    right = "mat2" if "mat2" in call.args else "other"
    call.result(call.emit("MatMul", [call.ref("self"), call.ref(right)]))


def _addmm(call: AtenCall) -> None:
    attrs: dict[str, Attr] = {"alpha": call.real("alpha", 1.0), "beta": call.real("beta", 1.0)}
    attrs = {name: value for name, value in attrs.items() if value != 1.0}
    left, right, bias = call.ref("mat1"), call.ref("mat2"), call.ref("self")
    call.result(call.emit("Gemm", [left, right, bias], attrs))


def _baddbmm(call: AtenCall) -> None:
    product: Ref = call.emit("MatMul", [call.ref("batch1"), call.ref("batch2")])
    bias, dtype = call.ref("self"), call.out_dtype
    for name in ("alpha", "beta"):
        scale = call.real(name, 1.0)
        if scale == 1.0:
            continue
        if name == "alpha":
            product = call.emit("Mul", [product, call.number(scale, dtype)])
        else:
            bias = call.emit("Mul", [bias, call.number(scale, dtype)])
    # With beta = 0, PyTorch does not even look at the bias.
    call.result(product if call.real("beta", 1.0) == 0 else call.emit("Add", [bias, product]))


def _dot(call: AtenCall) -> None:
    call.result(call.emit("MatMul", [call.ref("self"), call.ref("tensor")]))


MAPPINGS: dict[str, Mapper] = {
    "aten::linear": _linear,
    "aten::matmul": _matmul,
    "aten::mm": _matmul,
    "aten::bmm": _matmul,
    "aten::addmm": _addmm,
    "aten::baddbmm": _baddbmm,
    "aten::mv": lambda call: call.result(call.emit("MatMul", [call.ref("self"), call.ref("vec")])),
    "aten::dot": _dot,
}
