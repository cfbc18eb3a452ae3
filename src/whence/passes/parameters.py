"""Reading parameters: which axes an operator reduces, what it cuts out, adds around, or keeps
within. Each is `None` unless all of it is constant and known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from whence.graph import Graph, Node
from whence.ops.attributes import get_float, get_int
from whence.ops.registry import REGISTRY
from whence.passes.const_values import const_ints
from whence.passes.pattern import rank_of


class Cut(NamedTuple):
    """What a slice takes of one axis, in the operator's own numbers."""

    start: int
    end: int
    step: int


def axes_from_front(axes: Iterable[int], rank: int) -> tuple[int, ...] | None:
    """Axes that may be counted from the end, counted from the front; `None` when one of them does
    not exist: the model is wrong then, which is for the check of types to say.
    """
    found = tuple(axes)
    if any(not -rank <= axis < rank for axis in found):
        return None
    return tuple(axis % rank for axis in found)


def reduced_axes(graph: Graph, node: Node, rank: int) -> tuple[int, ...] | None:
    """The axes that a reduction, or a pool over all of an image, works over, of an operand of this
    rank: counted from the front and sorted.
    """
    if REGISTRY[node.op].over_space:
        return tuple(range(2, rank))
    axes = const_ints(graph, node.operand("axes"), ())
    if axes == () and not get_int(node.attrs, "noop_with_empty_axes", 0):
        return tuple(range(rank))
    found = None if axes is None else axes_from_front(axes, rank)
    return None if found is None else tuple(sorted(set(found)))


def cuts_of(graph: Graph, node: Node) -> dict[int, Cut] | None:
    """What a Slice takes, by axis."""
    starts = const_ints(graph, node.operand("starts"))
    ends = const_ints(graph, node.operand("ends"))
    if starts is None or ends is None:
        return None
    axes = const_ints(graph, node.operand("axes"), tuple(range(len(starts))))
    steps = const_ints(graph, node.operand("steps"), (1,) * len(starts))
    rank = rank_of(graph, node.inputs[0])
    if axes is None or steps is None or (rank is None and min(axes, default=0) < 0) or 0 in steps:
        return None
    places = [axis if axis >= 0 or rank is None else axis + rank for axis in axes]
    return {axis: Cut(*numbers) for axis, *numbers in zip(places, starts, ends, steps, strict=True)}


def padding_of(graph: Graph, node: Node, rank: int) -> list[tuple[int, int]] | None:
    """How many elements a Pad adds before and behind each axis."""
    pads = const_ints(graph, node.operand("pads"))
    axes = const_ints(graph, node.operand("axes"), tuple(range(rank)))
    places = None if axes is None else axes_from_front(axes, rank)
    if pads is None or places is None or len(pads) != 2 * len(set(places)):
        return None
    found = [(0, 0)] * rank
    for axis, begin, end in zip(places, pads, pads[len(places) :], strict=False):
        found[axis] = begin, end
    return found


def only_multiplies(node: Node) -> bool:
    """Does a product take its first operand as it is, and add what it adds without a factor?"""
    factors = [get_float(node.attrs, name, 1.0) for name in ("alpha", "beta")]
    return factors == [1.0, 1.0] and not get_int(node.attrs, "transA", 0)


def limits(graph: Graph, node: Node) -> tuple[float, float] | None:
    """The numbers between which a Relu or Clip keeps its input; NaN is none."""
    if node.op == "Relu":
        return 0.0, math.inf
    ends = [-math.inf, math.inf]
    for index in (1, 2):
        if node.input(index) is not None:
            value = graph.const_value(node.input(index))
            if value is None or value.size != 1 or np.isnan(value.reshape(())):
                return None
            ends[index - 1] = float(value.reshape(()))
    return ends[0], ends[1]
