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


class UniqueNames:
    """Names that are given once: the second of a name is `name#2`, the third `name#3`, ..."""

    def __init__(self, taken: Iterable[str] = (), mark: str = "#") -> None:
        self.taken = set(taken)
        self._mark = mark
        self._repeats: dict[str, int] = {}

    def take(self, wanted: str) -> str:
        """`wanted`, or something like it when it is empty or taken."""
        name = wanted
        while not name or name in self.taken:
            self._repeats[wanted] = self._repeats.get(wanted, 1) + 1
            name = f"{wanted}{self._mark}{self._repeats[wanted]}"
        self.taken.add(name)
        return name


def quoted(text: str) -> str:
    """A name in quotes, fit for one line."""
    return f"'{shown(text)}'"


def shown(text: str) -> str:
    """A name with control characters escaped and the middle left out when it is very long."""
    if len(text) > _LONGEST:
        text = f"{text[:80]}...{text[-30:]}"
    return escape(text)
