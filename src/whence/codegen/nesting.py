"""Writing expressions of any depth: functions that call themselves without a stack of calls, and
texts that no compiler finds nested too deeply.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias

Recursive: TypeAlias = Generator["Recursive", Any, str]
"""A function that yields each call of itself, is sent the result and returns its own."""

# clang refuses 256 levels of brackets; a text this deep gets a name before it is used in another.
_DEEPEST = 100


def without_recursion(call: Recursive) -> str:
    """The result of a call, whatever the depth of the calls that it makes."""
    stack = [call]
    result: str | None = None
    while stack:
        try:
            inner = stack[-1].send(result)
        except StopIteration as finished:
            stack.pop()
            result = finished.value
        else:
            stack.append(inner)
            result = None
    assert result is not None
    return result


def is_deep(text: str) -> bool:
    """Are its brackets nested so deeply that it should have a name?"""
    if len(text) < 2 * _DEEPEST:
        return False
    depth = 0
    for char in text:
        if char == "(":
            depth += 1
            if depth > _DEEPEST:
                return True
        elif char == ")":
            depth -= 1
    return False
