"""Attention: every combination of heads, masks and layouts, against the reference and ONNX
Runtime.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.harness import Cases
from whence.graph.builder import Symbol


def _qkv(
    cases: Cases,
    batch: int,
    heads: int,
    queries: int,
    keys: int,
    size: int,
    width: int = 0,
    kv_heads: int = 0,
) -> tuple[Symbol, Symbol, Symbol]:
    kv_heads = kv_heads or heads
    return (
        cases.normal(batch, heads, queries, size),
        cases.normal(batch, kv_heads, keys, size),
        cases.normal(batch, kv_heads, keys, width or size),
    )


def test_sizes():
    cases = Cases()
    for shape in (
        (1, 2, 32, 32, 32),
        (1, 3, 197, 197, 64),
        (2, 2, 5, 7, 8),
        (1, 1, 1, 33, 16),
        (1, 2, 15, 16, 40, 24),
        (1, 1, 3, 100, 5, 7),
        (2, 1, 64, 1, 3, 100),
        (1, 1, 20, 300, 64, 48),
    ):
        cases.expect(cases.op("Attention", *_qkv(cases, *shape)), str(shape))
    cases.check()


def test_shared_heads():
    cases = Cases()
    for shape in ((2, 6, 9, 20, 16, 16, 2), (1, 8, 1, 31, 32, 32, 4), (2, 4, 1, 17, 8, 24, 1)):
        cases.expect(cases.op("Attention", *_qkv(cases, *shape), scale=0.3), str(shape))
    cases.check()


def test_causal_and_windows():
    cases = Cases()
    for queries, keys in ((40, 40), (5, 33), (33, 5)):
        cases.expect(
            cases.op("Attention", *_qkv(cases, 1, 2, queries, keys, 16), is_causal=1),
            f"causal_{queries}_{keys}",
        )
    cases.check()
    cases = Cases()
    for attrs in (
        {"left_window_size": 3},
        {"right_window_size": 4},
        {"left_window_size": 2, "right_window_size": 5},
        {"left_window_size": 3, "is_causal": 1},
    ):
        cases.expect(cases.op("Attention", *_qkv(cases, 1, 2, 30, 30, 16), **attrs), str(attrs))
    cases.check(peer=False)


@pytest.mark.parametrize("kind", ["float", "bool"])
def test_masks(kind: str):
    cases = Cases()
    for shape in ((9, 21), (1, 9, 21), (3, 9, 21), (1, 1, 9, 21), (2, 1, 9, 21), (2, 3, 9, 21)):
        seen = cases.rng.random(shape) < 0.7
        seen[..., 0] = True
        mask = (
            seen
            if kind == "bool"
            else np.where(seen, cases.rng.standard_normal(shape), -1e30).astype(np.float32)
        )
        cases.expect(
            cases.op("Attention", *_qkv(cases, 2, 3, 9, 21, 16), cases.feed(mask)), str(shape)
        )
    both = cases.op(
        "Attention",
        *_qkv(cases, 1, 2, 20, 20, 8),
        cases.feed(np.ones((20, 20), np.bool_)),
        is_causal=1,
    )
    cases.expect(both, "and_causal")
    cases.check()


def test_a_query_that_sees_nothing_gets_zeros():
    cases = Cases()
    seen = np.ones((6, 10), np.bool_)
    seen[2] = False
    cases.expect(cases.op("Attention", *_qkv(cases, 1, 2, 6, 10, 16), cases.feed(seen)), "bool")
    cases.expect(
        cases.op(
            "Attention",
            *_qkv(cases, 1, 2, 6, 10, 16),
            cases.feed(np.where(seen, 0, -np.inf).astype(np.float32)),
        ),
        "float",
    )
    cases.check(peer=False)


def test_short_masks_hide_the_rest():
    cases = Cases()
    cases.expect(
        cases.op(
            "Attention", *_qkv(cases, 1, 2, 6, 20, 16), cases.feed(np.ones((6, 13), np.bool_))
        ),
        "bool",
    )
    cases.expect(cases.op("Attention", *_qkv(cases, 1, 2, 6, 20, 16), cases.normal(6, 13)), "float")
    cases.check(peer=False)


def test_softcap_scale_and_lengths():
    cases = Cases()
    cases.expect(cases.op("Attention", *_qkv(cases, 1, 2, 12, 19, 16), softcap=2.0), "softcap")
    cases.expect(cases.op("Attention", *_qkv(cases, 1, 2, 12, 19, 16), scale=-0.5), "negative")
    q, k, v = _qkv(cases, 3, 2, 4, 19, 16)
    lengths = cases.feed(np.array([19, 7, 4], np.int64))
    cases.expect(cases.op("Attention", q, k, v, None, None, None, lengths), "lengths")
    cases.expect(
        cases.op("Attention", q, k, v, None, None, None, lengths, is_causal=1), "causal_lengths"
    )
    cases.check(peer=False)


def test_a_single_query_sees_all_keys_that_there_are():
    """It is the last of them, so that position hides nothing; a window does."""
    cases = Cases()
    k, v = (cases.normal(3, 2, 40, 16) for _ in range(2))
    lengths = cases.feed(np.array([40, 0, 29], np.int64))
    for heads in (2, 6):
        q = cases.normal(3, heads, 1, 16)
        for name, attrs in (("all", {}), ("causal", {"is_causal": 1})):
            cases.expect(
                cases.op("Attention", q, k, v, None, None, None, lengths, **attrs),
                f"{name}_{heads}",
            )
    cases.check(peer=False)


def test_heads_side_by_side():
    cases = Cases()
    q, k, v = cases.normal(2, 9, 6 * 16), cases.normal(2, 13, 2 * 16), cases.normal(2, 13, 2 * 24)
    cases.expect(cases.op("Attention", q, k, v, q_num_heads=6, kv_num_heads=2), "packed")
    cases.check()


def test_large_scores():
    cases = Cases()
    q, k, v = _qkv(cases, 1, 2, 17, 33, 16)
    big = cases.op("Mul", q, cases.const(np.float32(300)))
    cases.expect(cases.op("Attention", big, k, v), limit=1e-4)
    cases.check()


def _split_heads(cases: Cases, x: Symbol, heads: int) -> Symbol:
    return cases.op(
        "Transpose",
        cases.op("Reshape", x, cases.const(np.array([0, 0, heads, -1]))),
        perm=(0, 2, 1, 3),
    )


def _join_heads(cases: Cases, x: Symbol) -> Symbol:
    return cases.op(
        "Reshape", cases.op("Transpose", x, perm=(0, 2, 1, 3)), cases.const(np.array([0, 0, -1]))
    )


def _part(cases: Cases, x: Symbol, index: int) -> Symbol:
    bounds = (cases.const(np.array([value])) for value in (index, index + 1, 0))
    return cases.op("Squeeze", cases.op("Slice", x, *bounds), cases.const(np.array([0])))


def _repeat_heads(cases: Cases, x: Symbol, shape: tuple[int, ...]) -> Symbol:
    spread = cases.op(
        "Expand", cases.op("Unsqueeze", x, cases.const(np.array([2]))), cases.const(np.array(shape))
    )
    return cases.op(
        "Reshape", spread, cases.const(np.array([shape[0], shape[1] * shape[2], *shape[3:]]))
    )


def test_views_become_strides():
    cases = Cases()
    # Heads split off the last dimension, and joined again.
    parts = [_split_heads(cases, cases.normal(2, 11, 4 * 16), 4) for _ in range(3)]
    cases.expect(_join_heads(cases, cases.op("Attention", *parts)), "heads")
    # One product for queries, keys and values, cut into three.
    whole = cases.op("Split", cases.normal(1, 20, 3 * 2 * 16), n_outputs=3, axis=2, num_outputs=3)
    cases.expect(
        _join_heads(
            cases,
            cases.op("Attention", *(_split_heads(cases, whole[index], 2) for index in range(3))),
        ),
        "split",
    )
    five = cases.op(
        "Transpose",
        cases.op("Reshape", cases.normal(1, 20, 96), cases.const(np.array([0, 0, 3, 2, 16]))),
        perm=(2, 0, 3, 1, 4),
    )
    thirds = [_part(cases, five, index) for index in range(3)]
    cases.expect(_join_heads(cases, cases.op("Attention", *thirds)), "slices")
    # Keys and values repeated for the query heads that share them.
    q, k, v = cases.normal(2, 6, 9, 8), cases.normal(2, 2, 13, 8), cases.normal(2, 2, 13, 8)
    repeated = [_repeat_heads(cases, x, (2, 2, 3, 13, 8)) for x in (k, v)]
    cases.expect(cases.op("Attention", q, *repeated), "repeated")
    program = cases.check()
    assert len(program.steps) == 4


def test_keys_given_turned():
    cases = Cases()
    q, k, v = cases.normal(1, 2, 9, 24), cases.normal(1, 2, 24, 20), cases.normal(1, 2, 40, 20)
    turned = (cases.op("Transpose", x, perm=(0, 1, 3, 2)) for x in (k, v))
    cases.expect(cases.op("Transpose", cases.op("Attention", q, *turned), perm=(0, 1, 3, 2)))
    assert len(cases.check().steps) == 1
