from __future__ import annotations

import numpy as np

from whence.ops.definition import Attrs, Call
from whence.ops.registry import evaluate


def test_loss_is_evaluated_by_onnx(rng: np.random.Generator) -> None:
    scores, labels = rng.standard_normal((4, 3)).astype(np.float32), np.array([0, 2, 1, 1])
    (loss,) = evaluate(Call("SoftmaxCrossEntropyLoss", {"reduction": "mean"}, (scores, labels), 1))
    logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(loss, -logs[np.arange(4), labels].mean(), rtol=1e-5)
    assert loss.dtype == np.float32
    assert loss.shape == ()


def test_a_step_of_momentum() -> None:
    inputs = (
        np.array(0.1, np.float32),
        np.array(0),
        np.array([1.0], np.float32),
        np.array([2.0], np.float32),
        np.array([0.0], np.float32),
    )
    attrs: Attrs = {"alpha": 0.9, "beta": 1.0, "mode": "standard", "norm_coefficient": 0.0}
    updated, velocity = evaluate(Call("ai.onnx.preview.training::Momentum", attrs, inputs, 2))
    np.testing.assert_allclose(velocity, [2.0])
    np.testing.assert_allclose(updated, [0.8], rtol=1e-6)
