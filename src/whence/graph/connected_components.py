"""Things that are connected with each other, directly or through others."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

_Thing = TypeVar("_Thing", bound=Hashable)


def connected_components(
    things: Iterable[_Thing], pairs: Iterable[tuple[_Thing, _Thing]]
) -> list[list[_Thing]]:
    """The things by the part that they belong to, in their order; each of a pair is one of them."""
    group = {each: each for each in things}

    def first(each: _Thing) -> _Thing:
        while group[each] != each:
            group[each] = each = group[group[each]]
        return each

    for one, other in pairs:
        group[first(one)] = first(other)
    together: dict[_Thing, list[_Thing]] = {}
    for each in group:
        together.setdefault(first(each), []).append(each)
    return list(together.values())
