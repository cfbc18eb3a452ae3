"""Variables of a file while it is read: resources (`VAR_HANDLE`, `READ_VARIABLE`,
`ASSIGN_VARIABLE`, initialised by `CALL_ONCE`) and tensors that an operator keeps from one run to
the next (`is_variable`).

While operators are read in order, a variable has at every place a present value: at first a
`Variable` of the graph, then what was assigned last. What the last assignment of the file gives it
becomes an `Assign` at the end. A graph that an operator holds (a branch, the body of a loop) gets
the present values from outside, and hands out those it assigned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from whence.frontends.tflite.records import ModelRecord, OperatorRecord, SubgraphRecord

Key: TypeAlias = str | tuple[int, int]
"""A resource by container and name, or a tensor by its subgraph and its place there."""

KEEPING: Mapping[str, tuple[int, ...]] = {
    "BIDIRECTIONAL_SEQUENCE_LSTM": (35, 36, 37, 38),
    "BIDIRECTIONAL_SEQUENCE_RNN": (4, 8),
    "GRU": (5,),
    "LSTM": (18, 19),
    "RNN": (4,),
    "SVDF": (4,),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (18, 19),
    "UNIDIRECTIONAL_SEQUENCE_RNN": (4,),
}
"""Operators that keep state in variable tensors, and which of their inputs these are."""

_CALLED = (
    "then_subgraph_index",
    "else_subgraph_index",
    "cond_subgraph_index",
    "body_subgraph_index",
    "subgraph",
    "decomposition_subgraph_index",
)


def resource_key(operator: OperatorRecord) -> str:
    """The resource that a `VAR_HANDLE` names."""
    options = operator.options
    return "/".join(str(options.get(key) or "") for key in ("container", "shared_name"))


@dataclass(frozen=True, slots=True)
class Touched:
    """The variables that a subgraph, and what it calls, uses, in the order of the file."""

    used: tuple[Key, ...]
    assigned: frozenset[Key]


class VariableUse:
    """Which variables the subgraphs of a file use."""

    def __init__(self, model: ModelRecord) -> None:
        self._subgraphs = model.subgraphs
        self._own = [_touched_in(*each) for each in enumerate(model.subgraphs)]
        self._known: dict[int, Touched] = {}
        """As `_own`, with what they call."""

    def of(self, *subgraphs: int) -> Touched:
        """What these subgraphs use together."""
        return _together([self._of(index, ()) for index in subgraphs])

    def is_assigned(self, key: Key) -> bool:
        """Does a run of the model assign to it, or may it?"""
        return key in self.of(0).assigned

    def is_state(self, subgraph: int, tensor: int) -> bool:
        """Is it a tensor that an operator keeps from one run to the next?"""
        is_own = self._subgraphs[subgraph].tensors[tensor].is_variable
        return is_own and (subgraph, tensor) in self._own[subgraph].assigned

    def _of(self, index: int, path: tuple[int, ...]) -> Touched:
        if index in path or not 0 <= index < len(self._subgraphs):
            # Refused where it is read.
            return Touched((), frozenset())
        if index not in self._known:
            called = [self._of(each, (*path, index)) for each in _calls(self._subgraphs[index])]
            self._known[index] = _together([self._own[index], *called])
        return self._known[index]


def _touched_in(index: int, record: SubgraphRecord) -> Touched:
    """What its own operators use and assign."""
    handles: dict[int, Key] = {}
    used: dict[Key, None] = {}
    assigned: set[Key] = set()
    for operator in record.operators:
        if operator.name == "VAR_HANDLE" and operator.outputs:
            handles[operator.outputs[0]] = resource_key(operator)
            used[resource_key(operator)] = None
        elif operator.name == "ASSIGN_VARIABLE" and operator.inputs:
            key = handles.get(operator.inputs[0])
            if key is not None:
                assigned.add(key)
        for tensor in _state_tensors(operator):
            if 0 <= tensor < len(record.tensors) and record.tensors[tensor].is_variable:
                used[index, tensor] = None
                assigned.add((index, tensor))
    return Touched(tuple(used), frozenset(assigned))


def _calls(record: SubgraphRecord) -> Iterator[int]:
    for operator in record.operators:
        for option in _CALLED:
            called = operator.options.get(option)
            if isinstance(called, int):
                yield called


def _together(found: Sequence[Touched]) -> Touched:
    used = dict.fromkeys(key for each in found for key in each.used)
    return Touched(tuple(used), frozenset[Key]().union(*(each.assigned for each in found)))


def _state_tensors(operator: OperatorRecord) -> Iterable[int]:
    places: Sequence[int] = KEEPING.get(operator.name, ())
    return (operator.inputs[place] for place in places if place < len(operator.inputs))
