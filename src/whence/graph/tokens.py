"""The words and marks of a line of graph text, taken one after the other."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, NoReturn, TypeVar

from whence.errors import TextError
from whence.graph.literals import WORD

T = TypeVar("T")
_TOKEN = re.compile(
    rf"""(?P<space>[ ]+)
    |(?P<name>\#.*)
    |(?P<node>%(?:\d+|[^\W\d]\w*)(?:\.\d+)?)
    |(?P<string>b?'(?:[^'\\]|\\.)*'|b?"(?:[^"\\]|\\.)*")
    |(?P<number>[+-]?(?:0x[0-9a-f]+|(?:inf|nan)j?|\d+(?:\.\d*)?(?:e[+-]?\d+)?[fj]?)(?![\w.])|\([^()\s]*j\))
    |(?P<word>{WORD})
    |(?P<mark><-|->|\.\.\.|[=()\[\]{{}},?!:-])
    """,
    re.VERBOSE,
)


class Token(NamedTuple):
    kind: str
    """`name`, `node`, `string`, `number`, `word`, `mark`, or `end` after the last."""
    text: str
    column: int
    """From 1, as editors count."""


@dataclass(slots=True)
class TextLine:
    """One line, with the place that reading has come to."""

    number: int
    indent: int
    tokens: list[Token]
    place: int = 0

    def error(self, message: str, token: Token | None = None) -> TextError:
        column = (token or self.next).column
        return TextError(f"line {self.number}, column {column}: {message}")

    @property
    def next(self) -> Token:
        return self.tokens[self.place]

    def take(self) -> Token:
        token = self.next
        self.place += token.kind != "end"
        return token

    def at(self, *texts: str) -> bool:
        """Is the next one of these words or marks?"""
        return self.next.kind in ("word", "mark") and self.next.text in texts

    def skip(self, text: str) -> bool:
        """Take the next if it is this."""
        found = self.at(text)
        self.place += found
        return found

    def expect(self, text: str) -> None:
        if not self.skip(text):
            self.wanted(f"'{text}'")

    def listed(self, brackets: str, read: Callable[[], T]) -> list[T]:
        """What stands between two brackets, `()` or `[]`, with commas between."""
        self.expect(brackets[0])
        found: list[T] = []
        while not self.skip(brackets[1]):
            if found:
                self.expect(",")
            found.append(read())
        return found

    def taken(self, kind: str, wanted: str) -> Token:
        """The next token, which must be of this kind."""
        return self.take() if self.next.kind == kind else self.wanted(wanted)

    def wanted(self, what: str) -> NoReturn:
        found = f"'{self.next.text}'" if self.next.kind != "end" else "the end of the line"
        raise self.error(f"{what} is wanted here, not {found}")

    def word(self, wanted: str) -> str:
        """A name, bare or quoted."""
        if self.next.kind == "string":
            return self.string(wanted)
        return self.taken("word", wanted).text

    def string(self, wanted: str) -> str:
        token = self.taken("string", wanted)
        value = literal(self, token)
        if not isinstance(value, str):
            raise self.error(f"{wanted} is text, not bytes", token)
        return value

    def integer(self, wanted: str) -> int:
        token = self.taken("number", wanted)
        try:
            return int(token.text)
        except ValueError:
            raise self.error(f"{wanted} is a whole number, not '{token.text}'", token) from None

    def finish(self) -> None:
        if self.next.kind != "end":
            self.wanted("the end of the line")


def literal(line: TextLine, token: Token) -> str | bytes:
    """The text or the bytes that a quoted token stands for."""
    try:
        value = ast.literal_eval(token.text)
    except (SyntaxError, ValueError) as error:
        raise line.error(f"{token.text} is no text: {error}", token) from None
    assert isinstance(value, str | bytes)
    return value


def read_lines(text: str) -> list[TextLine]:
    """The lines that say something: empty ones, and those that are a comment only, do not."""
    found = []
    for number, raw in enumerate(text.split("\n"), 1):
        stripped = raw.lstrip(" ")
        if not stripped or stripped.startswith("#"):
            continue
        line = TextLine(number, len(raw) - len(stripped), [])
        place = 0
        while place < len(raw):
            match = _TOKEN.match(raw, place)
            if match is None or match.lastgroup is None:
                token = Token("mark", raw[place], place + 1)
                raise line.error(f"'{raw[place]}' means nothing here", token)
            if match.lastgroup != "space":
                line.tokens.append(Token(match.lastgroup, match[0], place + 1))
            place = match.end()
        line.tokens.append(Token("end", "", len(raw) + 1))
        found.append(line)
    return found
