"""The static memory plan."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from whence.runtime.memory import ALIGNMENT, Lifetime, aligned, plan_memory

_blocks = st.lists(
    st.builds(
        lambda size, first, length: Lifetime(size, first, first + length),
        st.one_of(st.integers(0, 300), st.sampled_from([0, 1, 63, 64, 65, 4096, 10_000_000_000])),
        st.integers(0, 30),
        st.integers(0, 12),
    ),
    max_size=40,
)


def _meet(one: Lifetime, two: Lifetime) -> bool:
    return one.first <= two.last and two.first <= one.last


@given(_blocks)
def test_no_two_live_blocks_overlap(blocks: list[Lifetime]) -> None:
    plan = plan_memory(blocks)
    assert len(plan.offsets) == len(blocks)
    spans = [(offset, offset + block.size) for offset, block in zip(plan.offsets, blocks, strict=True)]
    for index, one in enumerate(blocks):
        for other in range(index):
            if _meet(one, blocks[other]) and one.size and blocks[other].size:
                (a, b), (c, d) = spans[index], spans[other]
                assert b <= c or d <= a


@given(_blocks)
def test_the_arena_holds_everything_and_wastes_nothing_on_the_whole(blocks: list[Lifetime]) -> None:
    plan = plan_memory(blocks)
    assert all(offset % ALIGNMENT == 0 for offset in plan.offsets)
    assert all(offset + block.size <= plan.arena_bytes for offset, block in zip(plan.offsets, blocks, strict=True))
    assert plan.total_bytes == sum(block.size for block in blocks)
    assert plan.arena_bytes <= sum(aligned(block.size) for block in blocks)
    peak = max((sum(aligned(each.size) for each in blocks if each.first <= step <= each.last) for step in range(50)), default=0)
    assert plan.arena_bytes >= peak


def test_a_chain_needs_two_places() -> None:
    plan = plan_memory([Lifetime(1000, step, step + 1) for step in range(10)])
    assert plan.arena_bytes == 2 * aligned(1000)
    assert plan.total_bytes == 10_000


def test_small_blocks_fill_the_gaps_between_large_ones() -> None:
    plan = plan_memory([Lifetime(640, 0, 1), Lifetime(640, 0, 3), Lifetime(64, 2, 3)])
    assert plan.arena_bytes == 1280


def test_nothing_needs_nothing() -> None:
    assert plan_memory([]) == plan_memory([Lifetime(0, 0, 0)][:0])
    assert plan_memory([]).arena_bytes == 0
