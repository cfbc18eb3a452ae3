"""The report: one page about one profile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from whence.attribution.profile import Profile
from whence.report.html.content import content
from whence.report.html.document import document

_SCRIPTS = (
    "wording.js",
    "relations.js",
    "search.js",
    "windowed_list.js",
    "selection.js",
    "heading.js",
    "drawing.js",
    "search_highlight.js",
    "module_tree.js",
    "squarify.js",
    "treemap.js",
    "graph_layout.js",
    "graph_edges.js",
    "graph_drawing.js",
    "graph_controls.js",
    "graph_view.js",
    "timeline.js",
    "operator_table.js",
    "findings.js",
    "line_labels.js",
    "roofline.js",
    "memory.js",
    "c_code.js",
    "lineage.js",
    "main.js",
)
"""In this order, in one scope."""


def write_html(profile: Profile, folder: Path) -> list[Path]:
    file = folder / "report.html"
    file.write_text(page(profile), encoding="utf-8")
    return [file]


def page(profile: Profile) -> str:
    """The report. Of a profile that was read from a file, without the optimised graph and the code,
    which are not in that file.
    """
    return assembled(content(profile))


def assembled(data: dict[str, Any]) -> str:
    """The page around `content(profile)`."""
    title = f"{data['model']} · whence"
    return document(
        "whence.report.html", "page.html", ["colours.css", "report.css"], _SCRIPTS, title, data
    )
