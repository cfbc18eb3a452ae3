"""FlexAttention of ONNX's preview domain, against the `onnx` package's reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper
from onnx.reference import ReferenceEvaluator

import whence
from tests.frontends.onnx.models import assert_close, model, node, run_whence
from whence.errors import ModelError
from whence.frontends.onnx.flex_attention import PREVIEW
from whence.frontends.onnx.reader import read_onnx

RNG = np.random.default_rng(9)


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


QKV = {"q": real(2, 4, 3, 8), "k": real(2, 2, 5, 8), "v": real(2, 2, 5, 6)}


def change(name: str, op: str, by: str, constant: bool = False) -> Any:
    """A graph `name` that applies `op` to its input and the value `by`, its own or from outside."""
    value = [
        helper.make_tensor_value_info(each, TensorProto.FLOAT, [2, 4, 3, 5]) for each in ("a", "b")
    ]
    own = [helper.make_tensor(by, TensorProto.FLOAT, [1], [0.5])] if constant else []
    return helper.make_graph(
        [node(op, ["a", by], ["b"], name=name)], name, value[:1], value[1:], own
    )


def flex(**attrs: Any) -> ModelProto:
    return model(
        [
            node("Mul", ["bias", "bias"], ["square"]),
            node("FlexAttention", ["q", "k", "v"], ["y"], domain=PREVIEW, name="flex", **attrs),
        ],
        {**QKV, "bias": (TensorProto.FLOAT, [3, 5])},
        ["y"],
        opset=24,
        domains={PREVIEW: 1},
    )


@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"scale": 0.7},
        {"score_mod": change("s", "Add", "square")},
        {"prob_mod": change("p", "Mul", "half", constant=True)},
        {"score_mod": change("s", "Add", "square"), "prob_mod": change("p", "Mul", "bias")},
    ],
    ids=["plain", "scale", "scores", "probabilities", "both"],
)
def test_scores_and_probabilities_pass_through_graphs(attrs: dict[str, Any]) -> None:
    proto, feeds = flex(**attrs), {**QKV, "bias": real(3, 5)}
    # The reference does not hand outer values into these graphs: there they are inputs.
    expected = reference(attrs, feeds)
    assert_close(run_whence(proto, feeds), [expected])
    assert_close([whence.compile(read_onnx(proto))(**feeds)], [expected])


def reference(attrs: dict[str, Any], feeds: dict[str, np.ndarray]) -> np.ndarray:
    keys, values = (np.repeat(feeds[name], 2, axis=1) for name in ("k", "v"))
    if not any(name.endswith("_mod") for name in attrs):
        (found,) = ReferenceEvaluator(flex(**attrs)).run(None, feeds)
        return np.asarray(found)
    scores = feeds["q"] @ keys.swapaxes(-1, -2) / np.float32(np.sqrt(8))
    if "score_mod" in attrs:
        scores = scores + feeds["bias"] ** 2
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    if "prob_mod" in attrs:
        weights = weights * (0.5 if attrs["prob_mod"].initializer else feeds["bias"])
    return np.asarray(weights @ values, np.float32)


def test_operators_of_the_graphs_are_operators_of_the_file() -> None:
    graph = read_onnx(flex(score_mod=change("s", "Add", "square")))
    assert [source.name for source in graph.ledger.sources] == ["square", "flex", "s"]
    assert graph.ledger.lost() == []
    (added,) = (each for each in graph if each.op == "Add")
    assert added.origin == {3}


def test_heads_that_do_not_divide_are_refused() -> None:
    proto = flex()
    proto.graph.input[1].type.tensor_type.shape.dim[1].dim_value = 3
    with pytest.raises(ModelError, match=r"'flex' .*4 heads of queries"):
        read_onnx(proto)
