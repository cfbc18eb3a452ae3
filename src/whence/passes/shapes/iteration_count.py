"""How many iterations a Loop or Scan has, where that is known before it runs.

Exporters of recurrent layers write a loop whose condition does nothing but count: to the length of
the text, which is a number or an expression over the model's dimensions. What an iteration compares
there is a number that grows by the same in each iteration, or stays.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np

from whence.extent import Relation, decide, estimate, is_symbolic, larger, smaller
from whence.graph import Graph, Node, Ref
from whence.graph.iterations import captures, loop_heads, row_length, scanned_inputs
from whence.ops.registry import one_of
from whence.types import Dim, DType

_RESHAPES = one_of("Identity", "Squeeze", "Unsqueeze", "Reshape")
_COMPARES = one_of("Less", "LessOrEqual", "Greater", "GreaterOrEqual")
# Files have conditions of any length,
_MOST_NODES = 64
# and any numbers in them: by larger steps, the types of numbers end before the loop does;
_MOST_STEP = 1 << 16
# and nobody makes room for as many rows as a file may claim before the first is there.
_MOST_ITERATIONS = 1 << 24


def iteration_count(graph: Graph, node: Node) -> Dim:
    """The number of iterations; `None` if the run decides."""
    if node.op != "Loop":
        lengths = (row_length(*each) for each in scanned_inputs(graph, node))
        return next((length for length in lengths if length is not None), None)
    most, goes_on = (node.input(index) for index in range(2))
    try:
        if goes_on is not None and not _is_true(graph.known_value(goes_on)):
            return 0
        limits = _Counting(graph, node).limits(node.bodies["body"].outputs[0].first_input)
        if most is not None:
            limits.append(_number(graph.known_value(most)))
    except _NotCountedError:
        return None
    if not limits:
        return None
    count = limits[0]
    for each in limits[1:]:
        count = smaller(count, each)
    return larger(count, 0) if estimate(count) <= _MOST_ITERATIONS else None


class _NotCountedError(Exception):
    """Only the run knows."""


class _Number(NamedTuple):
    """In iteration t, begin + step * t."""

    begin: int
    step: int


class _Counting:
    """The numbers in the body of a Loop."""

    def __init__(self, graph: Graph, node: Node) -> None:
        self.graph, self.node, self.body = graph, node, node.bodies["body"]
        self.left = _MOST_NODES
        self.places = {entry.id: place for place, entry in enumerate(self.body.inputs)}

    def limits(self, ref: Ref) -> list[int]:
        """How many iterations there are at most, by each part of a condition; none: it stays so."""
        node = self._producer(ref)
        place = self.places.get(node.id)
        if node.op in _RESHAPES:
            return self.limits(_operand(node, 0))
        if node.op == "And":
            return [limit for each in range(2) for limit in self.limits(_operand(node, each))]
        if node.op in _COMPARES:
            less = 0 if node.is_a("Less", "LessOrEqual") else 1
            left, right = (self.number(_operand(node, each)) for each in (less, 1 - less))
            ahead = right.begin - left.begin + node.is_a("LessOrEqual", "GreaterOrEqual")
            return _limits(_Number(ahead, right.step - left.step))
        if place == 1:
            # No iteration begins where it is false.
            return []
        if place is None or (place > 1 and self._step(place) == 0):
            return [] if _is_true(self._begin(node, place)) else [1]
        raise _NotCountedError

    def number(self, ref: Ref) -> _Number:
        node = self._producer(ref)
        place = self.places.get(node.id)
        if place == 0:
            return _Number(0, 1)
        if place is not None and place > 1:
            return _Number(_number(self._begin(node, place)), self._step(place))
        if node.op in _RESHAPES:
            return self.number(_operand(node, 0))
        if node.op == "Cast":
            return _as_type(self.number(_operand(node, 0)), node.attrs.get("to"))
        if node.is_a("Add", "Sub"):
            left, right = (self.number(_operand(node, each)) for each in range(2))
            sign = 1 if node.op == "Add" else -1
            return _Number(left.begin + sign * right.begin, left.step + sign * right.step)
        return _Number(_number(self._begin(node, place)), 0)

    def _producer(self, ref: Ref) -> Node:
        self.left -= 1
        if self.left < 0:
            raise _NotCountedError
        return self.body[ref.node]

    def _begin(self, node: Node, place: int | None) -> np.ndarray | None:
        """What a constant of the body is, or an input in the first iteration."""
        return node.value if place is None else self.graph.known_value(self.node.inputs[place])

    def _step(self, place: int) -> int:
        """By how much an input grows from iteration to iteration."""
        first, head = loop_heads(self.node)
        if place >= len(self.node.inputs) - captures(self.node):
            return 0
        entry = self.body.inputs[place].ref()
        after = self.body.outputs[head + place - first].first_input
        node = self._producer(after)
        while node.op == "Identity":
            after = _operand(node, 0)
            node = self._producer(after)
        if after == entry:
            return 0
        if not node.is_a("Add", "Sub") or entry not in node.inputs:
            raise _NotCountedError
        at = node.inputs.index(entry)
        if node.op == "Sub" and at:
            raise _NotCountedError
        step = _number(self.body[_operand(node, 1 - at).node].value)
        if abs(step) > _MOST_STEP:
            raise _NotCountedError
        return step if node.op == "Add" else -step


def _limits(ahead: _Number) -> list[int]:
    """How many iterations there are at most while a number is above 0 at the end of each."""
    begin, step = ahead
    if decide(begin, Relation.LE, 0):
        return [1]
    if decide(begin, Relation.LE, 0) is None:
        raise _NotCountedError
    if step >= 0:
        return []
    if step != -1 and is_symbolic(begin):
        raise _NotCountedError
    return [begin + 1 if step == -1 else -(begin // step) + 1]


def _as_type(number: _Number, to: object) -> _Number:
    """A number as one of another type, where that has all numbers up to it."""
    if not isinstance(to, int) or abs(estimate(number.begin)) > _most(DType(to).numpy):
        raise _NotCountedError
    return number


def _number(value: np.ndarray | None) -> int:
    """The whole number, or expression over dimensions, that a value is."""
    if not isinstance(value, np.ndarray) or value.size != 1:
        raise _NotCountedError
    (item,) = value.reshape(-1)
    if is_symbolic(item):
        return cast(int, item)
    if value.dtype == np.object_:
        return int(item)
    if not abs(item) <= _most(value.dtype) or item != int(item):
        raise _NotCountedError
    return int(item)


def _most(dtype: np.dtype[Any]) -> int:
    """Up to here, a type has all whole numbers, and what is counted with it does not end."""
    if dtype.itemsize >= 4 and dtype.kind in "if":
        return int(np.iinfo(dtype).max) if dtype.kind == "i" else 1 << np.finfo(dtype).nmant
    return -1


def _is_true(value: np.ndarray | None) -> bool:
    if isinstance(value, np.ndarray) and value.size and value.dtype == np.bool_:
        return bool(value.reshape(-1)[0])
    raise _NotCountedError


def _operand(node: Node, index: int) -> Ref:
    ref = node.input(index)
    if ref is None:
        raise _NotCountedError
    return ref
