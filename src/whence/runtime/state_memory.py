"""The memory of a model's variables: what outlives a run."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
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
    whoever runs, reads or resets it holds `lock`.
    """

    def __init__(self, program: Program) -> None:
        self.lock = threading.Lock()
        self._variables = program.plan.variables
        self._current = [self.room(each) for each in self._variables]
        self._spare: list[Room | None] = [None for _ in self._variables]
        self._initial = [
            program.weights[each.initial_offset : each.initial_offset + each.initial_bytes]
            for each in self._variables
        ]
        self.reset()

    @abstractmethod
    def room(self, variable: Variable) -> Room:
        """Memory for one value of a variable."""

    @abstractmethod
    def write(self, room: Room, variable: Variable, pattern: np.ndarray) -> None:
        """Fill it with bytes that are repeated; none of them means zeros."""

    @abstractmethod
    def read(self, room: Room, variable: Variable) -> np.ndarray:
        """A copy of what it holds."""

    def reset(self) -> None:
        """Give every variable its initial value."""
        for room, each, pattern in zip(self._current, self._variables, self._initial, strict=True):
            self.write(room, each, pattern)

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
            if each.is_assigned and not each.in_place and spare is not None:
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
