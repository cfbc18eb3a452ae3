"""Parts of what is connected, against a walk from each thing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from whence.graph.connected_components import connected_components

PLACES = st.integers(0, 11)


@given(st.lists(st.tuples(PLACES, PLACES), max_size=20))
def test_parts_are_what_can_be_reached(pairs: list[tuple[int, int]]) -> None:
    parts = connected_components(range(12), pairs)
    assert sorted(each for part in parts for each in part) == list(range(12))
    for part in parts:
        reached = {part[0]}
        for _ in range(12):
            reached |= {b for pair in pairs for a, b in (pair, pair[::-1]) if a in reached}
        assert reached == set(part)


def test_a_long_chain_is_one_part() -> None:
    pairs = [(place + 1, place) for place in reversed(range(99))]
    assert connected_components(range(100), pairs) == [list(range(100))]
    assert connected_components(range(100), pairs[::-1]) == [list(range(100))]
