"""Concatenations and splits along the outermost axis: where every extent before the axis is 1,
each part is a contiguous range of the whole.

Then a part can be computed at its offset in the whole, and nothing is copied.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from whence.extent import estimate
from whence.graph import Graph, Node, Ref
from whence.machine import CACHE_LINE
from whence.ops.attributes import get_int
from whence.ops.registry import operators
from whence.ops.traits import Trait
from whence.passes.const_values import const_ints
from whence.types import DType

MAY_BE_CONTIGUOUS = operators(Trait.CONTIGUOUS_PARTS)
"""Whose parts may be contiguous ranges of their whole."""


def input_offsets(graph: Graph, node: Node) -> list[int] | None:
    """The offset of each input of a Concat in its output, in bytes; `None` where an input is not a
    contiguous range of it.
    """
    refs = [ref for ref in node.inputs if ref is not None]
    if node.op != "Concat" or len(refs) != len(node.inputs):
        return None
    return _offsets(graph, node.ref(), refs, get_int(node.attrs, "axis", 0))


def output_offsets(graph: Graph, node: Node) -> list[int] | None:
    """The offset of each output of a Split or Slice in its input, in bytes; `None` where an output
    is not a contiguous range of it.
    """
    source = node.input(0)
    if source is None:
        return None
    if node.op == "Split":
        return _offsets(
            graph,
            source,
            [node.ref(index) for index in range(len(node.outputs))],
            get_int(node.attrs, "axis", 0),
        )
    return _slice_offset(graph, node, source) if node.op == "Slice" else None


def _offsets(graph: Graph, whole: Ref, parts: Sequence[Ref], axis: int) -> list[int] | None:
    row = _row_bytes(graph, whole, axis)
    shapes = [_shape(graph, part) for part in parts]
    if row is None or any(shape is None for shape in shapes):
        return None
    extents = [shape[axis] for shape in shapes if shape is not None]
    offsets = [start * row for start in itertools.accumulate(extents[:-1], initial=0)]
    return offsets if all(map(_begins_a_line, offsets)) else None


def _begins_a_line(offset: int) -> bool:
    """At any other offset, every vector of every kernel that reads or writes there would straddle
    two lines of the cache: right, but slow, so that an open size is judged by the call at hand.
    """
    return estimate(offset) % CACHE_LINE == 0


def _slice_offset(graph: Graph, node: Node, source: Ref) -> list[int] | None:
    # With a step that is known only in a call, the rows of the whole are not those of the part.
    starts = const_ints(graph, node.operand("starts"))
    axes = const_ints(graph, node.operand("axes"), (0,))
    before, after = _shape(graph, source), _shape(graph, node.ref())
    if (
        starts is None
        or axes is None
        or before is None
        or after is None
        or len(starts) != 1
        or const_ints(graph, node.operand("steps"), (1,)) != (1,)
    ):
        return None
    (axis,) = axes
    row = _row_bytes(graph, source, axis)
    start = starts[0] + before[axis] if starts[0] < 0 else starts[0]
    if (
        row is None
        or not 0 <= start <= before[axis] - after[axis]
        or not _begins_a_line(start * row)
    ):
        return None
    return [start * row]


def _row_bytes(graph: Graph, whole: Ref, axis: int) -> int | None:
    """How many bytes one step along the axis is, if there is nothing before the axis to step
    along.
    """
    shape, kind = _shape(graph, whole), graph.tensor_type(whole)
    if (
        shape is None
        or kind is None
        or not -len(shape) <= axis < len(shape)
        or math.prod(shape[: axis % len(shape)]) != 1
    ):
        return None
    return math.prod(shape[axis % len(shape) + 1 :]) * kind.dtype.numpy.itemsize


def _shape(graph: Graph, ref: Ref) -> tuple[int, ...] | None:
    """Of a value of fixed size, in elements of whole bytes."""
    kind = graph.tensor_type(ref)
    if kind is None or kind.dtype in (DType.STRING, DType.UNDEFINED) or kind.dtype.bits < 8:
        return None
    return kind.static_shape
