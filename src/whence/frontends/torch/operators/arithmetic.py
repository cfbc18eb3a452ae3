"""Arithmetic, comparisons and logic of two tensors, or of a tensor and a number."""

from __future__ import annotations

from functools import partial

import numpy as np

from whence.frontends.floor_division import floor_quotient, floor_remainder
from whence.frontends.torch.call import AtenCall, Mappings, Value, is_node
from whence.frontends.torch.tensors import dtype_of
from whence.graph.node import Ref
from whence.types import DType


def _common_dtype(call: AtenCall, *names: str) -> DType:
    """The element type that PyTorch compares or divides two operands in."""
    import torch

    left, right = (call.meta(name) for name in names)
    return dtype_of(torch.result_type(_example(left), _example(right)))


def _example(meta: object) -> object:
    """A stand-in for a number that is computed from shapes."""
    name = type(meta).__name__
    return {"SymInt": 1, "SymFloat": 1.0, "SymBool": True}.get(name, meta)


def _binary(call: AtenCall, op: str, logical: str = "") -> Value:
    """`logical` is what the operator is for truth values, if there is such a thing."""
    chosen = logical if logical and call.out_dtype is DType.BOOL else op
    return call.emit(chosen, call.sides())


def _add(call: AtenCall, op: str) -> Value:
    left, right = call.sides()
    return call.op(op, left, call.scaled(right, "alpha"))


def _rsub(call: AtenCall) -> Value:
    left, right = call.sides()
    return call.op("Sub", right, call.scaled(left, "alpha"))


def _divide(call: AtenCall) -> Value:
    left, right = call.sides()
    mode = call.plain("rounding_mode")
    if mode == "floor":
        return floor_quotient(call, left, right)
    quotient = call.op("Div", left, right)
    if mode == "trunc" and call.out_dtype.is_float:
        return truncated(call, quotient)
    return quotient


def truncated(call: AtenCall, x: Ref) -> Ref:
    """Towards zero, to a whole number."""
    size = call.op("Floor", call.op("Abs", x))
    return call.op("Mul", size, call.op("Sign", x))


def _power(call: AtenCall) -> Value:
    base, exponent = call.promoted("self"), call.args["exponent"]
    if exponent == 2 and not is_node(exponent):
        return call.op("Mul", base, base)
    return call.op("Pow", base, call.promoted("exponent"))


def _addc(call: AtenCall, op: str) -> Value:
    part = call.op(op, call.promoted("tensor1"), call.promoted("tensor2"))
    return call.op("Add", call.promoted("self"), call.scaled(part, "value"))


def _lerp(call: AtenCall) -> Value:
    start, end = call.promoted("self"), call.promoted("end")
    way = call.op("Mul", call.op("Sub", end, start), call.promoted("weight"))
    return call.op("Add", start, way)


def _hypotenuse(call: AtenCall) -> Value:
    squares = [call.op("Mul", side, side) for side in call.sides()]
    return call.op("Sqrt", call.emit("Add", squares))


def _shift(call: AtenCall, direction: str) -> Value:
    left, right = call.sides()
    scale = call.op("Pow", call.const(np.array(2, call.out_dtype.numpy)), right)
    if direction == "left":
        return call.op("Mul", left, scale)
    return floor_quotient(call, left, scale)


def _compare(call: AtenCall, op: str) -> Value:
    dtype = _common_dtype(call, "self", "other")
    if dtype is DType.BOOL and op not in ("Equal", "NotEqual"):
        dtype = DType.I32
    sides = call.sides(dtype)
    if op == "NotEqual":
        return call.op("Not", call.emit("Equal", sides))
    return call.emit(op, sides)


def _logical(call: AtenCall, op: str) -> Value:
    return call.emit(op, call.sides(DType.BOOL))


def _where(call: AtenCall) -> Value:
    if not call.has("self"):
        call.unsupported("the positions that a condition holds at, whose number is not known")
    return call.op("Where", call.promoted("condition", DType.BOOL), *call.sides())


def _masked_fill(call: AtenCall) -> Value:
    x, value = call.ref("self"), call.promoted("value")
    return call.op("Where", call.promoted("mask", DType.BOOL), value, x)


def _triangle(call: AtenCall, upper: int) -> Value:
    diagonal = call.args.get("diagonal") or 0
    where = call.value(diagonal) if is_node(diagonal) else call.numbers(int(diagonal))
    return call.op("Trilu", call.ref("self"), call.reshape(where), upper=upper)


MAPPINGS: Mappings = {
    "aten::add": partial(_add, op="Add"),
    "aten::sub": partial(_add, op="Sub"),
    "aten::rsub": _rsub,
    "aten::mul": partial(_binary, op="Mul", logical="And"),
    "aten::div": _divide,
    "aten::true_divide": _divide,
    "aten::floor_divide": lambda call: floor_quotient(call, *call.sides()),
    "aten::remainder": lambda call: floor_remainder(call, *call.sides()),
    "aten::fmod": lambda call: call.emit("Mod", call.sides(), {"fmod": 1}),
    "aten::pow": _power,
    "aten::maximum": partial(_binary, op="Max", logical="Or"),
    "aten::minimum": partial(_binary, op="Min", logical="And"),
    "aten::addcmul": partial(_addc, op="Mul"),
    "aten::addcdiv": partial(_addc, op="Div"),
    "aten::lerp": _lerp,
    "aten::hypot": _hypotenuse,
    "aten::bitwise_and": partial(_binary, op="BitwiseAnd", logical="And"),
    "aten::bitwise_or": partial(_binary, op="BitwiseOr", logical="Or"),
    "aten::bitwise_xor": partial(_binary, op="BitwiseXor", logical="Xor"),
    "aten::__and__": partial(_binary, op="BitwiseAnd", logical="And"),
    "aten::__or__": partial(_binary, op="BitwiseOr", logical="Or"),
    "aten::__xor__": partial(_binary, op="BitwiseXor", logical="Xor"),
    "aten::__lshift__": partial(_shift, direction="left"),
    "aten::__rshift__": partial(_shift, direction="right"),
    "aten::bitwise_left_shift": partial(_shift, direction="left"),
    "aten::bitwise_right_shift": partial(_shift, direction="right"),
    "aten::eq": partial(_compare, op="Equal"),
    "aten::ne": partial(_compare, op="NotEqual"),
    "aten::lt": partial(_compare, op="Less"),
    "aten::le": partial(_compare, op="LessOrEqual"),
    "aten::gt": partial(_compare, op="Greater"),
    "aten::ge": partial(_compare, op="GreaterOrEqual"),
    "aten::logical_and": partial(_logical, op="And"),
    "aten::logical_or": partial(_logical, op="Or"),
    "aten::logical_xor": partial(_logical, op="Xor"),
    "aten::logical_not": lambda call: call.op("Not", call.promoted("self", DType.BOOL)),
    "aten::where": _where,
    "aten::masked_fill": _masked_fill,
    "aten::tril": partial(_triangle, upper=0),
    "aten::triu": partial(_triangle, upper=1),
}
