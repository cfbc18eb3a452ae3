"""Attention that reads where its past ends, against ONNX Runtime: outputs and caches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import whence
from tests.frontends.onnx.models import (
    MICROSOFT,
    assert_close,
    assert_like_ort,
    feeds_of,
    run_ort,
    single,
)
from whence.frontends.onnx.reader import read_onnx

RNG = np.random.default_rng(5)
Arrays = dict[str, np.ndarray]
ABSENT = np.zeros(0, np.float32)
HEADS, SIZE, GROUPS = 2, 8, 2


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def ints(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


def grouped(
    count: int, cache: int, last: np.ndarray, total: int, *, rotary: bool = False, **more: Any
) -> Arrays:
    """Inputs of a GroupQueryAttention of 4 heads in 2 groups, 16 wide."""
    batch = last.shape[0]
    arrays = {
        "q": real(batch, count, 64),
        "k": real(batch, count, 32),
        "v": real(batch, count, 32),
        "pk": real(batch, GROUPS, cache, 16),
        "pv": real(batch, GROUPS, cache, 16),
        "last": last,
        "total": ints(total),
    }
    if rotary:
        arrays |= {"cos": real(16, 8), "sin": real(16, 8)}
    elif more:
        arrays |= {"_cos": ABSENT, "_sin": ABSENT}
    return arrays | more


GROUPED: dict[str, tuple[Arrays, dict[str, Any]]] = {
    "texts of two lengths": (grouped(1, 6, ints(6, 3), 7), {}),
    "lengths as a column": (grouped(1, 6, ints([6], [3]), 7), {}),
    "a cache with room": (grouped(1, 10, ints(6, 3), 7), {}),
    "rotated by its own place": (grouped(1, 10, ints(6, 3), 7, rotary=True), {"do_rotary": 1}),
    "several queries after a past": (grouped(3, 9, ints(6), 7), {}),
    "a padded prompt": (grouped(4, 0, ints(3, 1), 4), {}),
    "a padded prompt with room": (grouped(4, 8, ints(3, 1), 4, rotary=True), {"do_rotary": 1}),
    "a window": (grouped(1, 8, ints(6, 4), 7), {"local_window_size": 3}),
    "a bias": (grouped(1, 8, ints(6, 3), 7, _p=ABSENT, bias=real(1, 4, 1, 7)), {}),
    "a smooth softmax": (grouped(1, 6, ints(6, 3), 7), {"smooth_softmax": 1}),
    "a sink for each head": (
        grouped(1, 6, ints(6, 3), 7, _p=ABSENT, _bias=ABSENT, sink=real(4)),
        {},
    ),
}


def grouped_model(name: str) -> Any:
    arrays, attrs = GROUPED[name]
    return single(
        "GroupQueryAttention",
        arrays,
        17,
        n_outputs=3,
        domain=MICROSOFT,
        num_heads=4,
        kv_num_heads=GROUPS,
        **attrs,
    )


@pytest.mark.parametrize("name", GROUPED)
def test_texts_of_a_group_query_attention_end_where_they_say(name: str) -> None:
    assert_like_ort(grouped_model(name), feeds_of(GROUPED[name][0]), 1e-5)


def with_buffer(batch: int, count: int, past: int, **more: np.ndarray) -> Arrays:
    """Inputs of a MultiHeadAttention whose past is a buffer of six places."""
    wide, buffer = (batch, count, HEADS * SIZE), (batch, HEADS, 6, SIZE)
    return {
        "q": real(*wide),
        "k": real(*wide),
        "v": real(*wide),
        "b": real(3 * HEADS * SIZE),
        "_mask": ABSENT,
        "_bias": ABSENT,
        "pk": real(*buffer),
        "pv": real(*buffer),
        "n": ints(past),
    } | more


def replaced(arrays: Arrays, old: str, new: str, value: np.ndarray) -> Arrays:
    return {
        new if key == old else key: value if key == old else each for key, each in arrays.items()
    }


BUFFERED: dict[str, tuple[Arrays, dict[str, Any]]] = {
    "one query": (with_buffer(1, 1, 2), {"unidirectional": 1}),
    "an empty past": (with_buffer(2, 2, 0), {"unidirectional": 1}),
    "several queries, causal": (with_buffer(1, 3, 2), {"unidirectional": 1}),
    "several queries": (with_buffer(2, 3, 2), {}),
    "a full buffer": (with_buffer(1, 1, 5), {}),
    "lengths as a mask": (replaced(with_buffer(2, 1, 2), "_mask", "m", ints(2, 3)), {}),
    "a mask": (replaced(with_buffer(2, 2, 2), "_mask", "m", ints([1, 0, 1, 1], [1, 1, 1, 0])), {}),
    "a bias": (replaced(with_buffer(2, 2, 2), "_bias", "e", real(1, HEADS, 2, 4)), {}),
    "beams": (with_buffer(4, 1, 3, c=RNG.integers(0, 2, (2, 2, 6)).astype(np.int32)), {}),
    "a prompt of beams": (
        with_buffer(4, 2, 3, c=RNG.integers(0, 2, (2, 2, 6)).astype(np.int32)),
        {},
    ),
}


def buffered_model(name: str) -> Any:
    arrays, attrs = BUFFERED[name]
    return single(
        "MultiHeadAttention",
        arrays,
        17,
        n_outputs=3,
        domain=MICROSOFT,
        num_heads=HEADS,
        **attrs,
    )


@pytest.mark.parametrize("name", BUFFERED)
def test_the_present_is_written_into_the_buffer_of_the_past(name: str) -> None:
    assert_like_ort(buffered_model(name), feeds_of(BUFFERED[name][0]), 1e-5)


def test_what_lies_behind_the_content_of_a_buffer_is_not_seen() -> None:
    arrays = with_buffer(1, 1, 2)
    for name in ("pk", "pv"):
        arrays[name][:, :, 4:] = np.nan
    model = single("MultiHeadAttention", arrays, 17, n_outputs=3, domain=MICROSOFT, num_heads=HEADS)
    assert_like_ort(model, feeds_of(arrays), 1e-5)


@pytest.mark.parametrize("present", [1, 3])
def test_keys_of_four_dimensions_have_their_bias_already(present: int) -> None:
    arrays = {
        "q": real(2, 3, HEADS * SIZE),
        "k": real(2, HEADS, 5, SIZE),
        "v": real(2, HEADS, 5, SIZE),
        "b": real(3 * HEADS * SIZE),
    }
    model = single(
        "MultiHeadAttention", arrays, 17, n_outputs=present, domain=MICROSOFT, num_heads=HEADS
    )
    assert_like_ort(model, feeds_of(arrays), 1e-5)


def test_compiled_caches() -> None:
    for model, arrays in (
        (grouped_model("texts of two lengths"), GROUPED["texts of two lengths"][0]),
        (grouped_model("several queries after a past"), GROUPED["several queries after a past"][0]),
        (buffered_model("several queries, causal"), BUFFERED["several queries, causal"][0]),
        (buffered_model("beams"), BUFFERED["beams"][0]),
    ):
        feeds = feeds_of(arrays)
        compiled = whence.compile(read_onnx(model))
        assert_close(list(compiled(**feeds)), run_ort(model, feeds), 1e-5)
