"""Names out of models as text on one line."""

from __future__ import annotations


def escape(text: str) -> str:
    """Printable, on one line, and reversible: backslash escapes for control characters and for the
    backslash itself.
    """
    return "".join(
        (
            char
            if char.isprintable() and char != "\\"
            else char.encode("unicode_escape").decode("ascii")
        )
        for char in text
    )
