"""history.html: the table as a page in one file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from whence.fleet.change_points import ChangePoint
from whence.fleet.dashboard.content import content
from whence.fleet.table import Table
from whence.report.html.document import document

_SCRIPTS = ("wording.js", "heat_map.js", "chart.js", "model_view.js", "main.js")


def write_page(table: Table, output: Path, changes: Sequence[ChangePoint]) -> None:
    """Write the page about all of the table."""
    with table.connected() as connection:
        data = content(connection, changes)
    title = f"{table.folder.resolve().name} · whence history"
    text = document("whence.fleet.dashboard", "page.html", ["page.css"], _SCRIPTS, title, data)
    output.write_text(text, encoding="utf-8")
