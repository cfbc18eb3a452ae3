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


def fit(text: str, width: int) -> str:
    """Text that comes from a model, printable, and with its middle left out when it is longer than
    `width`.
    """
    return shorten(escape(text), width)


def shorten(text: str, width: int) -> str:
    """The text, with its middle left out when it is longer than `width`: both ends of an operator's
    name tell something.
    """
    if len(text) <= width:
        return text
    head = (width - 1) // 3
    return text[:head] + "…" + text[len(text) - (width - 1 - head) :]
