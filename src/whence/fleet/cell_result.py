"""What measuring a cell gave: a profile, or why there is none."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class Status(enum.StrEnum):
    DONE = "done"
    FAILED = "failed"
    """The model, or the engine, says no."""
    TIMEOUT = "timeout"
    MEMORY = "memory"
    """More memory than the cell may have."""
    CRASHED = "crashed"
    """The process ended without a word."""


@dataclass(frozen=True, slots=True)
class CellResult:
    """The end of one cell."""

    status: Status
    profile: Mapping[str, Any] = field(default_factory=dict)
    """The contents of `profile.json`, where there is one."""
    error: str = ""
    """In a line, where there is none."""
    began: str = ""
    """When, in UTC: `2026-11-16T02:30:00.123456Z`."""
    seconds: float = 0.0
    """How long the cell took in all, compiling included."""
    peak_bytes: int = 0
    """The most memory that the process had."""
    relative_error: float = 0.0
    """The standard error of the median run, as a part of it."""
