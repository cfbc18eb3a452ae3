"""The programs of one model: one for each set of shapes it was called with, some of them compiled
and the others of the same code for other sizes.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from whence.building.program import Program
from whence.errors import InputError, WhenceError
from whence.ops.binding import Port, disagreement, warn_of_disagreement
from whence.runtime.hot_shapes import MOST_SPECIALISED, HotShapes
from whence.types import TensorType

Signature = tuple[tuple[int, ...] | None, ...]
"""The shape of each input; `None` for one that is not a tensor."""
Specialise = Callable[[Mapping[str, tuple[int, ...]]], Program]

MOST_SIZES = 32
"""Sizes that a compiled program stays laid out for, with memory of its own for each."""


class Prepared:
    """A program that is ready to run."""

    __slots__ = ("free", "is_compiled", "is_specialised", "last_use", "program", "spent_ns")

    def __init__(
        self, program: Program, *, is_compiled: bool, is_specialised: bool = False
    ) -> None:
        self.program = program
        self.is_compiled = is_compiled
        """Was it compiled for these sizes, or is it of code that was there already?"""
        self.is_specialised = is_specialised
        """Was it compiled because these sizes were hot?"""
        self.spent_ns = 0
        """How long calls took with it, where that decides whether its sizes are hot."""
        self.free: list[Any] = []
        """Instances that are not running. Threads take from and give to the list itself, each in
        one step that no other comes between.
        """
        self.last_use = 0


class ProgramSet:
    """Finds the program for the shapes of a call, and has it compiled if no code serves them."""

    def __init__(
        self, inputs: Sequence[Port], specialise: Specialise, hot: HotShapes | None = None
    ) -> None:
        self._inputs = tuple(inputs)
        self._specialise = specialise
        self.hot = hot
        """Compiles for shapes that much time is spent in; `None`: nobody does."""
        self._prepared: dict[Signature, Prepared] = {}
        self._templates: list[Program] = []
        self._uses = itertools.count(1)
        # Held again by a clone, which asks the model it was made of for the graph.
        self.lock = threading.RLock()
        self.compilations = 0
        """How often the model was compiled, or loaded from what was compiled before."""

    def __len__(self) -> int:
        return len(self._prepared)

    @property
    def programs(self) -> tuple[Program, ...]:
        return tuple(prepared.program for prepared in list(self._prepared.values()))

    @property
    def specialised(self) -> int:
        """How many shapes have programs of their own because they were hot."""
        return sum(prepared.is_specialised for prepared in list(self._prepared.values()))

    def find(self, signature: Signature) -> Prepared:
        found = self._prepared.get(signature)
        if found is None:
            # Runs of other shapes go on meanwhile.
            with self.lock:
                found = self._prepared.get(signature)
                if found is None:
                    found = self._prepared[signature] = self._make(signature)
                    # Sizes that were not used for the longest time go, and their memory.
                    self._forget_all_but(MOST_SIZES, lambda each: not each.is_compiled)
        found.last_use = next(self._uses)
        return found

    def serves(self, signature: Signature) -> bool:
        """Can inputs of these shapes be run by what is compiled?"""
        return signature in self._prepared or any(
            program.template is not None and program.template.sizes_of(signature) is not None
            for program in self._templates
        )

    def _make(self, signature: Signature) -> Prepared:
        for program in self._templates:
            assert program.template is not None
            sizes = program.template.sizes_of(signature)
            if sizes is not None:
                return Prepared(program.at(sizes), is_compiled=False)
        program = self._compiled(signature)
        self.compilations += 1
        if program.template is not None:
            self._templates.append(program)
        return Prepared(program, is_compiled=True)

    # ---- shapes that are hot ----

    def begin(self, prepared: Prepared) -> int:
        """When a call begins whose time counts; 0 if it does not. Who is done says so to `end`."""
        if self.hot is None or prepared.program.template is None:
            return 0
        return self.hot.clock()

    def end(self, signature: Signature, prepared: Prepared, began: int) -> None:
        """A call is done: its shape may be hot now."""
        if self.hot is None or not began:
            return
        # Threads may count at the same time, and lose one of the times.
        prepared.spent_ns += self.hot.clock() - began
        if prepared.spent_ns > self._cost_ns(prepared.program) and not _compiles_in_runs(
            prepared.program
        ):
            self.hot.ask(signature, self._shapes(signature), prepared.program)

    def _cost_ns(self, program: Program) -> float:
        """What compiling for one shape is likely to take: as long as it took for open sizes."""
        compiled = (each for each in self._templates if each.template is program.template)
        return next((each.compile_ns for each in compiled if each.compile_ns), math.inf)

    def take_specialised(self) -> None:
        """Use what was compiled for hot shapes from now on. Who is compiling is not waited for: the
        next call comes soon.
        """
        if self.hot is None or not self.hot.ready or not self.lock.acquire(blocking=False):
            return
        try:
            for signature, program in self.hot.take():
                made = Prepared(program, is_compiled=True, is_specialised=True)
                made.last_use = next(self._uses)
                self._prepared[cast(Signature, signature)] = made
            for left in self._forget_all_but(MOST_SPECIALISED, lambda each: each.is_specialised):
                self.hot.forget(left)
        finally:
            self.lock.release()

    def _shapes(self, signature: Signature) -> dict[str, tuple[int, ...]]:
        return {
            port.name: shape
            for port, shape in zip(self._inputs, signature, strict=True)
            if shape is not None
        }

    def _compiled(self, signature: Signature) -> Program:
        warn_of_disagreement(self._inputs, signature)
        try:
            return self._specialise(self._shapes(signature))
        except MemoryError as error:
            raise WhenceError(
                f"there is no memory to compile the model for these sizes: {error}"
            ) from error
        except InputError:
            raise
        except WhenceError as error:
            wrong = disagreement(self._inputs, signature) or _empty(self._inputs, signature)
            if wrong is None:
                raise
            raise InputError(f"{wrong}, and the model cannot be run like that: {error}") from error

    def _forget_all_but(self, most: int, which: Callable[[Prepared], bool]) -> list[Signature]:
        """Of the programs in question only those that were used last stay."""
        found = [item for item in self._prepared.items() if which(item[1])]
        found.sort(key=lambda item: item[1].last_use or next(self._uses))
        left = [signature for signature, _ in found[: max(len(found) - most, 0)]]
        for signature in left:
            del self._prepared[signature]
        return left


def _compiles_in_runs(program: Program) -> bool:
    """Is a part of it compiled when a run knows its sizes? A program for one shape would compile
    that part again, and let a call wait for it.
    """
    steps = program.plan.references
    return any(program.graph[step.node].op == "Continuation" for step in steps)


def _empty(inputs: Sequence[Port], signature: Signature) -> str | None:
    """Which input has a dimension of size zero, in words."""
    for port, shape in zip(inputs, signature, strict=True):
        if shape is not None and 0 in shape and isinstance(port.type, TensorType):
            axis = shape.index(0)
            dim = (port.type.shape or ())[axis : axis + 1]
            name = f"dimension '{dim[0]}'" if dim and isinstance(dim[0], str) else f"axis {axis}"
            return f"{name} of input '{port.name}' has size 0 (shape {list(shape)})"
    return None
