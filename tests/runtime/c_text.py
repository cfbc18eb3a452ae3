"""What a C compiler sees of a source: no comments, no contents of strings."""

from __future__ import annotations

import re

_TRIGRAPHS = {
    "=": "#",
    "/": "\\",
    "'": "^",
    "(": "[",
    ")": "]",
    "!": "|",
    "<": "{",
    ">": "}",
    "-": "~",
}
_TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|.', re.DOTALL)


def code_of(source: str) -> str:
    """The code of a C source, by the first phases of translation: trigraphs, then lines joined,
    then comments to spaces.

    Strings are emptied, and anything that begins a comment or a string without ending it is left
    standing, to be seen.
    """
    joined = re.sub(r"\?\?([=/'()!<>-])", lambda found: _TRIGRAPHS[found[1]], source).replace(
        "\\\n", ""
    )
    return _TOKEN.sub(lambda found: _plain(found[0]), joined)


def _plain(token: str) -> str:
    if token.startswith(("/*", "//")):
        return "\n" * token.count("\n")
    return f"{token[0]}{token[0]}" if len(token) > 1 else token


def squeezed(source: str) -> list[str]:
    """The lines of code, without indentation and empty lines."""
    return [" ".join(line.split()) for line in code_of(source).splitlines() if line.strip()]
