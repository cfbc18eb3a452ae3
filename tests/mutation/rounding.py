"""Whether two results of a model are the same, but for rounding.

Engines add in another order and multiply by reciprocals, so that the last place of a number may be
another. Mostly that changes a result by as little; where numbers cancel, lie between two codes or
tie for the largest, by more. A result that last places explain is one that the interpreter gives
too, once last places of its numbers are changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from whence.errors import WhenceError
from whence.graph import Node
from whence.graph.interpreter import Observer
from whence.passes.equivalence import difference

TOLERANCE = 5e-3
_DRAWS, _ROUNDINGS = 16, 8
_MOST_COMPARED, _MOST_PIECES = 1 << 24, 8

Change: TypeAlias = Callable[[Any], Any]
Again: TypeAlias = Callable[[Change, Change, Observer], list[Any]]
"""Runs a model again with its inputs changed, its constants, and by an observer what operators
make.
"""


def rounding_explains(again: Again, expected: Sequence[Any], found: Sequence[Any]) -> bool:
    """Is what was found as good as what was expected, for all that rounding can tell?"""
    return (
        compared(without_subnormals(again), found)[0] == "ran"
        or not exceeds_rounding(again, expected, found)
        or all_elements_occur(again, expected, found)
    )


def without_subnormals(again: Again) -> list[Any]:
    """What the interpreter makes of it where numbers too small for all their digits are zero, as
    kernels and other engines may have them: whoever counts what is not zero sees the difference.
    """

    def flush(node: Node, values: Sequence[Any]) -> None:
        for value in _floats(values):
            value[np.abs(value) < np.finfo(value.dtype).tiny] = 0

    return again(_same, _same, flush)


def _same(value: Any) -> Any:
    return value


def exceeds_rounding(again: Again, expected: Sequence[Any], found: Sequence[Any]) -> bool:
    """Is the difference larger than what last places make? A sum of numbers that cancel is as good
    as its rounding errors, whoever computes it. Nor is it a fault if such inputs give just what was
    found: of a tie, another index; of a sum near zero, one element more.
    """
    if sum(np.size(value) for value in expected) > _MOST_COMPARED:
        return True
    moved, exact = [np.zeros(np.shape(value)) for value in expected], False
    for others in _draws(again, _DRAWS, whole_too=True):
        if compared(others, found)[0] == "ran":
            return False
        for value, other, most in zip(expected, others, moved, strict=True):
            if np.shape(other) != most.shape or np.asarray(value).dtype.kind != "f":
                exact = True
            else:
                np.maximum(most, np.abs(value.astype(np.float64) - other), out=most)
    return exact or not all(
        np.all(np.abs(value.astype(np.float64) - other) <= _ROUNDINGS * most.max())
        for value, other, most in zip(expected, found, moved, strict=True)
        if most.size
    )


def all_elements_occur(again: Again, expected: Sequence[Any], found: Sequence[Any]) -> bool:
    """Does every element of integers occur there, once last places are changed? A number between
    two codes is rounded to either, each of many by itself. Whole numbers stay: what was rounded
    before is not between codes.
    """
    if sum(np.size(value) for value in expected) > _MOST_COMPARED:
        return False
    if any(np.asarray(value).dtype.kind not in "iub" for value in expected):
        return False
    if any(
        np.shape(value) != np.shape(other) for value, other in zip(expected, found, strict=True)
    ):
        return False
    occurs = [value == other for value, other in zip(expected, found, strict=True)]
    for others in _draws(again, _DRAWS, whole_too=False):
        for seen, value, other in zip(occurs, found, others, strict=True):
            if np.shape(other) == np.shape(value):
                seen |= value == other
        if all(map(np.all, occurs)):
            return True
    return all(map(np.all, occurs))


def _draws(again: Again, count: int, *, whole_too: bool) -> Iterator[list[Any]]:
    """Results with last places changed, each time others. Half of them change only inputs and
    constants, and half what operators make as well; of both but inputs, whole numbers are exact. A
    model that then asks for what does not exist has no result.
    """
    for draw in range(count):
        rng = np.random.default_rng(draw)

        def change(value: Any, rng: np.random.Generator = rng) -> Any:
            return _last_places(value, rng, whole_too=whole_too)

        def change_fraction(value: Any, rng: np.random.Generator = rng) -> Any:
            return _last_places(value, rng, whole_too=False)

        def observe(node: Node, values: Sequence[Any], made: Change = change_fraction) -> None:
            for value in _floats(values):
                value[...] = made(value)

        def ignore(node: Node, values: Sequence[Any]) -> None:
            pass

        try:
            yield again(change, change_fraction, observe if draw % 2 else ignore)
        except WhenceError:
            continue


def _floats(values: Sequence[Any]) -> Iterator[np.ndarray]:
    for value in values:
        if isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.flags.writeable:
            yield value


def _last_places(value: Any, rng: np.random.Generator, *, whole_too: bool) -> Any:
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
        return value
    part = np.finfo(value.dtype).eps * rng.choice((-1, 0, 1), value.shape)
    changed = (value * (1 + part)).astype(value.dtype)
    return changed if whole_too else np.where(value == np.trunc(value), value, changed)


def compared(expected: Sequence[Any], found: Sequence[Any]) -> tuple[str, str]:
    for number, (one, other) in enumerate(zip(expected, found, strict=True)):
        if not isinstance(one, np.ndarray):
            continue
        if one.shape != np.shape(other) or one.dtype != other.dtype:
            shapes = f"{one.dtype}{one.shape} and {other.dtype}{np.shape(other)}"
            return "different", f"output {number} is {shapes}"
        if one.dtype.kind == "O" or not one.size:
            continue
        # In pieces, because in float64 all of it may not fit into memory; of very many, three.
        flat, found_flat = one.reshape(-1), np.asarray(other).reshape(-1)
        pieces = [slice(at, at + _MOST_COMPARED) for at in range(0, flat.size, _MOST_COMPARED)]
        if len(pieces) > _MOST_PIECES:
            pieces = [pieces[0], pieces[len(pieces) // 2], pieces[-1]]
        largest = np.max([np.abs(flat[piece].astype(np.float64)).max() for piece in pieces])
        if largest < 1e30:  # neither infinite nor no number
            gap = max(difference(flat[piece], found_flat[piece]) for piece in pieces)
            if not gap <= TOLERANCE:
                return "different", f"output {number} differs by {gap:.3g}\n{one}\n{other}"[:2000]
    return "ran", ""
