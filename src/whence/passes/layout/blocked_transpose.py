"""Transposed convolutions as plain ones: each phase of the output is an ordinary convolution, and
all phases together are one with more channels.

Along an axis with stride s, output p + begin = s·Q + r collects w[tap]·x[Q + (r - tap·dilation) /
s] over the taps for which that is whole. So for each phase r the result at Q is a convolution over
a window of x around Q. One convolution makes all phases as channels; shuffling them into place is a
move.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from whence.graph import Graph, Node
from whence.ops.attributes import get_int
from whence.ops.definition import Attr
from whence.ops.neural.window import make_transposition
from whence.ops.tensor.shape import size_array
from whence.passes.layout.blocked_op import (
    BlockedInput,
    BlockedLayout,
    BlockedStep,
    Form,
    Input,
    Layouts,
    Spread,
    StepOutput,
    static_float,
)

# Positions of a window for each tap of the kernel: the others are multiplied by zero.
_MOST_ZEROS = 4


class _Phases(NamedTuple):
    """One spatial axis of a transposed convolution as windows around positions of the input."""

    stride: int
    steps: int
    """Positions Q of the result."""
    window: int
    dilation: int
    pads: tuple[int, int]
    taps: tuple[tuple[int, int, int], ...]
    """(phase, place in the window, tap) for every tap of the kernel."""
    cut: int
    """Elements of the shuffled result before the first that is wanted."""
    out: int


def _phases(size: int, kernel: int, stride: int, dilation: int, begin: int, out: int) -> _Phases:
    first, last = begin // stride, (out - 1 + begin) // stride
    offsets = {
        tap: ((tap * dilation) % stride, -((tap * dilation) // stride)) for tap in range(kernel)
    }
    low = min(offset for _, offset in offsets.values())
    reach = max(offset for _, offset in offsets.values()) - low
    # What no phase reads between two taps is no part of the window.
    spacing = math.gcd(*(offset - low for _, offset in offsets.values())) or 1
    taps = tuple(
        (phase, (offset - low) // spacing, tap) for tap, (phase, offset) in offsets.items()
    )
    steps, before = last - first + 1, -(first + low)
    return _Phases(
        stride,
        steps,
        reach // spacing + 1,
        spacing,
        (before, steps - size - before + reach),
        taps,
        begin - first * stride,
        out,
    )


def transposed_form(graph: Graph, node: Node, layouts: Layouts, block: int) -> Form | None:
    """A transposed convolution with constant weights, in one group and with nothing added to its
    sum, as a blocked convolution and a shuffle.
    """
    source, bias = node.first_input, graph.const_value(node.operand("B"))
    x = static_float(graph, source)
    y = static_float(graph, node.ref())
    weights = graph.const_value(node.operand("W"))
    if (
        x is None
        or y is None
        or weights is None
        or len(x) not in {3, 4}
        or weights.dtype != np.float32
    ):
        return None
    if (
        get_int(node.attrs, "group", 1) != 1
        or node.operand("Z") is not None
        or (node.operand("B") is not None and bias is None)
    ):
        return None
    geometry = make_transposition(node.op, node.attrs, x[2:], weights.shape[2:])
    axes = [
        _phases(*each)
        for each in zip(
            x[2:],
            weights.shape[2:],
            geometry.window.strides,
            geometry.window.dilations,
            geometry.begins,
            geometry.output,
            strict=True,
        )
    ]
    axes = [_phases(1, 1, 1, 1, 0, 1)] * (2 - len(axes)) + axes
    if any(pad < 0 for axis in axes for pad in axis.pads):
        return None
    if any(axis.window > _MOST_ZEROS * len(axis.taps) for axis in axes):
        return None
    # Many channels are shuffled as whole blocks. Few of them fill blocks better with their phases
    # side by side, and are shuffled one by one.
    whole = y[1] > block // 2
    made = -(-y[1] // block) * block if whole else y[1]
    plain = x[1] < block and source not in layouts
    attrs: dict[str, Attr] = {
        name: value for name, value in node.attrs.items() if name.startswith("activation")
    }
    attrs |= {
        "block": block,
        "channels_in": x[1],
        "channels_out": made * axes[0].stride * axes[1].stride,
        "group": 1,
    }
    attrs |= {
        "kernel_shape": tuple(axis.window for axis in axes),
        "strides": (1, 1),
        "dilations": tuple(axis.dilation for axis in axes),
    }
    attrs |= {"pads": (axes[0].pads[0], axes[1].pads[0], axes[0].pads[1], axes[1].pads[1])} | (
        {"plain_input": 1} if plain else {}
    )
    taken: Input = (source if len(x) == 4 else Spread(source)) if plain else BlockedInput(source)
    spread = _spread_weights(
        weights.reshape(*weights.shape[:2], *(1,) * (4 - weights.ndim), *weights.shape[2:]),
        axes,
        made,
        whole,
    )
    repeated = None if bias is None else _spread_bias(bias.reshape(-1), axes, made, whole)
    conv = BlockedStep("BlockedConv", (taken, spread, repeated), attrs)
    if whole:
        return _shuffled_blocks(conv, axes, x[0], y, block)
    return _shuffled_plain(conv, axes, x[0], y)


def _spread_weights(
    weights: np.ndarray, axes: Sequence[_Phases], made: int, whole: bool
) -> np.ndarray:
    """[C, M, KH, KW] as the weights of all phases: [phase, phase, M, ...] for whole blocks of
    channels, else [M, phase, phase, ...].
    """
    down, right = axes
    channels, out = weights.shape[:2]
    spread = np.zeros(
        (down.stride, right.stride, made, channels, down.window, right.window), np.float32
    )
    for (row_phase, row, row_tap), (phase, column, tap) in itertools.product(down.taps, right.taps):
        spread[row_phase, phase, :out, :, row, column] = weights[:, :, row_tap, tap].T
    if not whole:
        spread = spread.transpose(2, 0, 1, 3, 4, 5)
    return np.ascontiguousarray(spread.reshape(-1, channels, down.window, right.window))


def _spread_bias(bias: np.ndarray, axes: Sequence[_Phases], made: int, whole: bool) -> np.ndarray:
    padded = np.zeros(made, np.float32)
    padded[: bias.size] = bias
    phases = axes[0].stride * axes[1].stride
    return np.tile(padded, phases) if whole else np.repeat(padded, phases)


def _shuffled_blocks(
    conv: BlockedStep, axes: Sequence[_Phases], batch: int, y: tuple[int, ...], block: int
) -> Form:
    down, right = axes
    blocks, steps = -(-y[1] // block), [conv]
    divided = (batch, down.stride, right.stride, blocks, down.steps, right.steps, block)
    _then(steps, "Reshape", divided)
    _then(steps, "Transpose", perm=(0, 3, 4, 1, 5, 2, 6))
    joined = (batch, blocks, down.steps * down.stride, right.steps * right.stride, block)
    _then(steps, "Reshape", joined)
    _cut(steps, axes)
    return Form(tuple(steps), (BlockedLayout(y[1], len(y)),))


def _shuffled_plain(
    conv: BlockedStep, axes: Sequence[_Phases], batch: int, y: tuple[int, ...]
) -> Form:
    down, right = axes
    steps = [conv]
    _then(steps, "FromBlocked", channels=y[1] * down.stride * right.stride)
    _then(steps, "Reshape", (batch, y[1], down.stride, right.stride, down.steps, right.steps))
    _then(steps, "Transpose", perm=(0, 1, 4, 2, 5, 3))
    joined = (batch, y[1], down.steps * down.stride, right.steps * right.stride)
    _then(steps, "Reshape", joined)
    _cut(steps, axes)
    if len(y) == 3:
        _then(steps, "Reshape", y)
    return Form(tuple(steps), ())


def _cut(steps: list[BlockedStep], axes: Sequence[_Phases]) -> None:
    """The part of the shuffled result that is wanted."""
    if any(axis.cut or axis.out != axis.steps * axis.stride for axis in axes):
        starts, ends = [axis.cut for axis in axes], [axis.cut + axis.out for axis in axes]
        _then(steps, "Slice", starts, ends, (2, 3))


def _then(steps: list[BlockedStep], op: str, *numbers: Sequence[int], **attrs: Attr) -> None:
    """One more step, on the result of the last."""
    steps.append(BlockedStep(op, (StepOutput(len(steps) - 1), *map(size_array, numbers)), attrs))
