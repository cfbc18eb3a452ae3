"""Operators that move elements: views, copies, casts, joining and dividing."""

from __future__ import annotations

import sys
from functools import partial

import numpy as np

from whence.frontends.torch.call import AtenCall, Mappings, Value, is_node, meta_of
from whence.ops.definition import Attr
from whence.types import DType


def _same(call: AtenCall) -> Value:
    """Copies, and marks without effect on values. A result of another element type is cast."""
    return call.subject


def _dropout(call: AtenCall) -> Value:
    if call.plain("train") and call.real("p") > 0:
        call.unsupported("it drops elements at random, as in training; call .eval() first")
    return _same(call)


def _view(call: AtenCall) -> Value:
    if "dtype" in call.args and "size" not in call.args:
        call.unsupported("the same bytes as another element type")
    dims = call.args["size" if "size" in call.args else "shape"]
    attrs: dict[str, Attr] = {"allowzero": 1} if any(dim == 0 for dim in dims) else {}
    return call.emit("Reshape", [call.ref("self"), call.shape_value(dims)], attrs)


def _flatten(call: AtenCall) -> Value:
    rank = call.rank("self")
    begin, end = call.axis("start_dim"), call.axis("end_dim")
    dims = [*[0] * begin, -1]
    if end == rank - 1:
        return call.reshape(call.ref("self"), *dims)
    tail = call.shape("self")[end + 1 :]
    return call.reshape(call.ref("self"), *dims, *tail)


def _unflatten(call: AtenCall) -> Value:
    rank = call.rank("self")
    axis, sizes = call.axis(), call.args["sizes"]
    if not all(isinstance(size, int) for size in sizes) and axis != rank - 1:
        call.unsupported("sizes that are open, of an axis that is not the last")
    shape = call.meta("self").shape
    after = [size if isinstance(size, int) else -1 for size in shape[axis + 1 :]]
    return call.op("Reshape", call.ref("self"), call.shape_value([*[0] * axis, *sizes, *after]))


def _permute(call: AtenCall) -> Value:
    rank = call.rank("self")
    order = [dim + rank if dim < 0 else dim for dim in call.ints("dims")]
    return call.transpose(call.ref("self"), order)


def _transpose(call: AtenCall) -> Value:
    rank = call.rank("self")
    order = list(range(rank))
    if rank:
        first, second = call.axis("dim0"), call.axis("dim1")
        order[first], order[second] = order[second], order[first]
    return call.transpose(call.ref("self"), order)


def _t(call: AtenCall) -> Value:
    return call.transpose(call.ref("self"), range(call.rank("self"))[::-1])


def _movedim(call: AtenCall) -> Value:
    rank = call.rank("self")
    source = [each % rank for each in call.ints("source")]
    target = [each % rank for each in call.ints("destination")]
    order: list[int] = [-1] * rank
    for old, new in zip(source, target, strict=True):
        order[new] = old
    rest = iter(axis for axis in range(rank) if axis not in source)
    order = [next(rest) if axis < 0 else axis for axis in order]
    return call.transpose(call.ref("self"), order)


def _unsqueeze(call: AtenCall) -> Value:
    axis = call.integer("dim")
    axis += call.rank("self") + 1 if axis < 0 else 0
    return call.op("Unsqueeze", call.ref("self"), call.numbers(axis))


def _squeeze(call: AtenCall) -> Value:
    shape = call.meta("self").shape
    axes = [axis for axis in call.axes() if isinstance(shape[axis], int) and shape[axis] == 1]
    x = call.ref("self")
    return call.op("Squeeze", x, call.numbers(*axes)) if axes else x


def _expand(call: AtenCall) -> Value:
    # A size of -1 keeps what is there, as 1 does in Expand.
    dims = [1 if dim == -1 else dim for dim in call.args["size"]]
    return call.op("Expand", call.ref("self"), call.shape_value(dims))


def _repeat(call: AtenCall) -> Value:
    repeats = call.args["repeats" if "repeats" in call.args else "dims"]
    x, missing = call.ref("self"), len(repeats) - call.rank("self")
    if missing > 0:
        x = call.op("Unsqueeze", x, call.numbers(*range(missing)))
    repeats = [*[1] * -missing, *repeats]
    return call.op("Tile", x, call.shape_value(repeats))


def _slice(call: AtenCall) -> Value:
    axis, step = call.axis(), call.integer("step", 1)
    begin, end = call.args.get("start"), call.args.get("end")
    begin = 0 if begin is None else begin
    end = sys.maxsize if end is None else end
    return call.sliced(call.ref("self"), axis, begin, end, step)


def _narrow(call: AtenCall) -> Value:
    begin, length = call.args["start"], call.args["length"]
    if is_node(begin) or is_node(length):
        call.unsupported("a part of open size")
    return call.sliced(call.ref("self"), call.axis(), begin, begin + length)


def _select(call: AtenCall) -> Value:
    axis, index = call.axis(), call.args["index"]
    where = call.reshape(call.whole(index)) if is_node(index) else call.value(int(index))
    return call.op("Gather", call.ref("self"), where, axis=axis)


def _concat(call: AtenCall) -> Value:
    tensors = call.args["tensors"]
    # PyTorch passes over empty lists of any rank.
    given = [each for each in tensors if tuple(meta_of(each).shape) != (0,)] or tensors
    parts = [call.cast(call.value(each), call.out_dtype) for each in given]
    return call.concat(parts, call.axis("dim", call.out_rank))


