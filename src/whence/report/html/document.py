"""A page in one file: markup, style, script and data, and nothing that it loads.

Names come from a model and may be hostile. Data stands in a block that no browser runs, with every
character that means something to HTML escaped; scripts put text on the page as text only; and the
page's policy admits no script and no style but its own, by their digests, and no connection at all.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from importlib import resources

from whence.graph.escaping import escape


def document(
    package: str,
    body: str,
    styles: Sequence[str],
    scripts: Sequence[str],
    title: str,
    data: object,
) -> str:
    """The page with a body, styles and scripts that are files of a package. The scripts share one
    scope, in this order; the data is the text of the element `data`.
    """

    def part(name: str) -> str:
        return resources.files(package).joinpath(name).read_text(encoding="utf-8")

    style = "\n".join(part(name) for name in styles)
    script = "'use strict';\n(() => {\n" + "\n".join(part(name) for name in scripts) + "})();\n"
    parts = {
        "policy": (
            f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)};"
            " base-uri 'none'; form-action 'none'"
        ),
        "title": html.escape(escape(title)),
        "style": style,
        "body": part(body),
        "data": as_data_block(data),
        "script": script,
    }
    # Piece by piece, so that a part which happens to contain another's mark stays as it is.
    frame = resources.files("whence.report.html").joinpath("document.html")
    pieces = frame.read_text(encoding="utf-8").split("@@")
    return "".join(parts[piece] if position % 2 else piece for position, piece in enumerate(pieces))


def as_data_block(data: object) -> str:
    """JSON that stays inside its element whatever text is in it: plain ASCII, and nothing in it can
    begin a tag, a comment or an entity.
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
