"""Patterns are matched as `re` matches them, but in time linear in the text."""

from __future__ import annotations

import itertools
import re

import pytest

from whence.errors import ModelError
from whence.ops.tensor.regular_expressions import FullMatcher

PATTERNS = (
    "", "a", "ab|b*", "(a|b)*a", "a?b+", "a{2,3}", "(ab){1,}", "(a*)*", "(a|)+b", "[^a]+", "[a-b]{2}",
    "^a.*$", r"\bab?\b", r"a\B.", "(?i)AB*", "(?i:A)b", "a*?b+?", "(?:a|ab)(?:b|)", ".", "(?s).*", r"\w\s?",
    "(){3}", "a{0}b", r"a$\n?", r"(\W|^)[ab]{0,2}(\W|$)",
)  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_agrees_with_re(pattern: str) -> None:
    matcher = FullMatcher(pattern)
    for length in range(5):
        for chars in itertools.product("abA\n", repeat=length):
            text = "".join(chars)
            assert matcher.matches(text) == (re.fullmatch(pattern, text) is not None), text


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a|aa)+b", "a*" * 30 + "b", "(a?){50}b"])
def test_no_pattern_backtracks(pattern: str) -> None:
    matcher = FullMatcher(pattern)
    assert not matcher.matches("a" * 2000)
    assert matcher.matches("a" * 20 + "b")


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (r"(a)\1", "a backreference, which RE2"),
        ("(?=a)a", "lookaround"),
        ("(a)?(?(1)b|c)", "a condition on a group"),
        ("a{1001}", "repeats 1001 times, and the limit is 1000"),
        ("a{5000,}", "repeats 5000 times, and the limit is 1000"),
        ("((a{1,900}){1,900}){1,900}b", "more than 10000 states, which is the limit"),
        ("((){1000}){1000}", "more than 10000 states, which is the limit"),
        ("(" * 5000 + ")" * 5000, "nested too deeply"),
        ("(", "is not a regular expression"),
    ],
)
def test_what_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        FullMatcher(pattern)
