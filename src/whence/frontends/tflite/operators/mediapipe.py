"""Custom operators of MediaPipe's models: a convolution, and those that look closer at a part of
the picture: where it is, its pixels, and landmarks found in it.

A transform is a 4 × 4 matrix of which the first two rows matter: a point of the part (x, y) is the
point (a·x + b·y + c, d·x + e·y + f) of the whole.
"""

from __future__ import annotations

import math
import struct

import numpy as np

from whence.frontends.tflite.mapping import Mappings, OperatorCall
from whence.frontends.tflite.operators.conv import bias_scale, same_padding, weights
from whence.frontends.tflite.operators.flexible import FlexibleOptions
from whence.graph.node import Ref
from whence.ops.definition import Attr
from whence.types import DType

_LARGEST = 1 << 14
_VERSION = 2
_SAME, _VALID = 1, 2


class _Numbers:
    """Arithmetic on values of a graph, written shortly."""

    def __init__(self, call: OperatorCall) -> None:
        self._call = call

    def of(self, number: float) -> Ref:
        return self._call.scalar(number, DType.F32)

    def add(self, a: Ref, b: Ref) -> Ref:
        return self._call.op("Add", a, b)

    def sub(self, a: Ref, b: Ref) -> Ref:
        return self._call.op("Sub", a, b)

    def mul(self, a: Ref, b: Ref | float) -> Ref:
        return self._call.op("Mul", a, self.of(b) if isinstance(b, int | float) else b)

    def rotated(self, cosine: Ref, sine: Ref, x: Ref, y: Ref) -> tuple[Ref, Ref]:
        """(x, y) rotated by an angle."""
        return self.sub(self.mul(x, cosine), self.mul(y, sine)), self.add(
            self.mul(x, sine), self.mul(y, cosine)
        )


def _check_version(call: OperatorCall) -> None:
    if call.record.version != _VERSION:
        call.unsupported(f"version {call.record.version}; whence knows version {_VERSION}")


def _rows(call: OperatorCall, matrix: Ref) -> list[list[Ref]]:
    """The numbers of the first two rows, each of shape ()."""
    flat = call.op("Reshape", matrix, call.ints(16))
    parts = call.emit("Split", [flat], {"axis": 0, "num_outputs": 16}, outputs=16)
    numbers = [call.op("Reshape", part, call.ints()) for part in parts[:8]]
    return [numbers[:4], numbers[4:]]


def _matrix(call: OperatorCall) -> None:
    """The transform from a picture of the given size to the upright box, `scale` times as large,
    around some landmarks.

    Upright is where the line from the left to the right landmark has the angle `target`. So the
    landmarks are rotated by target - angle, the box is put around them, and its centre rotated
    back.
    """
    _check_version(call)
    options, count = FlexibleOptions(call), call.shape(0)[1]
    left = options.integer("left_rotation_idx", -1)
    right = options.integer("right_rotation_idx", -1)
    subset = options.integers("subset_idxs")
    width, height = options.integer("output_width", 0), options.integer("output_height", 0)
    if (
        call.rank(0) != 3
        or call.shape(0)[2] < 2
        or not subset
        or not all(0 <= index < count for index in (left, right, *subset))
    ):
        call.fail(f"its landmarks {left}, {right}, {list(subset)[:4]}... are not all among {count}")
    if not (0 < width <= _LARGEST and 0 < height <= _LARGEST):
        call.fail(f"its picture is {width} by {height}")
    target = options.number("target_rotation_radians", 0.0)
    n = _Numbers(call)

    def coordinates(indices: tuple[int, ...]) -> tuple[Ref, Ref]:
        chosen = call.op(
            "Gather",
            call.op("Gather", call.real(0), call.const(np.array(0)), axis=0),
            call.ints(*indices),
            axis=0,
        )
        x, y = (call.op("Gather", chosen, call.const(np.array(axis)), axis=1) for axis in (0, 1))
        return x, y

    (x0, y0), (x1, y1) = coordinates((left,)), coordinates((right,))
    across, down = n.sub(x1, x0), n.sub(y1, y0)
    length = call.op("Sqrt", n.add(n.mul(across, across), n.mul(down, down)))
    distinct = call.op("Greater", length, n.of(0))
    # Two landmarks in one place have the angle 0.
    safe = call.op("Where", distinct, length, n.of(1))
    cos_now = call.op("Where", distinct, call.op("Div", across, safe), n.of(1))
    sin_now = call.op("Div", down, safe)
    # cos (t - a) = cos t · cos a + sin t · sin a, sin (t - a) = sin t · cos a - cos t · sin a
    cosine = n.add(n.mul(cos_now, math.cos(target)), n.mul(sin_now, math.sin(target)))
    sine = n.sub(n.mul(cos_now, math.sin(target)), n.mul(sin_now, math.cos(target)))
    edges = []
    for line in n.rotated(cosine, sine, *coordinates(subset)):
        edges.append(
            [call.op(op, line, call.ints(0), keepdims=1) for op in ("ReduceMin", "ReduceMax")]
        )
    middle = [n.mul(n.add(low, high), 0.5) for low, high in edges]
    x, y = n.rotated(cosine, n.mul(sine, -1), *middle)
    wide, high = (
        n.mul(n.sub(last, first), options.number(name, 1.0) / size)
        for (first, last), name, size in zip(
            edges, ("scale_x", "scale_y"), (width, height), strict=True
        )
    )
    # Turning back by the angle, after scaling: (c·sx, s·sy) and (-s·sx, c·sy).
    a, b = n.mul(cosine, wide), n.mul(sine, high)
    d, e = n.mul(n.mul(sine, -1), wide), n.mul(cosine, high)
    c = n.sub(x, n.add(n.mul(a, width / 2), n.mul(b, height / 2)))
    f = n.sub(y, n.add(n.mul(d, width / 2), n.mul(e, height / 2)))
    zero = call.const(np.zeros(1, np.float32))
    rest = call.const(np.array([0, 0, 1, 0, 0, 0, 0, 1], np.float32))
    made = call.op(
        "Reshape",
        call.op("Concat", a, b, zero, c, d, e, zero, f, rest, axis=0),
        call.ints(1, 4, 4),
    )
    call.output(0, made)


