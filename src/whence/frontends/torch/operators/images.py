"""Images: convolutions, pooling over windows of fixed or of adapted size, resizing, padding."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
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
    divisor = call.plain("divisor_override")
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
    if step := _steps(dims, sizes):
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


def _steps(dims: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    """The windows that divide an image into so many parts; none where they are not of one size."""
    pairs = list(zip(dims, sizes, strict=True))
    return (
        () if any(dim % size for dim, size in pairs) else tuple(dim // size for dim, size in pairs)
    )


def _averages(dim: int, size: int) -> np.ndarray:
    """Output i is the mean of the inputs from floor(i·dim/size) up to ceil((i+1)·dim/size)."""
    matrix = np.zeros((dim, size))
    for index in range(size):
        begin, end = index * dim // size, -(-(index + 1) * dim // size)
        matrix[begin:end, index] = 1 / (end - begin)
    return matrix


def _adaptive_max(call: AtenCall, rank: int) -> Value:
    dims, sizes = call.shape("self")[-rank:], call.ints("output_size", rank)
    step = _steps(dims, sizes)
    if not step:
        call.unsupported(f"windows of different sizes: {list(dims)} to {list(sizes)}")
    return _maxima(call, rank, {"kernel_shape": step, "strides": step})


def _convolution(call: AtenCall, transposed: bool = False) -> Value:
    """`aten.convolution` is the general case; the others name their arguments alike."""
    rank = call.rank("weight") - 2
    dilation, kernel = call.ints("dilation", rank), call.shape("weight")[2:]
    padding = call.plain("padding")
    attrs: dict[str, Attr] = {
        "kernel_shape": kernel,
        "strides": call.ints("stride", rank) or (1,) * rank,
        "dilations": dilation or (1,) * rank,
        "pads": _named_padding(padding, kernel, dilation)
        if isinstance(padding, str)
        else call.ints("padding", rank) * 2,
        "group": call.integer("groups", 1),
    }
    op = "ConvTranspose" if transposed or call.plain("transposed") else "Conv"
    if op == "ConvTranspose" and any(extra := call.ints("output_padding", rank)):
        attrs["output_padding"] = extra
    weights = [call.ref("weight"), call.optional("bias")]
    return call.batched("input", rank, lambda x: call.emit(op, [x, *weights], attrs))


def _named_padding(padding: str, kernel: Sequence[int], dilation: Sequence[int]) -> tuple[int, ...]:
    """`same` keeps the size: what is odd is padded at the end."""
    if padding == "valid":
        return (0,) * (2 * len(kernel))
    total = [step * (size - 1) for size, step in zip(kernel, dilation, strict=True)]
    begin = [each // 2 for each in total]
    return (*begin, *(each - half for each, half in zip(total, begin, strict=True)))


def _resize(
    call: AtenCall, rank: int, mode: str, exact: bool = False, antialias: bool = False
) -> Value:
    attrs: dict[str, Attr] = {"mode": mode}
    if mode == "nearest":
        attrs["coordinate_transformation_mode"] = "half_pixel" if exact else "asymmetric"
        attrs["nearest_mode"] = "round_prefer_ceil" if exact else "floor"
    else:
        aligned = bool(call.plain("align_corners"))
        attrs["coordinate_transformation_mode"] = "align_corners" if aligned else "half_pixel"
    if mode == "cubic":
        attrs["cubic_coeff_a"] = -0.5 if antialias else -0.75
    if antialias:
        attrs["antialias"] = 1
    attrs["axes"] = tuple(range(2, 2 + rank))
    factors = _factors(call, rank)
    if factors is not None:
        scales = call.const(np.array(factors, np.float32))
        return call.emit("Resize", [call.subject, None, scales], attrs)
    sizes = call.shape_value(call.args["output_size"])
    return call.emit("Resize", [call.subject, None, None, sizes], attrs)


def _factors(call: AtenCall, rank: int) -> list[float] | None:
    """What the image is scaled by, where that was given: positions are computed by it, whatever
    the size of the result is rounded to.
    """
    if "scale_factors" in call.args:
        given = call.plain("scale_factors")
    else:
        names = ("scales_d", "scales_h", "scales_w")[-rank:]
        given = [call.plain("scales" if rank == 1 else name) for name in names]
    if not given or any(each is None for each in given):
        return None
    return [float(each) for each in given]


_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _pad(call: AtenCall, mode: str, value: float | None = None) -> Value:
    """PyTorch lists (begin, end) from the last axis backwards."""
    rank, given = call.rank("self"), call.args["pad" if "pad" in call.args else "padding"]
    pairs = [(given[index], given[index + 1]) for index in range(0, len(given), 2)]
    axes = [rank - 1 - index for index in range(len(pairs))]
    pads = call.shape_value([*(begin for begin, _ in pairs), *(end for _, end in pairs)])
    fill: Ref | None = None
    if mode == "constant":
        fill = call.number(0.0 if value is None else value, call.out_dtype)
    inputs = [call.ref("self"), pads, fill, call.numbers(*axes)]
    return call.emit("Pad", inputs, {"mode": mode})


def _named(call: AtenCall) -> Value:
    mode = _MODES.get(call.plain("mode"))
    if mode is None:
        call.unsupported(f"padding of mode {call.plain('mode')}")
    return _pad(call, mode, call.plain("value"))


_BY_RANK: Mapping[str, Callable[..., Value]] = {
    "max_pool{}d": _max_pool,
    "max_pool{}d_with_indices": _max_pool,
    "avg_pool{}d": _average_pool,
    "adaptive_avg_pool{}d": _adaptive_average,
    "_adaptive_avg_pool{}d": _adaptive_average,
    "adaptive_max_pool{}d": _adaptive_max,
    "upsample_nearest{}d": partial(_resize, mode="nearest"),
    "_upsample_nearest_exact{}d": partial(_resize, mode="nearest", exact=True),
}
"""Those that are there for images of one, two and three axes."""

MAPPINGS: Mappings = {
    **{
        f"aten::{name.format(rank)}": partial(mapper, rank=rank)
        for name, mapper in _BY_RANK.items()
        for rank in (1, 2, 3)
    },
    "aten::convolution": _convolution,
    **{f"aten::conv{rank}d": _convolution for rank in (1, 2, 3)},
    **{
        f"aten::conv_transpose{rank}d": partial(_convolution, transposed=True) for rank in (1, 2, 3)
    },
    "aten::upsample_linear1d": partial(_resize, rank=1, mode="linear"),
    "aten::upsample_bilinear2d": partial(_resize, rank=2, mode="linear"),
    "aten::upsample_trilinear3d": partial(_resize, rank=3, mode="linear"),
    "aten::upsample_bicubic2d": partial(_resize, rank=2, mode="cubic"),
    "aten::_upsample_bilinear2d_aa": partial(_resize, rank=2, mode="linear", antialias=True),
    "aten::_upsample_bicubic2d_aa": partial(_resize, rank=2, mode="cubic", antialias=True),
    "aten::constant_pad_nd": lambda call: _pad(call, "constant", call.plain("value")),
    "aten::pad": _named,
    **{f"aten::reflection_pad{rank}d": partial(_pad, mode="reflect") for rank in (1, 2, 3)},
    **{f"aten::replication_pad{rank}d": partial(_pad, mode="edge") for rank in (1, 2, 3)},
}
