"""Operators that give values another shape, order or size, join and part them, and put borders
around.
"""

from __future__ import annotations

import numpy as np

from whence.frontends.tflite.export.call import ExportCall, Exports
from whence.frontends.tflite.operators.joining import COORDINATES
from whence.frontends.tflite.schema import Option
from whence.types import DType, TensorType


def _reshape(call: ExportCall) -> None:
    """A known shape as numbers; else as the graph computes it."""
    shape = call.output_type().shape
    sizes = None if shape is None else [dim if isinstance(dim, int) else -1 for dim in shape]
    if shape == () and call.type(0).static_shape is not None:
        # A shape of no numbers would be a tensor without data.
        call.emit("SQUEEZE", [call.input(0)], {"squeeze_dims": tuple(range(call.rank(0)))})
    elif sizes is not None and sizes.count(-1) <= 1 and not (-1 in sizes and 0 in sizes):
        call.emit("RESHAPE", [call.input(0), call.ints(sizes)], {"new_shape": tuple(sizes)})
    elif call.node.op == "Reshape":
        wanted = call.value(1)
        if wanted is not None and 0 in wanted and not call.integer("allowzero"):
            call.unsupported(
                f"a shape that copies dimensions, {wanted.tolist()}, of {call.type(0)}"
            )
        call.emit(
            "RESHAPE",
            [call.input(0), call.index_input(1)],
            {"new_shape": tuple(wanted.tolist())} if wanted is not None else {},
        )
    elif call.node.op == "Squeeze":
        call.emit(
            "SQUEEZE",
            [call.input(0)],
            {"squeeze_dims": call.integers(1, "axes") if call.has(1) else ()},
        )
    elif call.node.op == "Unsqueeze" and len(call.integers(1, "axes")) == 1:
        call.emit("EXPAND_DIMS", [call.input(0), call.index_input(1)])
    else:
        call.unsupported(f"the shape of its result, {call.output_type()}, is not known")


def _transpose(call: ExportCall) -> None:
    rank = call.rank(0)
    call.emit(
        "TRANSPOSE", [call.input(0), call.ints(call.numbers("perm", tuple(reversed(range(rank)))))]
    )


def _concat(call: ExportCall) -> None:
    axis = call.axis("axis", 0, len(call.known_rank(call.output_type())))
    call.emit("CONCATENATION", call.inputs(), {"axis": axis})


def _split(call: ExportCall) -> None:
    axis = call.axis("axis", 0, call.rank(0))
    count = len(call.node.outputs)
    sizes = [call.output_shape(index)[axis] for index in range(count)]
    if len(set(sizes)) == 1:
        call.emit("SPLIT", [call.ints(axis), call.input(0)], {"num_splits": count})
    elif call.is_circle:
        # onert leaves parts of unequal size empty when some of them are not read.
        begin = [0] * call.rank(0)
        for index, size in enumerate(sizes):
            if call.is_used(index):
                call.emit(
                    "SLICE",
                    [call.input(0), call.ints(begin), call.ints(call.output_shape(index))],
                    outputs=[call.output(index)],
                )
            begin[axis] += size
    else:
        call.emit(
            "SPLIT_V",
            [call.input(0), call.ints(sizes), call.ints(axis)],
            {"num_splits": count},
        )


def _pad(call: ExportCall) -> None:
    mode = call.text("mode", "constant")
    rank = call.rank(0)
    amounts = call.integers(1, "paddings")
    axes = [axis % rank for axis in call.integers(3, "axes")] if call.has(3) else list(range(rank))
    table = np.zeros((rank, 2), np.int64)
    for position, axis in enumerate(axes):
        table[axis] = amounts[position], amounts[position + len(axes)]
    tensor = call.input(0)
    if table.min() < 0:
        tensor, table = _cut(call, tensor, table)
    pads = call.ints(table)
    if mode == "constant":
        _constant_pad(call, tensor, pads)
    elif mode == "reflect":
        call.emit("MIRROR_PAD", [tensor, pads], {"mode": 0})
    else:
        call.unsupported(f"borders of mode {mode}")


def _cut(call: ExportCall, tensor: int, table: np.ndarray) -> tuple[int, np.ndarray]:
    """Borders of negative width take away."""
    shape = call.shape(0)
    begins = np.maximum(-table[:, 0], 0)
    sizes = np.array(shape) - begins - np.maximum(-table[:, 1], 0)
    kind = TensorType(call.type(0).dtype, tuple(int(size) for size in sizes))
    return call.step("SLICE", [tensor, call.ints(begins), call.ints(sizes)], kind), np.maximum(
        table, 0
    )


def _constant_pad(call: ExportCall, tensor: int, pads: int) -> None:
    codes = call.writer.codes_at(call.ref(0))
    value = call.value(2) if call.has(2) else np.zeros((), call.type(0).dtype.numpy)
    neutral = 0 if codes is None else codes.zeros[0]
    if value is not None and float(np.asarray(value).reshape(-1)[0]) == neutral:
        call.emit("PAD", [tensor, pads])
    elif value is not None:
        kind = call.type(0).dtype.numpy
        call.emit(
            "PADV2",
            [tensor, pads, call.const(np.asarray(value).reshape(()).astype(kind), codes=codes)],
        )
    else:
        call.emit("PADV2", [tensor, pads, call.input(2)])


def _expand(call: ExportCall) -> None:
    shape = call.output_type().static_shape
    if shape is not None:
        call.emit("BROADCAST_TO", [call.input(0), call.ints(shape)], version=2)
    elif call.rank(0) == 0:
        call.emit("FILL", [call.index_input(1), call.input(0)])
    else:
        call.emit("BROADCAST_TO", [call.input(0), call.index_input(1)], version=2)


