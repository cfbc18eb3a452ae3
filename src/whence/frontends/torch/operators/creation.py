"""Tensors made from shapes and numbers."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from whence.frontends.torch.call import AtenCall, Mappings, Value, is_node
from whence.graph.node import Ref
from whence.types import DType


def _filled(call: AtenCall, dims: Any, value: Any) -> Value:
    dtype = call.out_dtype
    if not dims:
        return call.cast(call.value(value), dtype) if is_node(value) else call.number(value, dtype)
    if is_node(value):
        shape = call.shape_value(dims)
        return call.op("Expand", call.cast(call.value(value), dtype), shape)
    fill = np.array([value]).astype(dtype.numpy)
    return call.op("ConstantOfShape", call.shape_value(dims), value=fill)


def _full(call: AtenCall) -> Value:
    return _filled(call, call.args["size"], call.args["fill_value"])


def _fixed(call: AtenCall, value: int) -> Value:
    return _filled(call, call.args["size"], value)


def _like(call: AtenCall, value: int | None) -> Value:
    given = call.args["fill_value"] if value is None else value
    dims = call.meta("self").shape
    if all(isinstance(dim, int) for dim in dims):
        return _filled(call, list(dims), given)
    shape = call.op("Shape", call.ref("self"))
    if is_node(given):
        return call.op("Expand", call.cast(call.value(given), call.out_dtype), shape)
    fill = np.array([given]).astype(call.out_dtype.numpy)
    return call.op("ConstantOfShape", shape, value=fill)


def _arange(call: AtenCall) -> Value:
    dtype = call.out_dtype
    begin: Any = call.args.get("start") or 0
    end: Any = call.args["end"]
    step: Any = call.args.get("step", 1)
    if not any(is_node(each) for each in (begin, end, step)):
        count = max(0, math.ceil((end - begin) / step))
        values = (begin + step * np.arange(count)).astype(dtype.numpy)
        return call.const(values)
    limits: list[Ref] = [_number(call, each, dtype) for each in (begin, end, step)]
    return call.emit("Range", limits)


def _number(call: AtenCall, given: Any, dtype: DType) -> Ref:
    if not is_node(given):
        return call.number(given, dtype)
    return call.cast(call.value(given), dtype)


def _eye(call: AtenCall) -> Value:
    rows = call.integer("n")
    columns = call.integer("m", rows) if "m" in call.args else rows
    return call.const(np.eye(rows, columns).astype(call.out_dtype.numpy))


def _linspace(call: AtenCall) -> Value:
    begin, end, steps = call.real("start"), call.real("end"), call.integer("steps")
    return call.const(np.linspace(begin, end, steps).astype(call.out_dtype.numpy))


def _random(call: AtenCall) -> Value:
    call.unsupported("random numbers; PyTorch's generator is its own")


def _dropout(call: AtenCall) -> Value:
    call.unsupported("it drops elements at random, as in training; call .eval() first")


MAPPINGS: Mappings = {
    "aten::full": _full,
    "aten::new_full": _full,
    "aten::full_like": partial(_like, value=None),
    "aten::zeros": partial(_fixed, value=0),
    "aten::new_zeros": partial(_fixed, value=0),
    "aten::zeros_like": partial(_like, value=0),
    "aten::ones": partial(_fixed, value=1),
    "aten::new_ones": partial(_fixed, value=1),
    "aten::ones_like": partial(_like, value=1),
    # What is not set may be anything: zeros are.
    "aten::empty": partial(_fixed, value=0),
    "aten::new_empty": partial(_fixed, value=0),
    "aten::empty_like": partial(_like, value=0),
    "aten::empty_permuted": partial(_fixed, value=0),
    "aten::empty_strided": partial(_fixed, value=0),
    "aten::new_empty_strided": partial(_fixed, value=0),
    "aten::scalar_tensor": lambda call: _filled(call, [], call.args["s"]),
    "aten::arange": _arange,
    "aten::eye": _eye,
    "aten::linspace": _linspace,
    "aten::rand": _random,
    "aten::randn": _random,
    "aten::rand_like": _random,
    "aten::randn_like": _random,
    "aten::randint": _random,
    "aten::bernoulli": _random,
    "aten::native_dropout": _dropout,
}