def _transform_landmarks(call: OperatorCall) -> None:
    """Landmarks of the part as landmarks of the whole. A third coordinate stays as it is."""
    _check_version(call)
    width = call.shape(0)[-1]
    if call.rank(0) != 3 or width not in (2, 3):
        call.fail(f"its landmarks are {call.type(0)}")
    n = _Numbers(call)
    parts = call.emit("Split", [call.real(0)], {"axis": -1, "num_outputs": width}, outputs=width)
    moved = [
        n.add(n.add(n.mul(parts[0], row[0]), n.mul(parts[1], row[1])), row[3])
        for row in _rows(call, call.real(1))
    ]
    call.output(0, call.op("Concat", *moved, *parts[2:], axis=-1))


def _transform_picture(call: OperatorCall) -> None:
    """The part as a picture of its own, each pixel a mean of the four around the middle of its
    place in the whole; zero where that is outside.
    """
    _check_version(call)
    options = FlexibleOptions(call)
    high, wide = options.integer("output_height", 0), options.integer("output_width", 0)
    shape = call.shape(0)
    if (
        len(shape) != 4
        or shape[0] != 1
        or not (0 < high <= _LARGEST and 0 < wide <= _LARGEST)
        or min(shape) < 1
    ):
        call.fail(f"its picture {call.type(0)} becomes one of {high} by {wide}")
    n = _Numbers(call)
    # The middles of the pixels of a row, and of a column.
    across, down = (np.arange(size, dtype=np.float32) + np.float32(0.5) for size in (wide, high))
    columns, rows = call.const(across), call.const(down[:, None])
    places, inside = [], None
    for row, size in zip(_rows(call, call.real(1)), (shape[2], shape[1]), strict=True):
        place = n.add(n.add(n.mul(columns, row[0]), n.mul(rows, row[1])), n.sub(row[3], n.of(0.5)))
        bounds = [
            call.op("GreaterOrEqual", place, n.of(0)),
            call.op("LessOrEqual", place, n.of(size - 1)),
        ]
        for bound in bounds:
            inside = bound if inside is None else call.op("And", inside, bound)
        # The sampler counts from -1 at the first pixel to 1 at the last; a line of one pixel has
        # only its middle.
        spread = n.sub(n.mul(place, 2 / (size - 1)), n.of(1)) if size > 1 else n.mul(place, 0)
        places.append(call.op("Unsqueeze", spread, call.ints(0, 3)))
    grid = call.emit("Concat", places, {"axis": -1})
    transposed = call.op("Transpose", call.real(0), perm=(0, 3, 1, 2))
    sampled = call.op(
        "GridSample", transposed, grid, mode="linear", padding_mode="border", align_corners=1
    )
    assert inside is not None
    made = call.op("Transpose", call.op("Where", inside, sampled, n.of(0)), perm=(0, 2, 3, 1))
    call.output(0, made)


def _transpose_conv_bias(call: OperatorCall) -> None:
    """A transposed convolution with a bias. Its options are three numbers: the padding, and the
    strides along width and height.
    """
    if len(call.record.custom_options) != 12:
        call.fail(f"its options have {len(call.record.custom_options)} bytes, not 12")
    padding, across, down = struct.unpack("<3i", call.record.custom_options)
    shape, given = call.shape(1), call.type(0).shape
    if (
        given is None
        or len(given) != 4
        or len(shape) != 4
        or across < 1
        or down < 1
        or padding not in (_SAME, _VALID)
    ):
        call.fail(
            f"its input {call.type(0)}, weights {list(shape)} and options {padding, across, down}"
            " do not fit"
        )
    before, after = [], []
    for size, kernel, stride in zip(given[1:3], shape[1:3], (down, across), strict=True):
        if not isinstance(size, int):
            call.unsupported(f"the size of its input, {call.type(0)}, is not known")
        wanted = size * stride if padding == _SAME else (size - 1) * stride + kernel
        begin = same_padding(wanted, kernel, stride)[0] if padding == _SAME else 0
        end = (size - 1) * stride + kernel - begin - wanted
        if end < 0:
            call.unsupported(f"strides {down} and {across} that are longer than its kernel")
        before.append(begin)
        after.append(end)
    attrs: dict[str, Attr] = {"strides": (down, across), "pads": (*before, *after)}
    result = call.emit(
        "ChannelsLastConvTranspose",
        [call.real(0), weights(call, 1, (3, 0, 1, 2)), call.bias(2, bias_scale(call, 0, 1))],
        attrs,
    )
    call.output(0, result)


MAPPINGS: Mappings = {
    "CUSTOM:Convolution2DTransposeBias": _transpose_conv_bias,
    "CUSTOM:Landmarks2TransformMatrix": _matrix,
    "CUSTOM:TransformLandmarks": _transform_landmarks,
    "CUSTOM:TransformTensorBilinear": _transform_picture,
}
