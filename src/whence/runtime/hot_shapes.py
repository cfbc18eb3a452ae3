"""Shapes that are hot are compiled for by themselves, in the background.

What is compiled for open sizes serves every call. A shape is hot once so much time was spent in it
that compiling for it would have taken no longer, going by what the compilation for open sizes took.
Then a program for its numbers is made while calls go on, and later calls use that. Of such programs
there are few at a time; the one that was not used for the longest time leaves, and its shape is
served by the open program again.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from time import perf_counter_ns
from typing import TYPE_CHECKING, TypeVar

from whence.errors import WhenceError

if TYPE_CHECKING:
    from whence.building.program import Program

SETTING = "WHENCE_SPECIALISE"
MOST_SPECIALISED = 4
"""Programs for one shape each that a model has at a time, besides those for open sizes."""

Shapes = Mapping[str, tuple[int, ...]]
Key = TypeVar("Key")


def is_wanted() -> bool:
    """Are hot shapes compiled for? Not with WHENCE_SPECIALISE=never."""
    return os.environ.get(SETTING, "") != "never"


def in_thread(job: Callable[[], None]) -> None:
    """Do it in the background; the process does not wait for it to end."""
    threading.Thread(target=job, name="whence-specialise", daemon=True).start()


class HotShapes:
    """Compiles for one hot shape after the other, and holds what is ready until it is taken."""

    def __init__(
        self,
        compile_for: Callable[[Shapes], Program],
        *,
        clock: Callable[[], int] = perf_counter_ns,
        start: Callable[[Callable[[], None]], None] = in_thread,
    ) -> None:
        self.clock = clock
        """In nanoseconds."""
        self._compile_for, self._start = compile_for, start
        self._lock = threading.Lock()
        self._waiting: deque[tuple[object, Shapes, Program]] = deque()
        self._asked: set[object] = set()
        """Shapes that wait, are compiled for or are ready, and those that could not be."""
        self._is_busy = False
        self.ready: dict[object, Program] = {}
        """Programs for shapes that nobody took yet."""

    def ask(self, key: object, shapes: Shapes, opened: Program) -> None:
        """Have a program made for these shapes, which `opened` has served so far."""
        with self._lock:
            if key in self._asked:
                return
            self._asked.add(key)
            self._waiting.append((key, shapes, opened))
            if self._is_busy:
                return
            self._is_busy = True
        self._start(self._work)

    def take(self) -> list[tuple[object, Program]]:
        """What is ready."""
        with self._lock:
            taken = list(self.ready.items())
            self.ready = {}
        return taken

    def forget(self, key: object) -> None:
        """The program for this shape left; it may become hot again."""
        with self._lock:
            self._asked.discard(key)

    def _work(self) -> None:
        try:
            while self._compile_next():
                pass
        except BaseException:
            # A mistake of ours is seen, and the next hot shape begins anew.
            with self._lock:
                self._is_busy = False
            raise

    def _compile_next(self) -> bool:
        """Compile for one of the shapes that wait. Was there one?"""
        with self._lock:
            if not self._waiting:
                self._is_busy = False
                return False
            key, shapes, opened = self._waiting.popleft()
        try:
            program = self._compile_for(shapes)
            if program.packed.is_same(opened.packed):
                program.packed = opened.packed
        except (WhenceError, MemoryError, OSError) as error:
            warnings.warn(
                f"compiling for a shape that is hot failed, calls go on as before: {error}",
                RuntimeWarning,
                stacklevel=2,
            )
            return True
        with self._lock:
            self.ready[key] = program
        return True
