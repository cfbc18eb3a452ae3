"""What a pass did to a graph, as the ledger keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PassReport:
    """What one pass did."""

    name: str
    summary: str
    nanoseconds: int
    added: int
    removed: int
    rules: Mapping[str, int] = field(default_factory=dict)
    """How often each rule was applied."""
    skipped: str = ""
    """Why it did not run, or empty."""

    @property
    def changes(self) -> int:
        return sum(self.rules.values())
