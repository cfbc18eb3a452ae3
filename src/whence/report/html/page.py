"""The page: markup, style, script and data in one file.

Names come from a model and may be hostile. Data stands in a block that no browser runs, with every
character that means something to HTML escaped; the script puts text on the page as text only; and
the page's policy admits no script and no style but its own, by their digests, and no connection at
all.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib import resources
from pathlib import Path
from typing import Any

from whence.attribution.profile import Profile
from whence.graph.printer import escape
from whence.report.html.content import content

_SCRIPTS = (
    "wording.js",
    "relations.js",
    "search.js",
    "windowed_list.js",
    "selection.js",
    "heading.js",
    "drawing.js",
    "squarify.js",
    "treemap.js",
    "timeline.js",
    "operator_table.js",
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
    style = _part("report.css")
    script = "'use strict';\n(() => {\n" + "\n".join(_part(name) for name in _SCRIPTS) + "})();\n"
    policy = (
        f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; base-uri"
        " 'none'; form-action 'none'"
    )
    parts = {
        "policy": policy,
        "title": html.escape(f"{escape(str(data['model']))} · whence"),
        "style": style,
        "data": as_data_block(data),
        "script": script,
    }
    # Piece by piece, so that a part which happens to contain another's mark stays as it is.
    pieces = _part("page.html").split("@@")
    return "".join(parts[piece] if position % 2 else piece for position, piece in enumerate(pieces))


def as_data_block(data: object) -> str:
    """JSON that stays inside its element whatever text is in it: plain ASCII, and nothing in it can
    begin a tag, a comment or an entity.
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _part(name: str) -> str:
    return resources.files("whence.report.html").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
