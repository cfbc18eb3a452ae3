"""Text generated with a decoder that the operator holds, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper

import whence
from tests.frontends.onnx.models import MICROSOFT, model, node, run_ort, run_whence
from whence.errors import UnsupportedError
from whence.frontends.onnx.reader import read_onnx
from whence.frontends.onnx.writer import write_onnx

VOCABULARY, SIZE = 11, 8
PAD = 0
_ENDS = ("repetition_penalty", "vocab_mask", "prefix_vocab_mask", "attention_mask")
INPUTS = {
    "GreedySearch": ["input_ids", "max_length", "min_length", *_ENDS],
    "BeamSearch": [
        "input_ids",
        "max_length",
        "min_length",
        "num_beams",
        "num_return_sequences",
        "length_penalty",
        *_ENDS,
    ],
}
INPUTS["Sampling"] = [*INPUTS["GreedySearch"], "presence_mask", "seed"]


def i32(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def decoder() -> GraphProto:
    """One layer of attention over what was said, with its cache."""
    rng = np.random.default_rng(4)
    constants = {
        "words": rng.standard_normal((VOCABULARY, SIZE)).astype(np.float32),
        "places": rng.standard_normal((32, SIZE)).astype(np.float32),
        "out": (rng.standard_normal((SIZE, VOCABULARY)) * 1.5).astype(np.float32),
        "one": np.float32(1),
        "low": np.float32(-1e4),
        "axis_0": np.array([0]),
        "axis_1": np.array([1]),
        "axes_12": np.array([1, 2]),
        "key": np.array(0),
        "value": np.array(1),
    }
    nodes = [
        node("Gather", ["words", "input_ids"], ["word"]),
        node("Gather", ["places", "position_ids"], ["place"]),
        node("Add", ["word", "place"], ["x"]),
        node("Unsqueeze", ["x", "axis_1"], ["query"]),
        node("Unsqueeze", ["query", "axis_0"], ["single"]),
        node("Concat", ["single", "single"], ["pair"], axis=0),
        node("Concat", ["past_0", "pair"], ["present_0"], axis=3),
        node("Gather", ["present_0", "key"], ["keys"], axis=0),
        node("Gather", ["present_0", "value"], ["values"], axis=0),
        node("Transpose", ["keys"], ["turned"], perm=[0, 1, 3, 2]),
        node("MatMul", ["query", "turned"], ["scores"]),
        node("Cast", ["attention_mask"], ["seen"], to=TensorProto.FLOAT),
        node("Sub", ["one", "seen"], ["unseen"]),
        node("Mul", ["unseen", "low"], ["mask"]),
        node("Unsqueeze", ["mask", "axes_12"], ["wide"]),
        node("Add", ["scores", "wide"], ["masked"]),
        node("Softmax", ["masked"], ["weights"], axis=-1),
        node("MatMul", ["weights", "values"], ["context"]),
        node("Squeeze", ["context", "axis_1"], ["joined"]),
        node("Add", ["joined", "x"], ["hidden"]),
        node("MatMul", ["hidden", "out"], ["logits"]),
    ]
    info = helper.make_tensor_value_info
    return helper.make_graph(
        nodes,
        "decoder",
        [
            info("input_ids", TensorProto.INT32, ["b", "s"]),
            info("position_ids", TensorProto.INT32, ["b", "s"]),
            info("attention_mask", TensorProto.INT32, ["b", "t"]),
            info("past_0", TensorProto.FLOAT, [2, "b", 1, "p", SIZE]),
        ],
        [
            info("logits", TensorProto.FLOAT, ["b", "s", VOCABULARY]),
            info("present_0", TensorProto.FLOAT, [2, "b", 1, "t", SIZE]),
        ],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )


def search(op: str, feeds: dict[str, np.ndarray], outputs: int = 1, **attrs: Any) -> ModelProto:
    names = [name if name in feeds else "" for name in INPUTS[op]]
    while not names[-1]:
        names.pop()
    made = ["sequences", "sequences_scores", "scores"][:outputs]
    attrs = {"model_type": 0, "pad_token_id": PAD, **attrs}
    it = node(op, names, made, domain=MICROSOFT, name="it", decoder=decoder(), **attrs)
    return model([it], feeds, made, opset=17, ir_version=9)


GREEDY = {
    "input_ids": i32([3, 5, 2], [0, 0, 7]),
    "max_length": i32(10),
    "min_length": i32(1),
    "repetition_penalty": f32(1),
}
BEAMS = {
    **GREEDY,
    "max_length": i32(8),
    "num_beams": i32(3),
    "num_return_sequences": i32(2),
    "length_penalty": f32(1),
}


def same_texts(got: np.ndarray, expected: np.ndarray) -> None:
    """Up to where all texts have ended, behind which ONNX Runtime leaves what was in memory."""
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype
    said = np.flatnonzero((got != PAD).any(axis=0))
    end = said[-1] + 2 if said.size else 1
    np.testing.assert_array_equal(got[:, :end], expected[:, :end])


@pytest.mark.parametrize("eos", [1, 6, 9])
@pytest.mark.parametrize(
    ("more", "attrs"),
    [
        ({}, {}),
        ({"repetition_penalty": f32(1.7)}, {}),
        ({"min_length": i32(8)}, {}),
        ({"vocab_mask": i32(1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0)}, {}),
        ({"prefix_vocab_mask": i32([0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0], [1] * 11)}, {}),
        ({"attention_mask": i32([1, 1, 1], [1, 1, 1])}, {}),
        ({}, {"no_repeat_ngram_size": 2}),
    ],
    ids=["plain", "repetition", "length", "vocabulary", "prefix", "mask", "n-grams"],
)
def test_greedy_search(eos: int, more: dict[str, np.ndarray], attrs: dict[str, Any]) -> None:
    feeds = GREEDY | more
    proto = search("GreedySearch", feeds, eos_token_id=eos, **attrs)
    same_texts(run_whence(proto, feeds)[0], run_ort(proto, feeds)[0])


@pytest.mark.parametrize("early", [0, 1])
@pytest.mark.parametrize("penalty", [0.5, 2.0])
@pytest.mark.parametrize(
    "more", [{}, {"repetition_penalty": f32(1.5)}, {"min_length": i32(6)}], ids=str
)
def test_beam_search(early: int, penalty: float, more: dict[str, np.ndarray]) -> None:
    feeds = BEAMS | {"length_penalty": f32(penalty)} | more
    for eos in (1, 6, 10):
        proto = search("BeamSearch", feeds, 2, eos_token_id=eos, early_stopping=early)
        got, expected = run_whence(proto, feeds), run_ort(proto, feeds)
        np.testing.assert_array_equal(got[0], expected[0])
        np.testing.assert_allclose(got[1], expected[1], rtol=1e-5, atol=1e-6)


def test_sampling_of_the_likeliest_is_greedy() -> None:
    feeds = GREEDY | {"seed": i32(3)}
    proto = search("Sampling", feeds, eos_token_id=6, top_p=0.01, temperature=1.0)
    same_texts(run_whence(proto, feeds)[0], run_ort(proto, feeds)[0])


def test_sampling_follows_the_probabilities() -> None:
    """With one step from many equal texts, tokens come up as often as they should."""
    ids = np.repeat(i32([3, 5, 2]), 4000, axis=0)
    feeds = GREEDY | {"input_ids": ids, "max_length": i32(4), "min_length": i32(0)}
    proto = search("Sampling", feeds, eos_token_id=-1, top_p=1.0, temperature=6.0)
    drawn = np.bincount(run_whence(proto, feeds)[0][:, 3], minlength=VOCABULARY) / len(ids)
    theirs = np.bincount(run_ort(proto, feeds)[0][:, 3], minlength=VOCABULARY) / len(ids)
    # Four standard deviations of the difference of two such shares.
    assert np.abs(drawn - theirs).max() < 4 * np.sqrt(2 * 0.25 / len(ids))


def test_compiled() -> None:
    feeds = BEAMS | {"max_length": i32(6)}
    proto = search("BeamSearch", feeds, 2, eos_token_id=6)
    texts, scores = whence.compile(read_onnx(proto))(**feeds)
    expected = run_ort(proto, feeds)
    np.testing.assert_array_equal(texts, expected[0])
    np.testing.assert_allclose(scores, expected[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", ["GreedySearch", "BeamSearch"])
def test_a_decoder_may_read_values_from_outside(op: str) -> None:
    """They come behind the operands, however many of those are given."""
    feeds = BEAMS if op == "BeamSearch" else GREEDY
    proto = search(op, feeds, eos_token_id=6)
    (inside,) = (each.g for each in proto.graph.node[0].attribute if each.name == "decoder")
    (low,) = (each for each in inside.initializer if each.name == "low")
    inside.initializer.remove(low)
    proto.graph.initializer.append(numpy_helper.from_array(np.array(1e4, np.float32), "high"))
    proto.graph.node.insert(0, node("Neg", ["high"], ["low"]))
    same_texts(run_whence(proto, feeds)[0], run_ort(proto, feeds)[0])


def test_operators_of_the_decoder_are_operators_of_the_file() -> None:
    graph = read_onnx(search("GreedySearch", GREEDY, eos_token_id=6))
    assert len(graph.ledger.sources) == 22
    assert graph.ledger.lost() == []


@pytest.mark.parametrize(
    ("op", "outputs", "attrs", "message"),
    [
        ("BeamSearch", 1, {"model_type": 1}, "a model with an encoder"),
        ("BeamSearch", 3, {}, "scores of all tokens"),
        ("Sampling", 1, {"custom": 1}, "custom"),
        ("Sampling", 1, {"presence_penalty": 0.5}, "penalty"),
    ],
)
def test_what_is_not_known_is_named(
    op: str, outputs: int, attrs: dict[str, Any], message: str
) -> None:
    feeds = BEAMS if op == "BeamSearch" else GREEDY
    with pytest.raises(UnsupportedError, match=f"operator 'it' .*{message}"):
        read_onnx(search(op, feeds, outputs, eos_token_id=6, **attrs))


def test_a_search_is_written_as_it_was_read(tmp_path: Path) -> None:
    proto = search("GreedySearch", GREEDY, eos_token_id=6)
    write_onnx(read_onnx(proto), tmp_path / "again.onnx")
    again = (tmp_path / "again.onnx").read_bytes()
    same_texts(run_whence(again, GREEDY)[0], run_ort(again, GREEDY)[0])
