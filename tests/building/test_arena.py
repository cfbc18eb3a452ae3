"""The static memory plan."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from whence.building.aligned_memory import ALIGNMENT, aligned
from whence.building.arena import Block, Lifetime, plan_arena

_sizes = st.one_of(st.integers(0, 300), st.sampled_from([0, 1, 63, 64, 65, 4096, 10_000_000_000]))


@st.composite
def _block(draw: st.DrawFn) -> Block:
    """One or more values, one after the other, each needed at a time of its own."""
    found, offset = [], 0
    for size in draw(st.lists(_sizes, min_size=1, max_size=4)):
        first = draw(st.integers(0, 30))
        found.append(Lifetime(size, first, first + draw(st.integers(0, 12)), offset))
        offset += aligned(size)
    return found


_blocks = st.lists(_block(), max_size=30)


def _meet(one: Lifetime, two: Lifetime) -> bool:
    return one.first <= two.last and two.first <= one.last


@given(_blocks)
def test_nothing_that_is_alive_overlaps(blocks: list[Block]) -> None:
    plan = plan_arena(blocks)
    assert len(plan.offsets) == len(blocks)
    spans = [
        (each, begin + each.offset, begin + each.offset + each.size)
        for begin, block in zip(plan.offsets, blocks, strict=True)
        for each in block
    ]
    for (one, a, b), (two, c, d) in itertools.combinations(spans, 2):
        if _meet(one, two) and one.size and two.size:
            assert b <= c or d <= a


@given(_blocks)
def test_the_arena_holds_everything_and_wastes_nothing_on_the_whole(blocks: list[Block]) -> None:
    plan = plan_arena(blocks)
    sizes = [max(each.offset + each.size for each in block) for block in blocks]
    assert all(offset % ALIGNMENT == 0 for offset in plan.offsets)
    assert all(
        offset + size <= plan.arena_bytes for offset, size in zip(plan.offsets, sizes, strict=True)
    )
    assert plan.total_bytes == sum(sizes)
    assert plan.arena_bytes <= sum(aligned(size) for size in sizes)
    peak = max(
        (
            sum(
                aligned(each.size)
                for block in blocks
                for each in block
                if each.first <= step <= each.last
            )
            for step in range(50)
        ),
        default=0,
    )
    assert plan.arena_bytes >= peak


def test_a_chain_needs_two_places() -> None:
    plan = plan_arena([[Lifetime(1000, step, step + 1)] for step in range(10)])
    assert plan.arena_bytes == 2 * aligned(1000)
    assert plan.total_bytes == 10_000


def test_small_blocks_fill_the_gaps_between_large_ones() -> None:
    plan = plan_arena([[Lifetime(640, 0, 1)], [Lifetime(640, 0, 3)], [Lifetime(64, 2, 3)]])
    assert plan.arena_bytes == 1280


def test_others_lie_where_a_part_is_not_made_yet() -> None:
    # The first half is there from the beginning, the second comes last: what happens in between
    # needs no room of its own.
    plan = plan_arena(
        [
            [Lifetime(640, 0, 9), Lifetime(640, 8, 9, offset=640)],
            [Lifetime(320, 1, 4)],
            [Lifetime(320, 3, 7)],
        ]
    )
    assert plan.offsets[0] == 0
    assert plan.arena_bytes == 1280


def test_nothing_needs_nothing() -> None:
    assert plan_arena([]) == plan_arena([[Lifetime(0, 0, 0)]][:0])
    assert plan_arena([]).arena_bytes == 0
