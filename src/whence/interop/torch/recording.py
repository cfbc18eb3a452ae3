"""Which compiled graphs a call of a `torch.compile`d module ran, and with what."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import numpy as np

from whence.runtime.executable import Executable


@dataclass(frozen=True, slots=True)
class GraphRun:
    """One run of one compiled graph."""

    executable: Executable
    inputs: tuple[np.ndarray, ...]
    ended_by: str
    """Why the graph ends where it does: the graph break, or empty at the end of the function."""
    parameters: tuple[tuple[str, int], ...] = ()
    """What the graph calls each of its parameters, and the address of its elements."""


@dataclass(slots=True)
class GraphRecording:
    keeps_inputs: bool = True
    runs: list[GraphRun] = field(default_factory=list)
    wall_ns: int = 0
    graph_ns: int = 0
    """Of the wall time, what was spent in compiled graphs."""


RECORDING: ContextVar[GraphRecording | None] = ContextVar("whence_recording", default=None)


@contextmanager
def recording(*, keep_inputs: bool = True) -> Iterator[GraphRecording]:
    """Note every graph that runs meanwhile, in this thread."""
    found = GraphRecording(keep_inputs)
    token = RECORDING.set(found)
    begin = time.monotonic_ns()
    try:
        yield found
    finally:
        found.wall_ns = time.monotonic_ns() - begin
        RECORDING.reset(token)
