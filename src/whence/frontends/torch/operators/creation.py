"""Tensors made from shapes and numbers."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from whence.frontends.torch.call import AtenCall, Mappings, Value, is_node
from whence.graph.node import Ref


def _filled(call: AtenCall, shape: Ref | None, value: Any) -> Value:
    """A tensor of one value; without a shape, a single number."""
    dtype = call.out_dtype
    if shape is None:
        return call.elements(value, dtype)
    if is_node(value):
        return call.op("Expand", call.elements(value, dtype), shape)
    return call.op("ConstantOfShape", shape, value=np.array([value]).astype(dtype.numpy))


def _shaped(call: AtenCall, value: int | None = None) -> Value:
    dims = call.args["size"]
    shape = call.shape_value(dims) if dims else None
    return _filled(call, shape, call.args["fill_value"] if value is None else value)


def _like(call: AtenCall, value: int | None = None) -> Value:
    dims = list(call.meta("self").shape)
    is_known = all(isinstance(dim, int) for dim in dims)
    shape = call.shape_value(dims) if is_known else call.op("Shape", call.ref("self"))
    given = call.args["fill_value"] if value is None else value
    return _filled(call, shape if dims else None, given)


def _arange(call: AtenCall) -> Value:
    dtype = call.out_dtype
    begin: Any = call.args.get("start") or 0
    end: Any = call.args["end"]
    step: Any = call.args.get("step", 1)
    if not any(is_node(each) for each in (begin, end, step)):
        count = max(0, math.ceil((end - begin) / step))
        values = (begin + step * np.arange(count)).astype(dtype.numpy)
        return call.const(values)
    return call.emit("Range", [call.elements(each, dtype) for each in (begin, end, step)])


def _eye(call: AtenCall) -> Value:
    rows = call.integer("n")
    return call.const(np.eye(rows, call.integer("m", rows)).astype(call.out_dtype.numpy))


def _linspace(call: AtenCall) -> Value:
    begin, end, steps = call.real("start"), call.real("end"), call.integer("steps")
    return call.const(np.linspace(begin, end, steps).astype(call.out_dtype.numpy))


def _refused(call: AtenCall, why: str) -> Value:
    call.unsupported(why)


_random = partial(_refused, why="random numbers; PyTorch's generator is its own")
_dropout = partial(_refused, why="it drops elements at random, as in training; call .eval() first")

MAPPINGS: Mappings = {
    "aten::full": _shaped,
    "aten::new_full": _shaped,
    "aten::full_like": _like,
    "aten::zeros": partial(_shaped, value=0),
    "aten::new_zeros": partial(_shaped, value=0),
    "aten::zeros_like": partial(_like, value=0),
    "aten::ones": partial(_shaped, value=1),
    "aten::new_ones": partial(_shaped, value=1),
    "aten::ones_like": partial(_like, value=1),
    # What is not set may be anything: zeros are.
    "aten::empty": partial(_shaped, value=0),
    "aten::new_empty": partial(_shaped, value=0),
    "aten::empty_like": partial(_like, value=0),
    "aten::empty_permuted": partial(_shaped, value=0),
    "aten::empty_strided": partial(_shaped, value=0),
    "aten::new_empty_strided": partial(_shaped, value=0),
    "aten::scalar_tensor": lambda call: _filled(call, None, call.args["s"]),
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
