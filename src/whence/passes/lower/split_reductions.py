"""Long reductions with few results are done in two steps, so that all threads have a part of them.

A kernel of a reduction has a work item for each result, or for results that lie side by side. Of
few results, as of the mean of a picture's every channel, most threads would have none. The elements
of each are divided into parts; the first kernel reduces each part, the second the results of these.

    sum(x) = sum(sum of each part), and likewise for mean (parts of one size), max, min, prod,
    L2 and log-sum-exp;
    sum|x| = sum(sum|x| of each part);  log sum(x) = log sum(sum of each part)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from whence.extent import estimate, is_symbolic
from whence.graph import Node, Rewriter
from whence.ops.registry import one_of
from whence.passes.base import RulePass
from whence.passes.origins import lowering
from whence.passes.parameters import reduced_axes
from whence.passes.pattern import dtype_of, static_shape_of
from whence.types import DType


class _Steps(NamedTuple):
    """The operators of both steps; integers wrap around, so that only some may be regrouped."""

    parts: str
    whole: str
    integers: bool = False


_STEPS: Mapping[str, _Steps] = {
    "ReduceSum": _Steps("ReduceSum", "ReduceSum", integers=True),
    "ReduceProd": _Steps("ReduceProd", "ReduceProd", integers=True),
    "ReduceMax": _Steps("ReduceMax", "ReduceMax", integers=True),
    "ReduceMin": _Steps("ReduceMin", "ReduceMin", integers=True),
    "ReduceMean": _Steps("ReduceMean", "ReduceMean"),
    "ReduceL1": _Steps("ReduceL1", "ReduceSum"),
    "ReduceL2": _Steps("ReduceL2", "ReduceL2"),
    "ReduceSumSquare": _Steps("ReduceSumSquare", "ReduceSum"),
    "ReduceLogSum": _Steps("ReduceSum", "ReduceLogSum"),
    "ReduceLogSumExp": _Steps("ReduceLogSumExp", "ReduceLogSumExp"),
    "GlobalAveragePool": _Steps("ReduceMean", "ReduceMean"),
    "GlobalMaxPool": _Steps("ReduceMax", "ReduceMax"),
}
_FLOATS, _INTEGERS = frozenset({DType.F32, DType.F64}), frozenset({DType.I32, DType.I64})
_RULE = "reduce(x) = reduce(reduce of each part of x)"

# Results side by side that one work item makes.
_SIDE_BY_SIDE = 512
# Work items that let threads end at about the same time.
_ITEMS_PER_THREAD = 4
# Elements that a thread reads in the time of one more kernel that threads share: fewer saved do not
# pay for it. And elements of a part that are worth a work item.
_WORTH, _LEAST_PART = 1 << 16, 1 << 10


@dataclass(frozen=True, slots=True)
class SplitReductions(RulePass):
    """`threads` is how many there are to divide the work for."""

    name = "split_reductions"
    summary = "long reductions with few results become two, with work for all threads"
    anchors = one_of(*_STEPS)

    threads: int = 1

    def visit(self, node: Node, rewriter: Rewriter) -> None:
        graph, steps = rewriter.graph, _STEPS[node.op]
        shape = static_shape_of(graph, node.inputs[0])
        if self.threads < 2 or shape is None:
            return
        allowed = _FLOATS | _INTEGERS if steps.integers else _FLOATS
        axes = reduced_axes(graph, node, len(shape))
        if dtype_of(graph, node.inputs[0]) not in allowed or not axes:
            return
        found = _division(shape, axes, self.threads)
        if found is None:
            return
        axis, parts = found
        make = lowering(rewriter, node, _RULE)
        data = node.first_input
        inner = tuple(each for each in axes if each != axis)
        if parts != shape[axis]:
            divided = [*shape[:axis], parts, shape[axis] // parts, *shape[axis + 1 :]]
            data = make("Reshape", data, make.edit.sizes(divided))
            inner = tuple(sorted({axis + 1, *(each + (each > axis) for each in inner)}))
        data = make(steps.parts, data, np.array(inner), keepdims=1)
        if parts != shape[axis]:
            data = make("Squeeze", data, np.array([axis + 1]))
        keep = node.attrs.get("keepdims", 1)
        whole = make(steps.whole, data, np.array(axes), keepdims=keep)
        make.edit.finish(node.ref(), whole)


def _division(shape: Sequence[int], axes: tuple[int, ...], threads: int) -> tuple[int, int] | None:
    """Along which axis to divide, and into how many parts; `None` where it is not worth it."""
    along = [axis for axis in axes if not is_symbolic(shape[axis]) and shape[axis] > 1]
    elements = estimate(math.prod(shape))
    if not along or elements < _WORTH:
        return None
    results = math.prod(size for axis, size in enumerate(shape) if axis not in axes)
    beside = estimate(math.prod(shape[max(along) + 1 :]))
    items = max(1, estimate(results) // min(beside, _SIDE_BY_SIDE))

    def longest(items: int) -> int:
        """Elements that the thread with the most items reads."""
        return -(-items // threads) * elements // items

    wanted = -(-_ITEMS_PER_THREAD * threads // items)
    most = elements // items // _LEAST_PART
    divisions = []
    # Along the first of the axes, parts are whole ranges of memory.
    for axis in along:
        fitting = [
            parts for parts in range(2, min(shape[axis], most) + 1) if not shape[axis] % parts
        ]
        enough = [parts for parts in fitting if parts >= wanted]
        divisions += [(axis, parts) for parts in (*enough[:1], *fitting[-1:])]
    if not divisions:
        return None
    best = min(divisions, key=lambda each: (longest(items * each[1]), each))
    return best if longest(items) - longest(items * best[1]) >= _WORTH else None
