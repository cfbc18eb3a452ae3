"""Which compiled graphs a call of a `torch.compile`d module ran, and with what."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from whence.runtime.executable import Executable


@dataclass(frozen=True, slots=True)
class GraphRun:
    """One run of one compiled graph."""

    executable: Executable
    inputs: tuple[np.ndarray, ...]
    ended_by: str
    """Why the graph ends where it does: the graph break, or empty at the end of the function."""


@dataclass(slots=True)
class Recording:
    runs: list[GraphRun] = field(default_factory=list)
    wall_ns: int = 0
    graph_ns: int = 0
    """Of the wall time, what was spent in compiled graphs."""


_RECORDING: ContextVar[Recording | None] = ContextVar("whence_recording", default=None)


@contextmanager
def recording() -> Iterator[Recording]:
    """Note every graph that runs meanwhile, in this thread."""
    found = Recording()
    token = _RECORDING.set(found)
    begin = time.monotonic_ns()
    try:
        yield found
    finally:
        found.wall_ns = time.monotonic_ns() - begin
        _RECORDING.reset(token)


def note_run(executable: Executable, inputs: list[Any], ended_by: str, spent_ns: int) -> None:
    found = _RECORDING.get()
    if found is not None:
        copies = tuple(np.array(value) for value in inputs)
        found.runs.append(GraphRun(executable, copies, ended_by))
        found.graph_ns += spent_ns


def is_recording() -> bool:
    return _RECORDING.get() is not None
