"""Attention of com.microsoft against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontends.onnx.contrib_data import (
    Arrays,
    X,
    real,
)
from tests.frontends.onnx.models import (
    MICROSOFT,
    assert_close,
    assert_like_ort,
    feeds_of,
    run_ort,
    run_whence,
    single,
)
from whence.errors import ModelError
from whence.frontends.onnx.reader import read_onnx

HIDDEN, HEADS, LENGTH = 8, 2, 3
PROJECTION = {"x": real(2, LENGTH, HIDDEN), "w": real(HIDDEN, 3 * HIDDEN), "b": real(3 * HIDDEN)}
ATTENTION: list[tuple[Arrays, dict[str, Any], int]] = [
    (PROJECTION, {}, 1),
    (PROJECTION, {"scale": 0.7}, 1),
    (PROJECTION, {"unidirectional": 1}, 1),
    ({**PROJECTION, "m": np.array([2, 3], np.int32)}, {}, 1),
    ({**PROJECTION, "m": np.array([[1, 1, 0], [1, 1, 1]], np.int32)}, {}, 1),
    ({**PROJECTION, "m": np.array([[[1, 0, 0], [1, 1, 0], [1, 1, 1]]] * 2, np.int32)}, {}, 1),
    (
        {
            **PROJECTION,
            "m": np.array([[1, 1, 0], [1, 1, 1]], np.int32),
            "_p": X,
            "e": real(2, HEADS, LENGTH, LENGTH),
        },
        {},
        1,
    ),
    ({**PROJECTION, "_m": X, "p": real(2, 2, HEADS, 5, HIDDEN // HEADS)}, {"unidirectional": 1}, 2),
    (
        {
            **PROJECTION,
            "m": np.array([[0, 1, 1, 1, 1, 1, 1, 1]] * 2, np.int32),
            "p": real(2, 2, HEADS, 5, HIDDEN // HEADS),
        },
        {},
        2,
    ),
]


@pytest.mark.parametrize(("arrays", "attrs", "n_outputs"), ATTENTION)
def test_attention(arrays: Arrays, attrs: dict[str, Any], n_outputs: int) -> None:
    assert_like_ort(
        single(
            "Attention", arrays, 17, n_outputs=n_outputs, domain=MICROSOFT, num_heads=HEADS, **attrs
        ),
        feeds_of(arrays),
        1e-4,
    )


QKV = {"q": real(2, LENGTH, HIDDEN), "k": real(2, 5, HIDDEN), "v": real(2, 5, HIDDEN)}
MULTI_HEAD: list[tuple[Arrays, dict[str, Any], int]] = [
    (QKV, {}, 1),
    ({**QKV, "b": real(3 * HIDDEN)}, {}, 1),
    ({**QKV, "_b": X, "m": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)}, {}, 1),
    ({**QKV, "_b": X, "_m": X, "e": real(1, HEADS, LENGTH, 5)}, {"scale": 0.3}, 1),
    (
        {**QKV, "_b": X, "_m": X, "_e": X, "pk": real(2, HEADS, 4, 4), "pv": real(2, HEADS, 4, 4)},
        {},
        3,
    ),
]


@pytest.mark.parametrize(("arrays", "attrs", "n_outputs"), MULTI_HEAD)
def test_multi_head_attention(arrays: Arrays, attrs: dict[str, Any], n_outputs: int) -> None:
    assert_like_ort(
        single(
            "MultiHeadAttention",
            arrays,
            17,
            n_outputs=n_outputs,
            domain=MICROSOFT,
            num_heads=HEADS,
            **attrs,
        ),
        feeds_of(arrays),
        1e-4,
    )


def grouped(
    length: int,
    past: int,
    *,
    packed: bool = False,
    rotary: bool = False,
    batch: int = 1,
    room: int = 0,
) -> Arrays:
    """Inputs of a GroupQueryAttention of 4 heads in 2 groups, 16 wide; the cache has room for more
    than it holds.
    """
    if packed:
        parts = {"q": real(batch, length, 128), "_k": X, "_v": X}
    else:
        parts = {
            "q": real(batch, length, 64),
            "k": real(batch, length, 32),
            "v": real(batch, length, 32),
        }
    total = length + past
    caches = {"pk": real(batch, 2, past + room, 16), "pv": real(batch, 2, past + room, 16)}
    lengths = {"sl": np.full((batch,), total - 1, np.int32), "tl": np.array(total, np.int32)}
    return {
        **parts,
        **caches,
        **lengths,
        **({"cos": real(16, 8), "sin": real(16, 8)} if rotary else {}),
    }


GROUPED: list[tuple[Arrays, dict[str, Any]]] = [
    (grouped(4, 0), {}),
    (grouped(1, 5), {}),
    (grouped(3, 5), {"scale": 0.2}),
    (grouped(1, 5, batch=2), {}),
    (grouped(1, 5, packed=True), {}),
    (grouped(4, 0, rotary=True), {"do_rotary": 1}),
    (grouped(1, 5, rotary=True), {"do_rotary": 1}),
    (grouped(3, 5, rotary=True, packed=True), {"do_rotary": 1, "rotary_interleaved": 1}),
    (grouped(5, 0), {"local_window_size": 2}),
    (grouped(4, 0), {"softcap": 2.0}),
    ({**grouped(3, 2), "_cos": X, "_sin": X, "_pos": X, "bias": real(1, 4, 3, 5)}, {}),
    ({**grouped(3, 2), "_cos": X, "_sin": X, "_pos": X, "bias": real(1, 1, 3, 5)}, {}),
]


@pytest.mark.parametrize(("arrays", "attrs"), GROUPED)
def test_group_query_attention(arrays: Arrays, attrs: dict[str, Any]) -> None:
    proto = single(
        "GroupQueryAttention",
        arrays,
        17,
        n_outputs=3,
        domain=MICROSOFT,
        num_heads=4,
        kv_num_heads=2,
        **attrs,
    )
    assert_like_ort(proto, feeds_of(arrays), 1e-4)


@pytest.mark.parametrize("heads", [0, -1, -(1 << 31)])
@pytest.mark.parametrize("op", ["Attention", "MultiHeadAttention", "GroupQueryAttention"])
def test_there_is_at_least_one_head(op: str, heads: int) -> None:
    arrays = {
        "Attention": PROJECTION,
        "MultiHeadAttention": QKV,
        # With a bias it is said in other operators.
        "GroupQueryAttention": GROUPED[-1][0],
    }[op]
    attrs = {"kv_num_heads": 2} if op == "GroupQueryAttention" else {}
    proto = single(op, arrays, 17, domain=MICROSOFT, num_heads=heads, **attrs)
    with pytest.raises(ModelError, match=f"{op}.*num_heads is {heads}, and should be at least 1"):
        read_onnx(proto)


def test_a_cache_longer_than_its_content_keeps_its_length() -> None:
    arrays = grouped(1, 3, room=4)
    proto = single(
        "GroupQueryAttention",
        arrays,
        17,
        n_outputs=3,
        domain=MICROSOFT,
        num_heads=4,
        kv_num_heads=2,
    )
    got, expected = run_whence(proto, feeds_of(arrays)), run_ort(proto, feeds_of(arrays))
    # What lies behind the content is whatever was there before.
    assert_close(
        [got[0], got[1][:, :, :4], got[2][:, :, :4]],
        [expected[0], expected[1][:, :, :4], expected[2][:, :, :4]],
        1e-4,
    )
    assert got[1].shape == expected[1].shape