def _shape(call: ExportCall) -> None:
    if call.has_attr("start") or call.has_attr("end"):
        call.unsupported("part of a shape")
    call.emit("SHAPE", [call.input(0)], {"out_type": 4})


def _size(call: ExportCall) -> None:
    """The product of the shape. Of a shape itself it is the rank."""
    source = call.graph[call.ref(0).node]
    if source.op == "Shape" and source.inputs[0] is not None:
        rank = call.step("RANK", [call.writer.tensor(source.inputs[0])], TensorType(DType.I32, ()))
        call.emit("CAST", [rank], {"in_data_type": 2, "out_data_type": 4})
        return
    shape = call.step(
        "SHAPE", [call.input(0)], TensorType(DType.I64, (call.rank(0),)), {"out_type": 4}
    )
    call.emit("REDUCE_PROD", [shape, call.ints([0])], {"keep_dims": False})


def _constant_of_shape(call: ExportCall) -> None:
    value = call.node.attrs.get("value")
    number = np.zeros((), np.float32) if value is None else np.asarray(value).reshape(())
    call.emit("FILL", [call.index_input(0), call.const(number)])


def _depth_to_space(call: ExportCall) -> None:
    """The graph's has channels second. Where its blocks are the last part of the channels, they are
    cut and joined by hand.
    """
    n, c, h, w = call.output_shape()
    size = call.integer("blocksize")
    kind = call.type(0).dtype
    if call.text("mode", "DCR") == "DCR":
        call.emit_channels_last("DEPTH_TO_SPACE", {"block_size": size}, made=(n, h, w, c))
        return
    cut = call.reshaped(call.input(0), (n, c, size, size, h // size, w // size))
    moved = call.step(
        "TRANSPOSE",
        [cut, call.ints((0, 1, 4, 2, 5, 3))],
        TensorType(kind, (n, c, h // size, size, w // size, size)),
    )
    call.emit_reshape(moved, (n, c, h, w))


def _space_to_depth(call: ExportCall) -> None:
    n, c, h, w = call.output_shape()
    size = call.integer("blocksize")
    call.emit_channels_last("SPACE_TO_DEPTH", {"block_size": size}, made=(n, h, w, c))


# ---- resizing: the file's operators have the image on axes 1 and 2 ----

_NEAREST = {each: options for options, each in COORDINATES.items()}
_LINEAR = {coordinates: options for options, (coordinates, _) in COORDINATES.items()}
_LINEAR["pytorch_half_pixel"] = _LINEAR["half_pixel"]


def _resize(call: ExportCall) -> None:
    if call.rank(0) != 4:
        call.unsupported(f"resizing of {call.type(0)}")
    before, after = call.shape(0), call.output_shape()
    moving = [axis for axis in range(4) if before[axis] != after[axis]]
    channels_first = any(axis == 3 for axis in moving) or set(
        call.numbers("axes", (0, 1, 2, 3))
    ) == {2, 3}
    if any(axis == 0 for axis in moving) or (channels_first and 1 in moving):
        call.unsupported(
            f"resizing of {list(before)} to {list(after)}, which are more axes than those of an"
            " image"
        )
    op, options = _resizing(call, before, after)
    size = after[2:] if channels_first else after[1:3]
    if not channels_first:
        call.emit(
            op,
            [call.input(0), call.ints(size)],
            options,
            version=2 if call.is_quantised or not call.type(0).dtype.is_float else 1,
        )
        return
    if call.is_quantised:
        call.unsupported("quantised, with channels before the image")
    call.emit_channels_last(op, options, [call.ints(size)], (after[0], *after[2:], after[1]))


def _resizing(
    call: ExportCall, before: tuple[int, ...], after: tuple[int, ...]
) -> tuple[str, dict[str, Option]]:
    mode = call.text("mode", "nearest")
    coordinates = call.text("coordinate_transformation_mode", "half_pixel")
    whole = all(new % old == 0 for old, new in zip(before, after, strict=True))
    if (
        call.integer("antialias")
        or call.integer("exclude_outside")
        or mode not in ("nearest", "linear")
    ):
        call.unsupported(f"resizing of mode {mode}")
    if mode == "linear":
        found = _LINEAR.get(coordinates)
        if coordinates == "pytorch_half_pixel" and any(
            new == 1 != old for old, new in zip(before, after, strict=True)
        ):
            found = None
    else:
        rounding = call.text("nearest_mode", "round_prefer_floor")
        found = _NEAREST.get((coordinates, rounding))
        if (
            found is None
            and whole
            and coordinates in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric")
        ):
            # By a whole factor no coordinate lies half way between two elements unless the factor
            # is even and rounding is off-centre.
            found = (False, True) if rounding.startswith("round") else None
    if found is None:
        call.unsupported(
            f"resizing with coordinates {coordinates}"
            + (f" and rounding {call.text('nearest_mode', '')}" if mode == "nearest" else "")
        )
    aligned, centred = found
    name = "RESIZE_BILINEAR" if mode == "linear" else "RESIZE_NEAREST_NEIGHBOR"
    return name, {"align_corners": aligned, "half_pixel_centers": centred}


EXPORTS: Exports = {
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "Flatten": _reshape,
    "Pad": _pad,
    "Range": lambda call: call.emit("RANGE", call.inputs()),
    "Reshape": _reshape,
    "Resize": _resize,
    "Shape": _shape,
    "Size": _size,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _reshape,
    "Tile": lambda call: call.emit("TILE", [call.input(0), call.index_input(1)]),
    "Transpose": _transpose,
    "Unsqueeze": _reshape,
}
