"""How text from a file appears in messages: it is untrusted, and a message is one line."""

from __future__ import annotations

from collections.abc import Iterable

from whence.errors import ModelError
from whence.graph.escaping import escape

_LONGEST = 120


def check_texts(texts: Iterable[str]) -> None:
    """Refuse names that are not UTF-8; the protobuf package hands those out as bytes."""
    try:
        "".join(texts)
    except TypeError:
        bad = next(text for text in texts if not isinstance(text, str))
        raise ModelError(f"the model has a name that is not UTF-8 text: {bad!r}") from None


def quoted(text: str) -> str:
    """A name in quotes, fit for one line."""
    return f"'{shown(text)}'"


def shown(text: str) -> str:
    """A name with control characters escaped and the middle left out when it is very long."""
    if len(text) > _LONGEST:
        text = f"{text[:80]}...{text[-30:]}"
    return escape(text)
