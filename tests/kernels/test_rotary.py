"""Rotary position embeddings in every layout."""

from __future__ import annotations

import itertools

import numpy as np

from tests.kernels.harness import Cases


def test_layouts():
    cases = Cases()
    for interleaved, rotated, given in itertools.product((0, 1), (0, 8), (False, True)):
        half = (rotated or 16) // 2
        angles = cases.rng.uniform(0, 6, (20, half) if given else (2, 5, half))
        cosines, sines = (
            cases.feed(np.cos(angles).astype(np.float32)),
            cases.feed(np.sin(angles).astype(np.float32)),
        )
        positions = (
            [cases.feed(cases.rng.integers(0, 20, (2, 5)).astype(np.int64))] if given else []
        )
        attrs = {"interleaved": interleaved, "rotary_embedding_dim": rotated}
        name = f"{interleaved}_{rotated}_{given}"
        heads = {"num_heads": 3} if rotated else {}
        cases.expect(
            cases.op(
                "RotaryEmbedding",
                cases.normal(2, 3, 5, 16),
                cosines,
                sines,
                *positions,
                **attrs,
                **heads,
            ),
            f"apart_{name}",
        )
        cases.expect(
            cases.op(
                "RotaryEmbedding",
                cases.normal(2, 5, 3 * 16),
                cosines,
                sines,
                *positions,
                **attrs,
                num_heads=3,
            ),
            f"packed_{name}",
        )
    cases.check()
