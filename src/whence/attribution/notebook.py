"""A profile in a notebook: the table of its operators, and the whole report inside a frame."""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whence.graph.as_html import line, table

if TYPE_CHECKING:
    from whence.attribution.profile import Profile

_ROWS = 12


@dataclass(frozen=True, slots=True)
class Report:
    """The report as a page of its own. A notebook shows it in a frame, which nothing of the
    notebook reaches into.
    """

    page: str
    height: int

    def __repr__(self) -> str:
        return f"<Report, {len(self.page) / 1e3:.0f} kB of HTML>"

    def _repr_html_(self) -> str:
        return (
            f'<iframe title="whence report" sandbox="allow-scripts" width="100%"'
            f' height="{self.height}" style="border:0" srcdoc="{html.escape(self.page)}"></iframe>'
        )


Render = Callable[["Profile"], str]
"""Makes the page of a profile."""


def summary(profile: Profile) -> str:
    """The operators with most time, as a table."""
    heaviest = sorted(profile.sources, key=lambda row: -row.time_ns)[:_ROWS]
    rows = [
        (
            f"{row.share * 100:.1f} %",
            f"{row.time_ns / max(1, profile.runs) / 1e3:.1f}",
            row.name,
            row.op,
            row.became,
        )
        for row in heaviest
    ]
    headings = ("share", "µs per run", "operator", "type", "what became of it")
    return line(repr(profile)) + table(headings, rows)
