"""Comparisons, logic, and choosing by a condition."""

from __future__ import annotations

from functools import partial

from whence.frontends.torch.call import AtenCall, Mappings, Value, is_node
from whence.frontends.torch.operators.arithmetic import common_dtype
from whence.types import DType


def _compare(call: AtenCall, op: str) -> Value:
    dtype = common_dtype(call, "self", "other")
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
    return call.op("Where", call.operand("condition", DType.BOOL), *call.sides(call.out_dtype))


def _masked_fill(call: AtenCall) -> Value:
    x, value = call.ref("self"), call.promoted("value")
    return call.op("Where", call.operand("mask", DType.BOOL), value, x)


def _triangle(call: AtenCall, upper: int) -> Value:
    diagonal = call.args.get("diagonal") or 0
    where = call.value(diagonal) if is_node(diagonal) else call.numbers(int(diagonal))
    return call.op("Trilu", call.ref("self"), call.reshape(where), upper=upper)


MAPPINGS: Mappings = {
    "aten::eq": partial(_compare, op="Equal"),
    "aten::ne": partial(_compare, op="NotEqual"),
    "aten::lt": partial(_compare, op="Less"),
    "aten::le": partial(_compare, op="LessOrEqual"),
    "aten::gt": partial(_compare, op="Greater"),
    "aten::ge": partial(_compare, op="GreaterOrEqual"),
    "aten::logical_and": partial(_logical, op="And"),
    "aten::logical_or": partial(_logical, op="Or"),
    "aten::logical_xor": partial(_logical, op="Xor"),
    "aten::logical_not": lambda call: call.op("Not", call.operand("self", DType.BOOL)),
    "aten::where": _where,
    "aten::masked_fill": _masked_fill,
    "aten::tril": partial(_triangle, upper=0),
    "aten::triu": partial(_triangle, upper=1),
}
