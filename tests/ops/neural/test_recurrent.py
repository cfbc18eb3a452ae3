from __future__ import annotations

import random

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
from whence.ops.neural.recurrent import OPS

DEFINITIONS = {definition.name: definition for definition in OPS}
CASES = {"RNN": "rnn", "GRU": "gru", "LSTM": "lstm"}
# Gates, activations and states of each kind of layer.
KINDS = {"RNN": (1, 1, 1), "GRU": (3, 2, 1), "LSTM": (4, 3, 2)}
WITH_ALPHA = {"Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu"}
WITH_BETA = {"Affine", "ScaledTanh", "HardSigmoid"}
BOUNDED = [
    "Tanh",
    "Sigmoid",
    "Softsign",
    "HardSigmoid",
    "ScaledTanh",
    "Affine",
    "LeakyRelu",
    "ThresholdedRelu",
    "Elu",
    "Relu",
]


@pytest.mark.parametrize("case", parameters(CASES), ids=case_name)
def test_onnx_node_cases(case):
    check_node_case(DEFINITIONS[case.model.graph.node[0].op_type], case)


def random_layer(op, seed):
    """Attributes and inputs of a small random layer."""
    pick, rng = random.Random(seed), np.random.default_rng(seed)
    gates, n_activations, n_states = KINDS[op]
    direction = pick.choice(["forward", "reverse", "bidirectional"])
    ways = 2 if direction == "bidirectional" else 1
    time, batch, width, hidden = pick.randint(1, 5), pick.randint(1, 3), 3, 4

    def normal(*shape):
        return rng.standard_normal(shape, dtype=np.float32) * np.float32(0.5)

    inputs = [
        normal(time, batch, width),
        normal(ways, gates * hidden, width),
        normal(ways, gates * hidden, hidden),
    ]
    inputs.append(normal(ways, 2 * gates * hidden) if pick.random() < 0.7 else None)
    inputs.append(
        rng.integers(1, time + 1, batch).astype(np.int32) if pick.random() < 0.4 else None
    )
    inputs += [
        normal(ways, batch, hidden) if pick.random() < 0.5 else None for _ in range(n_states)
    ]
    attrs = {"direction": direction, "hidden_size": hidden}
    if op == "LSTM":
        inputs.append(normal(ways, 3 * hidden) if pick.random() < 0.4 else None)
        attrs["input_forget"] = int(pick.random() < 0.3)
    if op == "GRU":
        attrs["linear_before_reset"] = pick.randint(0, 1)
    if pick.random() < 0.3:
        attrs["clip"] = pick.choice([0.3, 1.0])
    if pick.random() < 0.5:
        names = tuple(pick.choice(BOUNDED) for _ in range(n_activations * ways))
        attrs["activations"] = names
        alphas = tuple(pick.choice([0.1, 0.3, 0.7]) for name in names if name in WITH_ALPHA)
        betas = tuple(pick.choice([0.2, 0.4]) for name in names if name in WITH_BETA)
        attrs |= {
            name: numbers
            for name, numbers in (("activation_alpha", alphas), ("activation_beta", betas))
            if numbers
        }
    return attrs, inputs


@pytest.mark.parametrize("op", KINDS)
@pytest.mark.parametrize("seed", range(40))
def test_layers_like_onnxruntime(op, seed):
    attrs, inputs = random_layer(op, seed)
    n_outputs = 1 + KINDS[op][2]
    actual = evaluate(DEFINITIONS[op], attrs, inputs, n_outputs)
    for ours, theirs in zip(
        actual, onnxruntime_outputs(op, attrs, inputs, n_outputs, opset=14), strict=True
    ):
        assert_close(ours, theirs, 1e-4, 1e-5)


@pytest.mark.parametrize("op", KINDS)
@pytest.mark.parametrize("seed", range(8))
def test_batch_first_is_the_same_layer_transposed(op, seed):
    attrs, inputs = random_layer(op, seed)
    n_states = KINDS[op][2]
    y, *states = evaluate(DEFINITIONS[op], attrs, inputs, 1 + n_states)
    turned = [
        value.swapaxes(0, 1) if value is not None and index in {0, 5, 6} else value
        for index, value in enumerate(inputs)
    ]
    if op == "LSTM":
        turned[7] = inputs[7]
    batch_y, *batch_states = evaluate(DEFINITIONS[op], {**attrs, "layout": 1}, turned, 1 + n_states)
    np.testing.assert_array_equal(batch_y, y.transpose(2, 0, 1, 3))
    for ours, theirs in zip(batch_states, states, strict=True):
        np.testing.assert_array_equal(ours, theirs.swapaxes(0, 1))


def test_a_short_sequence_ends_where_it_ends(rng):
    x, w, r = (
        rng.standard_normal(shape, dtype=np.float32) for shape in ((4, 2, 3), (1, 5, 3), (1, 5, 5))
    )
    lengths = np.array([4, 2], np.int32)
    y, last = evaluate(DEFINITIONS["RNN"], {}, [x, w, r, None, lengths], 2)
    assert not y[2:, 0, 1].any()
    np.testing.assert_array_equal(last[0, 1], y[1, 0, 1])
    np.testing.assert_array_equal(last[0, 0], y[3, 0, 0])


def test_faults_of_the_model_are_named(rng):
    x, w, r = (
        rng.standard_normal(shape, dtype=np.float32) for shape in ((4, 2, 3), (1, 5, 3), (1, 5, 5))
    )
    with pytest.raises(ModelError, match="unknown activation 'Wave'"):
        evaluate(DEFINITIONS["RNN"], {"activations": ("Wave",)}, [x, w, r])
    with pytest.raises(
        ModelError, match="direction 'bidirectional' does not fit weights for 1 directions"
    ):
        evaluate(DEFINITIONS["RNN"], {"direction": "bidirectional"}, [x, w, r])


def test_flops_count_both_matrices():
    x, w, r = np.ones((7, 2, 3)), np.ones((1, 20, 3)), np.ones((1, 20, 5))
    assert flops(DEFINITIONS["LSTM"], {}, [x, w, r], [np.ones((7, 1, 2, 5))]) == 2 * 14 * (
        20 * 3 + 20 * 5
    )
