"""Pooling over windows, of fixed or of adapted size."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from whence.frontends.torch.call import AtenCall, Mappings, Value
from whence.graph.node import Ref
from whence.ops.definition import Attr


def _windows(call: AtenCall, rank: int) -> dict[str, Attr]:
    kernel = call.ints("kernel_size", rank)
    return {
        "kernel_shape": kernel,
        "strides": call.ints("stride", rank) or kernel,
        "pads": call.ints("padding", rank) * 2,
        "ceil_mode": int(bool(call.plain("ceil_mode"))),
    }


def _max_pool(call: AtenCall, rank: int) -> Value:
    return _maxima(call, rank, _windows(call, rank) | {"dilations": call.ints("dilation", rank)})


def _maxima(call: AtenCall, rank: int, attrs: dict[str, Attr]) -> Value:
    several = isinstance(call.out_meta, list | tuple)
    if several and any(user.args[1] == 1 for user in call.node.users):
        call.unsupported("the positions of the largest elements are used")
    return call.alone(call.batched("self", rank, lambda x: call.emit("MaxPool", [x], attrs)))


def _average_pool(call: AtenCall, rank: int) -> Value:
    attrs = _windows(call, rank)
    divisor = call.plain("divisor_override") if "divisor_override" in call.args else None
    attrs["count_include_pad"] = int(bool(call.plain("count_include_pad")) or divisor is not None)

    def averages(x: Ref) -> Ref:
        y = call.emit("AveragePool", [x], attrs)
        if divisor is None:
            return y
        size = math.prod(call.ints("kernel_size", rank))
        return call.op("Mul", y, call.number(size / divisor, call.out_dtype))

    return call.batched("self", rank, averages)


def _adaptive_average(call: AtenCall, rank: int) -> Value:
    """Windows that together cover the image: of one size where that divides, else as a product with
    a matrix of averages along each axis.
    """
    wanted = call.plain("output_size")
    if all(size == 1 for size in wanted):
        return call.batched("self", rank, lambda x: call.op("GlobalAveragePool", x))
    return call.batched("self", rank, lambda x: _adapt(call, x, list(wanted), rank))


def _adapt(call: AtenCall, x: Ref, wanted: list[int | None], rank: int) -> Ref:
    dims = call.shape("self")[-rank:]
    sizes = [dim if size is None else int(size) for size, dim in zip(wanted, dims, strict=True)]
    if all(dim % size == 0 for dim, size in zip(dims, sizes, strict=True)):
        step = tuple(dim // size for dim, size in zip(dims, sizes, strict=True))
        return call.op("AveragePool", x, kernel_shape=step, strides=step)
    dtype = call.out_dtype.numpy
    for axis, (dim, size) in enumerate(zip(dims, sizes, strict=True)):
        if dim == size:
            continue
        matrix = call.const(_averages(dim, size).astype(dtype))
        order = list(range(rank + 2))
        order[axis + 2], order[-1] = order[-1], order[axis + 2]
        x = call.transpose(call.op("MatMul", call.transpose(x, order), matrix), order)
    return x


def _averages(dim: int, size: int) -> np.ndarray:
    """Output i is the mean of the inputs from floor(i·dim/size) up to ceil((i+1)·dim/size)."""
    matrix = np.zeros((dim, size))
    for index in range(size):
        begin, end = index * dim // size, -(-(index + 1) * dim // size)
        matrix[begin:end, index] = 1 / (end - begin)
    return matrix


def _adaptive_max(call: AtenCall, rank: int) -> Value:
    dims, sizes = call.shape("self")[-rank:], call.ints("output_size", rank)
    if any(dim % size for dim, size in zip(dims, sizes, strict=True)):
        call.unsupported(f"windows of different sizes: {list(dims)} to {list(sizes)}")
    step = tuple(dim // size for dim, size in zip(dims, sizes, strict=True))
    return _maxima(call, rank, {"kernel_shape": step, "strides": step})


MAPPINGS: Mappings = {
    "aten::max_pool1d": partial(_max_pool, rank=1),
    "aten::max_pool2d": partial(_max_pool, rank=2),
    "aten::max_pool3d": partial(_max_pool, rank=3),
    "aten::max_pool2d_with_indices": partial(_max_pool, rank=2),
    "aten::max_pool3d_with_indices": partial(_max_pool, rank=3),
    "aten::avg_pool1d": partial(_average_pool, rank=1),
    "aten::avg_pool2d": partial(_average_pool, rank=2),
    "aten::avg_pool3d": partial(_average_pool, rank=3),
    "aten::adaptive_avg_pool1d": partial(_adaptive_average, rank=1),
    "aten::adaptive_avg_pool2d": partial(_adaptive_average, rank=2),
    "aten::adaptive_avg_pool3d": partial(_adaptive_average, rank=3),
    "aten::_adaptive_avg_pool2d": partial(_adaptive_average, rank=2),
    "aten::_adaptive_avg_pool3d": partial(_adaptive_average, rank=3),
    "aten::adaptive_max_pool1d": partial(_adaptive_max, rank=1),
    "aten::adaptive_max_pool2d": partial(_adaptive_max, rank=2),
}
