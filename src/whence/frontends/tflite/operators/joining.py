"""Putting tensors together, taking them apart, and putting borders around them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from whence.frontends.tflite.mapping import Mappings, OperatorCall
from whence.graph.node import Ref
from whence.ops.definition import Attr
from whence.types import DType

_LONGEST_AXIS = 1 << 24
COORDINATES: Mapping[tuple[bool, bool], tuple[str, str]] = {
    (False, False): ("asymmetric", "floor"),
    (False, True): ("half_pixel", "round_prefer_ceil"),
    (True, False): ("align_corners", "round_prefer_ceil"),
}
"""What resizing does by `align_corners` and `half_pixel_centers`: its coordinates, and how those of
the nearest element are rounded.
"""


def axis_of(call: OperatorCall, axis: int, rank: int) -> int:
    """An axis that exists, counted from the front."""
    if not -rank <= axis < rank:
        call.fail(f"axis {axis} is none of {rank}")
    return axis % rank


def _concatenation(call: OperatorCall) -> None:
    """Codes that mean different things are joined as what they mean."""
    axis = axis_of(call, call.integer("axis"), call.rank(0))
    call.move(lambda *parts: call.op("Concat", *parts, axis=axis), range(call.n_inputs))


def _pack(call: OperatorCall) -> None:
    axis = axis_of(call, call.integer("axis"), call.rank(0) + 1)
    rows = [
        call.op("Unsqueeze", call.needed(index), call.ints(axis)) for index in range(call.n_inputs)
    ]
    call.output_codes(0, call.emit("Concat", rows, {"axis": axis}))


def _unpack(call: OperatorCall) -> None:
    axis, count = axis_of(call, call.integer("axis"), call.rank(0)), call.n_outputs
    if call.integer("num") != count:
        call.fail(f"it has {count} outputs and says {call.integer('num')}")
    parts = _parts(call, call.needed(0), axis, [1] * count)
    for index, part in enumerate(parts):
        call.output_codes(index, call.op("Squeeze", part, call.ints(axis)))


def _parts(call: OperatorCall, whole: Ref, axis: int, sizes: list[int]) -> list[Ref]:
    if len(sizes) == 1:
        return [whole]
    return call.emit("Split", [whole, call.ints(*sizes)], {"axis": axis}, outputs=len(sizes))


def _length(call: OperatorCall, index: int, axis: int) -> int:
    """The length of an axis of an input, which must be known."""
    shape = call.type(index).shape
    length = None if shape is None else shape[axis]
    if not isinstance(length, int):
        call.unsupported(f"the length of axis {axis} of {call.type(index)} is not known")
    return length


def _split(call: OperatorCall) -> None:
    (axis,) = call.numbers(0, "axis")[:1] or (0,)
    axis = axis_of(call, axis, call.rank(1))
    count = call.n_outputs
    length = _length(call, 1, axis)
    if count == 0 or length % count:
        call.fail(f"{length} does not divide into {count} equal parts")
    call.outputs_codes(_parts(call, call.needed(1), axis, [length // count] * count))


def _split_v(call: OperatorCall) -> None:
    """One size may be -1, what the others leave."""
    sizes, (axis,) = list(call.numbers(1, "sizes")), call.numbers(2, "axis")[:1] or (0,)
    axis = axis_of(call, axis, call.rank(0))
    if len(sizes) != call.n_outputs:
        call.fail(f"it has {call.n_outputs} outputs and {len(sizes)} sizes")
    if -1 in sizes:
        rest = _length(call, 0, axis) - sum(size for size in sizes if size != -1)
        sizes[sizes.index(-1)] = rest
    if min(sizes) < 0:
        call.fail(f"sizes {sizes} do not divide its input {call.type(0)}")
    call.outputs_codes(_parts(call, call.needed(0), axis, sizes))


def pads(call: OperatorCall, index: int) -> Ref:
    """TFLite's (before, after) for each axis as ONNX's list of all befores, then all afters."""
    table = call.whole(index)
    known = call.value_of(table)
    if known is None:
        return call.op("Reshape", call.op("Transpose", table, perm=(1, 0)), call.ints(-1))
    if known.shape != (call.rank(0), 2):
        call.fail(f"paddings of shape {list(known.shape)} do not fit an input {call.type(0)}")
    return call.const(np.ascontiguousarray(known.T).reshape(-1))


def _pad(call: OperatorCall) -> None:
    """Borders of zero, which as a code is the zero point, or of the third input's value."""
    found, dtype = call.quantisation(0), call.type(0).dtype
    if call.has(2):
        value = call.needed(2)
        if call.rank(2):
            value = call.op("Reshape", value, call.const(np.empty(0, np.int64)))
    else:
        value = call.const(np.array(0 if found is None else int(found.zero_points[0]), dtype.numpy))
    call.output_codes(0, call.op("Pad", call.needed(0), pads(call, 1), value))


def _mirror_pad(call: OperatorCall) -> None:
    """Borders that mirror the values: without the outermost (mode 0), or with it."""
    x = call.needed(0)
    if call.integer("mode") == 0:
        call.output_codes(0, call.op("Pad", x, pads(call, 1), mode="reflect"))
        return
    shape, borders = call.shape(0), call.numbers(1, "paddings")
    if len(borders) != 2 * len(shape) or max(shape, default=0) > _LONGEST_AXIS:
        call.fail(f"paddings {list(borders)} do not fit an input {call.type(0)}")
    for axis, (size, before, after) in enumerate(
        zip(shape, borders[::2], borders[1::2], strict=True)
    ):
        if not 0 <= max(before, after) <= size or min(before, after) < 0:
            call.fail(f"a border of {max(before, after)} does not mirror an axis of {size}")
        if before or after:
            order = np.pad(np.arange(size, dtype=np.int64), (before, after), mode="symmetric")
            x = call.op("Gather", x, call.const(order), axis=axis)
    call.output_codes(0, x)


def _resize(call: OperatorCall, mode: str) -> None:
    if call.rank(0) != 4:
        call.fail(f"its input is {call.type(0)}, not a tensor of 4 dimensions")
    found = COORDINATES.get((call.flag("align_corners"), call.flag("half_pixel_centers")))
    if found is None:
        call.fail("align_corners and half_pixel_centers exclude each other")
    coordinates, rounding = found
    attrs: dict[str, Attr] = {
        "axes": (1, 2),
        "mode": mode,
        "coordinate_transformation_mode": coordinates,
    }
    if mode == "nearest":
        attrs["nearest_mode"] = rounding
        inputs = [call.needed(0), None, None, call.whole(1)]
        call.output_codes(0, call.emit("Resize", inputs, attrs))
    else:
        inputs = [call.cast(call.real(0), DType.F32), None, None, call.whole(1)]
        call.output(0, call.emit("Resize", inputs, attrs))


MAPPINGS: Mappings = {
    "CONCATENATION": _concatenation,
    "MIRROR_PAD": _mirror_pad,
    "PACK": _pack,
    "PAD": _pad,
    "PADV2": _pad,
    "RESIZE_BILINEAR": partial(_resize, mode="linear"),
    "RESIZE_NEAREST_NEIGHBOR": partial(_resize, mode="nearest"),
    "SPLIT": _split,
    "SPLIT_V": _split_v,
    "UNPACK": _unpack,
}