def _stack(call: AtenCall) -> Value:
    axis = call.axis("dim", call.out_rank)
    refs = [call.cast(ref, call.out_dtype) for ref in call.refs("tensors")]
    return call.concat([call.op("Unsqueeze", ref, call.numbers(axis)) for ref in refs], axis)


def _split(call: AtenCall) -> Value:
    """By the sizes that PyTorch found the parts to have."""
    axis = call.axis()
    sizes = [meta.shape[axis] for meta in call.out_meta]
    if not all(isinstance(size, int) for size in sizes):
        call.unsupported("parts of open size")
    if len(sizes) == 1:
        return [call.ref("self")]
    inputs = [call.ref("self"), call.numbers(*sizes)]
    return list(call.emit("Split", inputs, {"axis": axis}, outputs=len(sizes)))


def _unbind(call: AtenCall) -> Value:
    axis, count = call.axis(), len(call.out_meta)
    x, where = call.ref("self"), call.numbers(axis)
    parts = (
        call.emit("Split", [x], {"axis": axis, "num_outputs": count}, outputs=count)
        if count > 1
        else [x]
    )
    return [call.op("Squeeze", part, where) for part in parts]


def _flip(call: AtenCall) -> Value:
    axes = call.axes("dims")
    count = len(axes)
    inputs = [
        call.ref("self"),
        call.numbers(*[-1] * count),
        call.numbers(*[-sys.maxsize] * count),
        call.numbers(*axes),
        call.numbers(*[-1] * count),
    ]
    return call.emit("Slice", inputs) if count else call.ref("self")


def _roll(call: AtenCall) -> Value:
    """Each axis in two parts that change places."""
    shifts, axes = call.ints("shifts"), call.ints("dims")
    x, rank = call.ref("self"), call.rank("self")
    flat = not axes
    if flat:
        x, axes = call.reshape(x, -1), (0,)
    for shift, axis in zip(shifts, axes, strict=True):
        axis = axis % max(1, 1 if flat else rank)
        # Counted from the end, so that the size need not be known.
        size = None if flat else call.meta("self").shape[axis]
        if isinstance(size, int):
            shift = shift % size if size else 0
        if shift == 0:
            continue
        tail = call.sliced(x, axis, -shift, sys.maxsize)
        head = call.sliced(x, axis, 0, -shift)
        x = call.op("Concat", tail, head, axis=axis)
    if flat:
        x = call.op("Reshape", x, call.op("Shape", call.ref("self")))
    return x


def _pixel_shuffle(call: AtenCall) -> Value:
    x, factor = call.ref("self"), call.integer("upscale_factor")
    return call.op("DepthToSpace", x, blocksize=factor, mode="CRD")


def _unfold(call: AtenCall) -> Value:
    """Windows along an axis, as a new last axis."""
    rank = call.rank("self")
    axis = call.axis("dimension")
    size, step = call.integer("size"), call.integer("step", 1)
    length = call.shape("self")[axis]
    count = (length - size) // step + 1
    where = np.arange(count)[:, None] * step + np.arange(size)[None, :]
    windows = call.op("Gather", call.ref("self"), call.const(where), axis=axis)
    order = [*(each for each in range(rank + 1) if each != axis + 1), axis + 1]
    return call.transpose(windows, order)


def _real_of(call: AtenCall) -> Value:
    if call.dtype("self") in (DType.C64, DType.C128):
        call.unsupported("complex numbers")
    return _same(call)


_cast = partial(AtenCall.promoted, name="self")

MAPPINGS: Mappings = {
    "aten::alias": _same,
    "aten::clone": _same,
    "aten::contiguous": _same,
    "aten::detach": _same,
    "aten::detach_": _same,
    "aten::dropout": _dropout,
    "aten::feature_dropout": _dropout,
    "aten::lift_fresh": _same,
    "aten::lift_fresh_copy": _same,
    "aten::positive": _same,
    "aten::real": _real_of,
    "aten::resolve_conj": _same,
    "aten::resolve_neg": _same,
    "aten::_to_copy": _cast,
    "aten::to": _cast,
    "aten::type_as": _cast,
    "aten::view": _view,
    "aten::_unsafe_view": _view,
    "aten::reshape": _view,
    "aten::view_copy": _view,
    "aten::flatten": _flatten,
    "aten::unflatten": _unflatten,
    "aten::permute": _permute,
    "aten::transpose": _transpose,
    "aten::t": _t,
    "aten::numpy_T": _t,
    "aten::movedim": _movedim,
    "aten::unsqueeze": _unsqueeze,
    "aten::squeeze": _squeeze,
    "aten::expand": _expand,
    "aten::repeat": _repeat,
    "aten::tile": _repeat,
    "aten::slice": _slice,
    "aten::narrow": _narrow,
    "aten::select": _select,
    "aten::cat": _concat,
    "aten::stack": _stack,
    "aten::split": _split,
    "aten::split_with_sizes": _split,
    "aten::chunk": _split,
    "aten::tensor_split": _split,
    "aten::unbind": _unbind,
    "aten::flip": _flip,
    "aten::roll": _roll,
    "aten::pixel_shuffle": _pixel_shuffle,
    "aten::unfold": _unfold,
}
