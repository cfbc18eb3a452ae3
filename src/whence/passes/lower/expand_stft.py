"""Short-time Fourier transforms become convolutions with the waves they look for.

    stft(x)[frame, bin] = Σ_t x[frame · step + t] · window[t] · exp(-2πi · bin · t / length)

which is a convolution of x, at every `step`, with a cosine and a sine for each bin. A fast
transform would need fewer operations; at the lengths that speech models use, a convolution is quick
enough, native, and exact to the last digits of single precision. Transforms of complex signals, and
ones whose window or sizes are known only at run time, stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whence.graph import Graph, Node, Rewriter
from whence.ops.attributes import get_int
from whence.passes.base import RulePass
from whence.passes.origins import lowering
from whence.passes.pattern import dtype_of, static_shape_of
from whence.types import DType

# Beyond this, a fast transform is worth its name.
_LONGEST = 4096


@dataclass(frozen=True, slots=True)
class ExpandStft(RulePass):
    name = "expand_stft"
    summary = "short-time Fourier transforms become convolutions"
    anchors = frozenset({"STFT"})

    def visit(self, node: Node, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        found = _fourier_basis(graph, node)
        signal, result = (static_shape_of(graph, ref) for ref in (node.inputs[0], node.ref()))
        if found is None or signal is None or result is None:
            return
        weights, step = found
        batch, frames, bins, _ = result
        if weights.shape[0] != 2 * bins:
            return
        make = lowering(rewriter, node, "stft(x) = conv(x, waves)")
        edit = make.edit
        row = make("Reshape", node.inputs[0], edit.sizes([batch, 1, signal[1]]))
        waves = make("Conv", row, weights, strides=(step,), kernel_shape=(weights.shape[2],))
        transposed = make("Transpose", waves, perm=(0, 2, 1))
        edit.finish(node.ref(), make("Reshape", transposed, edit.sizes([batch, frames, bins, 2])))


def _fourier_basis(graph: Graph, node: Node) -> tuple[np.ndarray, int] | None:
    """The real and the imaginary wave of every bin, in turn, through the window, and the step
    between frames.
    """
    shape = static_shape_of(graph, node.inputs[0])
    window = graph.const_value(node.operand("window"))
    step = graph.const_value(node.operand("frame_step"))
    given = graph.const_value(node.operand("frame_length"))
    if (
        shape is None
        or dtype_of(graph, node.inputs[0]) is not DType.F32
        or step is None
        or (len(shape) == 3 and shape[2] != 1)
        or 0 in shape
        or (window is not None and window.ndim != 1)
    ):
        return None
    if (node.operand("window") is not None and window is None) or (
        node.operand("frame_length") is not None and given is None
    ):
        return None
    length = (
        int(given.reshape(-1)[0])
        if given is not None
        else window.shape[0]
        if window is not None
        else shape[1]
    )
    stride = int(step.reshape(-1)[0])
    if (
        not 1 <= length <= min(shape[1], _LONGEST)
        or stride < 1
        or (window is not None and window.shape != (length,))
    ):
        return None
    bins = length // 2 + 1 if get_int(node.attrs, "onesided", 1) else length
    # The angle is taken modulo the length in whole numbers, so that it loses nothing however long
    # the wave is.
    periods = np.outer(np.arange(bins), np.arange(length)) % length
    angle = periods * (2 * np.pi / length)
    # sin(π k) = 0 and cos(π (k + 1/2)) = 0, which π rounded to a float does not give: a bin that is
    # real then has no imaginary part.
    cosine = np.where(np.isin(4 * periods, (length, 3 * length)), 0, np.cos(angle))
    sine = np.where(2 * periods % length == 0, 0, np.sin(angle))
    scale = np.ones(length) if window is None else window.astype(np.float64)
    waves = np.stack([cosine * scale, -sine * scale], axis=1)
    return waves.reshape(2 * bins, 1, length).astype(np.float32), stride
