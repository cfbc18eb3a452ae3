"""Comparisons, logic, and choosing by a condition."""

from __future__ import annotations

from whence.frontends.torch.call import AtenCall, Mapper, is_node
from whence.frontends.torch.operators.arithmetic import common_dtype
from whence.types import DType


def _compare(op: str) -> Mapper:
    def mapper(call: AtenCall) -> None:
        dtype = common_dtype(call, "self", "other")
        if dtype is DType.BOOL and op not in ("Equal", "NotEqual"):
            dtype = DType.I32
        sides = [call.operand("self", dtype), call.operand("other", dtype)]
        if op == "NotEqual":
            call.result(call.emit("Not", [call.emit("Equal", sides)]))
        else:
            call.result(call.emit(op, sides))

    return mapper


def _logical(op: str) -> Mapper:
    def mapper(call: AtenCall) -> None:
        sides = [call.operand("self", DType.BOOL), call.operand("other", DType.BOOL)]
        call.result(call.emit(op, sides))

    return mapper


def _logical_not(call: AtenCall) -> None:
    call.result(call.emit("Not", [call.operand("self", DType.BOOL)]))


def _where(call: AtenCall) -> None:
    if not call.has("self"):
        call.unsupported("the positions that a condition holds at, whose number is not known")
    dtype = call.out_dtype
    condition = call.operand("condition", DType.BOOL)
    sides = [call.operand("self", dtype), call.operand("other", dtype)]
    call.result(call.emit("Where", [condition, *sides]))


def _masked_fill(call: AtenCall) -> None:
    x, value = call.ref("self"), call.operand("value", call.out_dtype)
    call.result(call.emit("Where", [call.operand("mask", DType.BOOL), value, x]))


def _triangle(upper: int) -> Mapper:
    def mapper(call: AtenCall) -> None:
        diagonal = call.args.get("diagonal") or 0
        where = call.value(diagonal) if is_node(diagonal) else call.numbers(int(diagonal))
        call.result(call.emit("Trilu", [call.ref("self"), call.reshape(where)], {"upper": upper}))

    return mapper


MAPPINGS: dict[str, Mapper] = {
    "aten::eq": _compare("Equal"),
    "aten::ne": _compare("NotEqual"),
    "aten::lt": _compare("Less"),
    "aten::le": _compare("LessOrEqual"),
    "aten::gt": _compare("Greater"),
    "aten::ge": _compare("GreaterOrEqual"),
    "aten::logical_and": _logical("And"),
    "aten::logical_or": _logical("Or"),
    "aten::logical_xor": _logical("Xor"),
    "aten::logical_not": _logical_not,
    "aten::where": _where,
    "aten::masked_fill": _masked_fill,
    "aten::tril": _triangle(0),
    "aten::triu": _triangle(1),
}
