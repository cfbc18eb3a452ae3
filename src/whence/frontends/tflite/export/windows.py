"""How windows lie on the axes they slide along, by TFLite's SAME and VALID."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from whence.frontends.tflite.export.call import ExportCall

SAME, VALID = 0, 1


@dataclass(frozen=True, slots=True)
class Frame:
    """Strides and dilations along each spatial axis, and the padding: one of the two kinds, with a
    border to be put around first.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    padding: int
    border: tuple[tuple[int, int], ...]
    """What has to be put before and after each spatial axis so that `padding` holds."""

    @property
    def has_border(self) -> bool:
        return any(before or after for before, after in self.border)

    @property
    def in_two_axes(self) -> Frame:
        """A frame over one axis as one over two, the first of one place."""
        kernel, strides, dilations = (1, *self.kernel), (1, *self.strides), (1, *self.dilations)
        return Frame(kernel, strides, dilations, self.padding, ((0, 0), *self.border))


def frame_of(call: ExportCall, kernel: Sequence[int]) -> Frame:
    """The frame of a convolution or pool whose attributes are ONNX's, by the channels-last shapes
    of its input and result.
    """
    shapes = (call.known_rank(kind) for kind in (call.type(0), call.output_type()))
    n = len(kernel)
    strides, dilations = call.numbers("strides", (1,) * n), call.numbers("dilations", (1,) * n)
    sizes, results = ([dim for dim in shape[1:-1] if isinstance(dim, int)] for shape in shapes)
    if len(sizes) != n or len(results) != n:
        return _open_frame(call, tuple(kernel), strides, dilations)
    reach = [(each - 1) * step + 1 for each, step in zip(kernel, dilations, strict=True)]
    needed = [
        (result - 1) * stride + span - size
        for size, result, stride, span in zip(sizes, results, strides, reach, strict=True)
    ]
    auto = call.text("auto_pad", "NOTSET")
    if auto in ("NOTSET", ""):
        before = list(call.numbers("pads", (0,) * 2 * n)[:n])
    else:
        lower = auto == "SAME_LOWER"
        before = [0 if auto == "VALID" else (max(each, 0) + lower) // 2 for each in needed]
    same = all(
        result == math.ceil(size / stride) and begin == max(each, 0) // 2
        for size, result, stride, begin, each in zip(
            sizes, results, strides, before, needed, strict=True
        )
    )
    border = tuple(
        (begin, max(each - begin, 0)) for begin, each in zip(before, needed, strict=True)
    )
    # Where there is no border, both kinds are the same.
    padding = SAME if same and any(begin or end for begin, end in border) else VALID
    border = ((0, 0),) * n if padding == SAME else border
    return Frame(tuple(kernel), strides, dilations, padding, border)


def _open_frame(
    call: ExportCall, kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...]
) -> Frame:
    """Where sizes are not known the attributes have to say it."""
    n = len(kernel)
    auto, pads = call.text("auto_pad", "NOTSET"), call.numbers("pads", (0,) * 2 * n)
    if auto == "SAME_UPPER":
        return Frame(kernel, strides, dilations, SAME, ((0, 0),) * n)
    if auto == "SAME_LOWER" or call.integer("ceil_mode"):
        call.unsupported(f"padding that depends on a size which is not known, of {call.type(0)}")
    border = (
        tuple(zip(pads[:n], pads[n:], strict=True)) if auto in ("NOTSET", "") else ((0, 0),) * n
    )
    return Frame(kernel, strides, dilations, VALID, border)
