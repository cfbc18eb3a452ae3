"""Sizes of tensors and arithmetic on them, choosing one of several results, and assertions."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import partial

from whence.frontends.floor_division import floor_quotient
from whence.frontends.torch.call import AtenCall, Mappings, Value, is_node, meta_of, scalar_dtype
from whence.types import DType


def _size(call: AtenCall) -> Value:
    if not call.has("dim"):
        call.unsupported("a whole shape as one value")
    axis = call.axis()
    fixed = call.meta("self").shape[axis]
    if isinstance(fixed, int):
        return fixed
    shape = call.op("Shape", call.ref("self"), start=axis, end=axis + 1)
    return call.reshape(shape)


def _getitem(call: AtenCall) -> Value:
    source, index = call.node.args
    found = call.reading.values[source.name]
    if not isinstance(found, list):
        call.unsupported("it picks a part of what is a single value here")
    ref = found[index]
    if ref is None:
        call.unsupported(
            f"result {index} of {source.target} is used, which whence does not compute"
        )
    return call.alias(ref)


def _arithmetic(call: AtenCall, op: str, compute: Callable[..., Value]) -> Value:
    """On plain numbers, at once; on sizes that are open, in the graph."""
    given = [call.known(each) for each in call.node.args]
    if not any(map(is_node, given)):
        return compute(*given)
    kinds = [scalar_dtype(meta_of(each)) for each in call.node.args]
    dtype = DType.F32 if DType.F32 in kinds or op == "TrueDiv" else DType.I64
    sides = [call.elements(each, dtype) for each in given]
    if op == "TrueDiv":
        return call.emit("Div", sides)
    if op == "FloorDiv":
        return floor_quotient(call, *sides)
    if op == "NotEqual":
        return call.op("Not", call.emit("Equal", sides))
    return call.emit(op, sides)


def _as_real(call: AtenCall) -> Value:
    known = call.known(call.node.args[0])
    return call.elements(known, DType.F32) if is_node(known) else float(known)


def _as_whole(call: AtenCall, rounding: Callable[[float], int] = int, op: str = "") -> Value:
    """Towards zero, or first rounded by an operator."""
    known = call.known(call.node.args[0])
    if not is_node(known):
        return rounding(known)
    number = call.value(known)
    is_real = call.tensor_type_of(number).dtype.is_float
    return call.cast(call.op(op, number) if op and is_real else number, DType.I64)


def _nothing(call: AtenCall) -> Value:
    """What PyTorch asserts of shapes follows from the shapes that kernels are made for; the check
    of values is its own.
    """
    return call.alias(None)


def _item(call: AtenCall) -> Value:
    """A single element as a plain number, known only while the model runs."""
    return call.reshape(call.ref("self"))


_SILENT = (
    "aten::_assert_async",
    "aten::_assert_scalar",
    "aten::_assert_tensor_metadata",
    "aten::sym_constrain_range",
    "aten::sym_constrain_range_for_size",
)

MAPPINGS: Mappings = {
    "aten::sym_size": _size,
    "aten::sym_numel": lambda call: call.op("Size", call.ref("self")),
    "aten::_local_scalar_dense": _item,
    "aten::item": _item,
    "python::getitem": _getitem,
    "python::add": partial(_arithmetic, op="Add", compute=operator.add),
    "python::sub": partial(_arithmetic, op="Sub", compute=operator.sub),
    "python::mul": partial(_arithmetic, op="Mul", compute=operator.mul),
    "python::floordiv": partial(_arithmetic, op="FloorDiv", compute=operator.floordiv),
    "python::truediv": partial(_arithmetic, op="TrueDiv", compute=operator.truediv),
    "python::mod": partial(_arithmetic, op="Mod", compute=operator.mod),
    "python::pow": partial(_arithmetic, op="Pow", compute=operator.pow),
    "python::neg": partial(_arithmetic, op="Neg", compute=operator.neg),
    "python::sym_max": partial(_arithmetic, op="Max", compute=max),
    "python::sym_min": partial(_arithmetic, op="Min", compute=min),
    "python::eq": partial(_arithmetic, op="Equal", compute=operator.eq),
    "python::ne": partial(_arithmetic, op="NotEqual", compute=operator.ne),
    "python::lt": partial(_arithmetic, op="Less", compute=operator.lt),
    "python::le": partial(_arithmetic, op="LessOrEqual", compute=operator.le),
    "python::gt": partial(_arithmetic, op="Greater", compute=operator.gt),
    "python::ge": partial(_arithmetic, op="GreaterOrEqual", compute=operator.ge),
    "python::sym_float": _as_real,
    "python::sym_int": _as_whole,
    "python::ceil": partial(_as_whole, rounding=math.ceil, op="Ceil"),
    "python::floor": partial(_as_whole, rounding=math.floor, op="Floor"),
    "python::trunc": _as_whole,
    **dict.fromkeys(_SILENT, _nothing),
}
