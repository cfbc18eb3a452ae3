"""Small pieces of HTML for notebooks: a line, and a table. Text comes from models and is
escaped.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from whence.graph.escaping import escape


def line(text: str) -> str:
    return f"<p><code>{_safe(text)}</code></p>"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A cell that begins with a digit is a number, and stands on the right."""
    head = "".join(f'<th scope="col">{_safe(heading)}</th>' for heading in headings)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(text: str) -> str:
    side = "right" if text[:1].isdigit() else "left"
    return f'<td style="text-align:{side}">{_safe(text)}</td>'


def _safe(text: str) -> str:
    return html.escape(escape(text))
