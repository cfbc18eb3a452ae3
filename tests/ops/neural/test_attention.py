from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tests.ops.oracle import (
    assert_close,
    case_name,
    check_node_case,
    evaluate,
    flops,
    onnxruntime_outputs,
    parameters,
)
from whence.errors import ModelError
from whence.ops.neural.attention import OPS

DEFINITIONS = {definition.name: definition for definition in OPS}
CASES = {"Attention": "attention", "RotaryEmbedding": "rotaryembedding"}


@pytest.mark.parametrize("case", parameters(CASES), ids=case_name)
def test_onnx_node_cases(case):
    check_node_case(DEFINITIONS[case.model.graph.node[0].op_type], case)


@pytest.mark.parametrize("seed", range(60))
def test_attention_like_onnxruntime(seed):
    pick, rng = random.Random(seed), np.random.default_rng(seed)
    batch, kv_heads, shared, queries = (
        2,
        pick.choice([1, 2]),
        pick.choice([1, 2, 3]),
        pick.randint(1, 5),
    )
    past, size, value_size = pick.choice([0, 0, 3]), 4, pick.choice([4, 6])
    keys = queries if past else pick.randint(1, 6)
    heads, total = kv_heads * shared, past + keys
    attrs: dict[str, Any] = {}
    if pick.random() < 0.4:
        attrs["is_causal"] = 1
    if pick.random() < 0.3:
        attrs["softcap"] = 2.0
    if pick.random() < 0.3:
        attrs["scale"] = 0.3

    def normal(*shape):
        return rng.standard_normal(shape, dtype=np.float32)

    if pick.random() < 0.5:
        inputs = [
            normal(batch, heads, queries, size),
            normal(batch, kv_heads, keys, size),
            normal(batch, kv_heads, keys, value_size),
        ]
    else:
        inputs = [
            normal(batch, queries, heads * size),
            normal(batch, keys, kv_heads * size),
            normal(batch, keys, kv_heads * value_size),
        ]
        attrs |= {"q_num_heads": heads, "kv_num_heads": kv_heads}
    shape = pick.choice(
        [
            (queries, total),
            (1, 1, queries, total),
            (batch, 1, queries, total),
            (batch, heads, queries, total),
        ]
    )
    mask = pick.choice([None, None, rng.random(shape) > 0.3, normal(*shape)])
    n_outputs = 1
    if past:
        inputs += [
            mask,
            normal(batch, kv_heads, past, size),
            normal(batch, kv_heads, past, value_size),
        ]
        n_outputs = pick.choice([3, 4])
    elif mask is not None:
        inputs.append(mask)
    if n_outputs == 4:
        attrs["qk_matmul_output_mode"] = pick.randint(0, 3)
    actual = evaluate(DEFINITIONS["Attention"], attrs, inputs, n_outputs)
    for ours, theirs in zip(
        actual, onnxruntime_outputs("Attention", attrs, inputs, n_outputs, opset=23), strict=True
    ):
        # Where a key is hidden ONNX Runtime shows the lowest float in place of minus infinity.
        assert_close(ours, np.where(theirs < -1e38, np.float32(-np.inf), theirs), 1e-4, 1e-5)


def test_a_query_that_sees_no_key_gets_zeros(rng):
    q, k, v = (rng.standard_normal((1, 1, 2, 4), dtype=np.float32) for _ in range(3))
    mask = np.array([[False, False], [True, False]])
    (y,) = evaluate(DEFINITIONS["Attention"], {}, [q, k, v, mask])
    np.testing.assert_array_equal(y[0, 0, 0], np.zeros(4))
    np.testing.assert_allclose(y[0, 0, 1], v[0, 0, 0], rtol=1e-6)


def test_packed_inputs_need_head_counts(rng):
    x = rng.standard_normal((1, 2, 8), dtype=np.float32)
    with pytest.raises(ModelError, match="Attention: three-dimensional inputs need q_num_heads"):
        evaluate(DEFINITIONS["Attention"], {}, [x, x, x])


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("rotated", [0, 4])
@pytest.mark.parametrize("positions", [False, True])
def test_rotary_embedding_like_onnxruntime(rng, interleaved, packed, rotated, positions):
    half = (rotated or 8) // 2
    x = rng.standard_normal((2, 5, 16) if packed else (2, 2, 5, 8), dtype=np.float32)
    attrs = {"interleaved": interleaved}
    if packed or rotated:
        attrs |= {"num_heads": 2, "rotary_embedding_dim": rotated}
    cosines, sines = rng.standard_normal(
        (2, 10, half) if positions else (2, 2, 5, half), dtype=np.float32
    )
    inputs = [x, cosines, sines, rng.integers(0, 10, (2, 5))] if positions else [x, cosines, sines]
    (actual,) = evaluate(DEFINITIONS["RotaryEmbedding"], attrs, inputs)
    assert_close(actual, onnxruntime_outputs("RotaryEmbedding", attrs, inputs, opset=23)[0])


def test_flops_count_both_products():
    q, k, v = np.ones((2, 4, 3, 8)), np.ones((2, 2, 5, 8)), np.ones((2, 2, 5, 6))
    assert flops(
        DEFINITIONS["Attention"], {}, [q, k, v], [np.ones((2, 4, 3, 6))]
    ) == 2 * 2 * 4 * 3 * 5 * (8 + 6)
    packed = [np.ones((2, 3, 32)), np.ones((2, 5, 16)), np.ones((2, 5, 12))]
    heads = {"q_num_heads": 4, "kv_num_heads": 2}
    assert flops(
        DEFINITIONS["Attention"], heads, packed, [np.ones((2, 3, 24))]
    ) == 2 * 2 * 4 * 3 * 5 * (8 + 6)
