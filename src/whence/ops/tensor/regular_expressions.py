"""Whether a text matches a regular expression as a whole, in time linear in the text.

Python's `re` tries alternatives one after the other, and patterns such as `(a+)+b` take it
exponential time. Here all alternatives advance together, one character at a time (Thompson's
construction), as in RE2, whose syntax ONNX names: backreferences and lookaround are refused.
Python's parser reads the pattern, and `re` decides single characters and positions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from whence.errors import ModelError
from whence.ops.limits import MAX_PATTERN_STEPS, MAX_REPEAT_COUNT

_CHARACTERS = frozenset({"LITERAL", "NOT_LITERAL", "ANY", "IN"})
_REPEATS = frozenset({"MAX_REPEAT", "MIN_REPEAT"})
_REFUSED = {
    "GROUPREF": "a backreference",
    "GROUPREF_EXISTS": "a condition on a group",
    "ASSERT": "lookaround",
    "ASSERT_NOT": "lookaround",
    "ATOMIC_GROUP": "an atomic group",
    "POSSESSIVE_REPEAT": "a possessive quantifier",
}
_FLAGS = int(re.IGNORECASE | re.MULTILINE | re.DOTALL | re.ASCII | re.UNICODE)
_MEMORY = 256


@dataclass(slots=True)
class _State:
    """A state with a test goes on when the test accepts the next character, one with `position`
    when that accepts where it is; one with neither goes on at once.
    """

    test: Callable[[str], bool] | None = None
    position: re.Pattern[str] | None = None
    targets: list[int] = field(default_factory=list)


class FullMatcher:
    """One pattern, compiled. Raises `ModelError` when it is no pattern, or beyond the limits."""

    def __init__(self, pattern: str) -> None:
        self._states: list[_State] = []
        # Python keeps its parser in modules without promises; only trees go through here.
        self._parser = import_module("re._parser")
        self._compiler = import_module("re._compiler")
        try:
            tree = self._parser.parse(pattern)
            first = self._add()
            self._final = self._sequence(tree, int(tree.state.flags) & _FLAGS, first)
        except (re.error, OverflowError) as error:
            raise ModelError(
                f"pattern {_short(pattern)} is not a regular expression: {error}"
            ) from None
        except RecursionError:
            raise ModelError(f"pattern {_short(pattern)} is nested too deeply") from None
        self._positional = any(state.position is not None for state in self._states)
        self._memory: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, text: str) -> bool:
        """Is the whole text of the language?"""
        current = self._closure([0], text, 0)
        for place, char in enumerate(text):
            if not current:
                return False
            current = self._advance(current, char, text, place + 1)
        return self._final in current

    def _advance(self, current: frozenset[int], char: str, text: str, place: int) -> frozenset[int]:
        found = self._memory.get((current, char))
        if found is None:
            tested = (self._states[each] for each in current)
            reached = [
                target
                for state in tested
                if state.test is not None and state.test(char)
                for target in state.targets
            ]
            found = self._closure(reached, text, place)
            if not self._positional:
                if len(self._memory) >= _MEMORY:
                    self._memory.clear()
                self._memory[current, char] = found
        return found

    def _closure(self, start: Iterable[int], text: str, place: int) -> frozenset[int]:
        """All states that are reached from `start` without a character."""
        seen, waiting = set(start), list(start)
        while waiting:
            state = self._states[waiting.pop()]
            if state.test is not None or (
                state.position is not None and state.position.match(text, place) is None
            ):
                continue
            for target in state.targets:
                if target not in seen:
                    seen.add(target)
                    waiting.append(target)
        return frozenset(seen)

    def _add(self, state: _State | None = None) -> int:
        if len(self._states) >= MAX_PATTERN_STEPS:
            raise ModelError(
                f"its pattern takes more than {MAX_PATTERN_STEPS} states, which is the limit:"
                " repeat less in it"
            )
        self._states.append(state or _State())
        return len(self._states) - 1

    def _go(self, start: int, state: _State | None = None) -> int:
        """A new state after `start`."""
        added = self._add(state)
        self._states[start].targets.append(added)
        return added

    def _sequence(self, items: Iterable[Any], flags: int, start: int) -> int:
        """States for the items in turn, from `start` on; the one that they end in."""
        for item in items:
            start = self._item(item, flags, start)
        return start

    def _item(self, item: Any, flags: int, start: int) -> int:
        kind, value = str(item[0]), item[1]
        if kind in _CHARACTERS:
            leaf = self._leaf(item, flags)
            return self._go(self._go(start, _State(test=lambda char: leaf.match(char) is not None)))
        if kind == "AT":
            return self._go(self._go(start, _State(position=self._leaf(item, flags))))
        if kind == "SUBPATTERN":
            _, added, removed, body = value
            return self._sequence(body, (flags | added) & ~removed & _FLAGS, start)
        if kind == "BRANCH":
            ends = [self._sequence(body, flags, self._go(start)) for body in value[1]]
            end = self._add()
            for each in ends:
                self._states[each].targets.append(end)
            return end
        if kind in _REPEATS:
            return self._repeat(value, flags, start)
        raise ModelError(
            f"its pattern has {_REFUSED.get(kind, kind.lower())}, which RE2's syntax does not have"
        )

    def _repeat(self, value: Any, flags: int, start: int) -> int:
        least, most, body = int(value[0]), value[1], value[2]
        endless = most == self._parser.MAXREPEAT
        if max(least, 0 if endless else int(most)) > MAX_REPEAT_COUNT:
            raise ModelError(
                f"its pattern repeats {least if endless else int(most)} times, and the limit is"
                f" {MAX_REPEAT_COUNT}"
            )
        for _ in range(least):
            start = self._sequence(body, flags, self._go(start))
        if endless:
            start = self._go(start)
            self._states[self._sequence(body, flags, self._go(start))].targets.append(start)
            return self._go(start)
        skips = []
        for _ in range(int(most) - least):
            skips.append(start)
            start = self._sequence(body, flags, self._go(start))
        end = self._go(start)
        for each in skips:
            self._states[each].targets.append(end)
        return end

    def _leaf(self, item: Any, flags: int) -> re.Pattern[str]:
        """A character or a position as a pattern of `re`."""
        state = self._parser.State()
        state.flags = flags
        compiled: re.Pattern[str] = self._compiler.compile(
            self._parser.SubPattern(state, [item]), flags
        )
        return compiled


def _short(pattern: str) -> str:
    return repr(pattern if len(pattern) <= 80 else f"{pattern[:77]}...")
