"""The memory of a model's variables: what outlives a run."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from whence.building.aligned_memory import aligned_bytes
from whence.errors import UnsupportedError

if TYPE_CHECKING:
    from whence.building.program import Program, Variable

Room = TypeVar("Room")


class VariableMemory(ABC, Generic[Room]):
    """The present value of every variable, allocated once, and room for the next value of those
    that a run cannot write in place. Engines say what room is.

    Programs for other shapes of the same model work on the same state. One run at a time does:
    to run, read or reset it, hold `lock`.
    """

    def __init__(self, program: Program, bound: Mapping[str, Room] | None = None) -> None:
        """`bound` is memory in which variables lie, by name; what it holds is what they are."""
        bound = bound or {}
        self.lock = threading.Lock()
        self._variables = program.plan.variables
        self._current = [
            bound[each.block.name] if each.block.name in bound else self.room(each)
            for each in self._variables
        ]
        self._spare: list[Room | None] = [None for _ in self._variables]
        self._bound = {i for i, each in enumerate(self._variables) if each.block.name in bound}
        """Those that lie in the caller's memory, and stay there."""
        self._initial = [
            program.weights[each.initial_offset : each.initial_offset + each.initial_bytes]
            for each in self._variables
        ]
        self._write_initial(set(range(len(self._variables))) - self._bound)

    @abstractmethod
    def room(self, variable: Variable) -> Room:
        """Memory for one value of a variable."""

    @abstractmethod
    def write(self, room: Room, variable: Variable, pattern: np.ndarray) -> None:
        """Fill it with bytes that are repeated; none of them means zeros."""

    @abstractmethod
    def read(self, room: Room, variable: Variable) -> np.ndarray:
        """A copy of what it holds."""

    def copy(self, source: Room, target: Room) -> None:
        """The value of one room into another."""
        raise UnsupportedError("variables of this engine do not lie in memory of the caller")

    def reset(self) -> None:
        """Give every variable its initial value."""
        self._write_initial(range(len(self._variables)))

    def _write_initial(self, which: Iterable[int]) -> None:
        for index in which:
            self.write(self._current[index], self._variables[index], self._initial[index])

    def begin(self, variables: Sequence[Variable]) -> tuple[Sequence[Room], Sequence[Room]]:
        """What the variables of a program are, and where it writes what they will be."""
        if variables is not self._variables and (
            [each.block for each in variables] != [each.block for each in self._variables]
        ):
            raise UnsupportedError(
                "the variables of the model have other types for inputs of these shapes, so that it"
                " cannot go on from where it is; compile it for these shapes"
            )
        after = []
        for index, each in enumerate(variables):
            if each.in_place or not each.is_assigned:
                after.append(self._current[index])
                continue
            spare = self._spare[index]
            if spare is None:
                spare = self._spare[index] = self.room(each)
            after.append(spare)
        return list(self._current), after

    def finish(self, variables: Sequence[Variable]) -> None:
        """A run is done: what it made is what the variables are."""
        for index, each in enumerate(variables):
            spare = self._spare[index]
            if not each.is_assigned or each.in_place or spare is None:
                continue
            if index in self._bound:
                self.copy(spare, self._current[index])
            else:
                self._current[index], self._spare[index] = spare, self._current[index]

    def values(self) -> dict[str, np.ndarray]:
        """A copy of what the variables are, by name."""
        return {
            each.block.name: self.read(room, each)
            for each, room in zip(self._variables, self._current, strict=True)
        }


class StateMemory(VariableMemory[np.ndarray]):
    """In the memory of the host."""

    def room(self, variable: Variable) -> np.ndarray:
        block = variable.block
        array: np.ndarray = aligned_bytes(variable.nbytes).view(block.dtype)
        return array.reshape(block.shape)

    def copy(self, source: np.ndarray, target: np.ndarray) -> None:
        np.copyto(target, source)

    def write(self, room: np.ndarray, variable: Variable, pattern: np.ndarray) -> None:
        room[...] = filled(variable, pattern)

    def read(self, room: np.ndarray, variable: Variable) -> np.ndarray:
        return room.copy()


def filled(variable: Variable, pattern: np.ndarray) -> np.ndarray:
    """A value of the variable made of these bytes."""
    array = np.zeros(variable.block.shape, variable.block.dtype)
    if pattern.size:
        array.reshape(-1).view(np.uint8).reshape(-1, pattern.size)[...] = pattern
    return array
