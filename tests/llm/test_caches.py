"""Caches of keys and values that stay with the model, and are appended to where they lie."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import whence
from tests.llm.tiny_model import GROUPS, LAYERS, SIZE, VOCABULARY, tiny_model
from whence.ops.neural.grouped_attention import APPEND, GROUP_QUERY

ROOM = 24
NAMES = [f"{layer}.{kind}" for layer in range(LAYERS) for kind in ("key", "value")]
STATE = {f"past_key_values.{name}": f"present.{name}" for name in NAMES}
SHAPES: dict[str, tuple[int, ...]] = dict.fromkeys(STATE, (1, GROUPS, ROOM, SIZE))
SHAPES["attention_mask"] = (1, ROOM)
CALLS = [[3, 17, 40, 2, 9], [8], [61], [12, 5], [7]]


def expected(proto: onnx.ModelProto) -> list[np.ndarray]:
    """ONNX Runtime, with caches that grow."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    outputs = [each.name for each in session.get_outputs()]
    past = {name: np.zeros((1, GROUPS, 0, SIZE), np.float32) for name in STATE}
    found, count = [], 0
    for tokens in CALLS:
        count += len(tokens)
        feeds = {"input_ids": np.array([tokens]), "attention_mask": np.ones((1, count), np.int64)}
        made = dict(zip(outputs, session.run(None, {**feeds, **past}), strict=True))
        past = {name: made[output] for name, output in STATE.items()}
        found.append(made["logits"])
    return found


def called(model: whence.Executable) -> list[np.ndarray]:
    mask, found, count = np.zeros((1, ROOM), np.int64), [], 0
    for tokens in CALLS:
        count += len(tokens)
        mask[0, :count] = 1
        found.append(model(input_ids=np.array([tokens]), attention_mask=mask))
    return found


@pytest.mark.parametrize("level", [0, 4])
def test_calls_follow_each_other_as_in_onnx_runtime(level: int) -> None:
    proto = tiny_model(level)
    model = whence.compile(proto, shapes=SHAPES, state=STATE)
    wanted = expected(proto)
    for ours, theirs in zip(called(model), wanted, strict=True):
        # A number on the edge between two codes may fall to either side.
        limit = 3e-2 if level == 4 else 1e-4
        np.testing.assert_allclose(ours, theirs, atol=limit * np.abs(theirs).max())
    model.reset()
    for ours, theirs in zip(called(model), wanted, strict=True):
        np.testing.assert_array_equal(ours.argmax(-1), theirs.argmax(-1))


def test_no_step_runs_in_the_reference_and_caches_change_in_place() -> None:
    model = whence.compile(tiny_model(), shapes=SHAPES, state=STATE)
    called(model)
    assert [port.name for port in model.inputs] == ["input_ids", "attention_mask"]
    for program in model.programs:
        assert not [step.why_reference for step in program.steps if not step.symbol]
        assert [each.in_place for each in program.plan.variables] == [True] * len(STATE)
    state = model.state
    assert set(state) == set(STATE)
    assert all(value[:, :, :10].any() for value in state.values())
    assert not any(value[:, :, 10:].any() for value in state.values())


def test_an_appended_cache_is_written_elsewhere_if_the_old_one_is_read_later() -> None:
    """A model that also returns what the cache was keeps both."""
    proto = tiny_model()
    name = "past_key_values.0.key"
    proto.graph.node.append(onnx.helper.make_node("Neg", [name], ["before"], "/before"))
    kind = onnx.helper.make_tensor_value_info("before", 1, None)
    proto.graph.output.append(kind)
    model = whence.compile(proto, shapes=SHAPES, state=STATE)
    mask = np.zeros((1, ROOM), np.int64)
    mask[0, :2] = 1
    _, before = model(input_ids=np.array([[4, 5]]), attention_mask=mask)
    assert not before.any()
    after = model.state[name]
    mask[0, :3] = 1
    _, before = model(input_ids=np.array([[6]]), attention_mask=mask)
    np.testing.assert_array_equal(before, -after)


def test_without_state_the_caller_has_the_caches() -> None:
    proto = tiny_model(0)
    model = whence.compile(proto, shapes=SHAPES)
    mask = np.zeros((1, ROOM), np.int64)
    mask[0, :5] = 1
    past = {name: np.zeros((1, GROUPS, ROOM, SIZE), np.float32) for name in STATE}
    logits, *made = model(input_ids=np.array(CALLS[:1]), attention_mask=mask, **past)
    np.testing.assert_allclose(logits, expected(proto)[0], atol=1e-4)
    assert [each.shape for each in made] == [(1, GROUPS, ROOM, SIZE)] * len(STATE)
    assert not any(value.any() for value in past.values())


def test_a_compiled_file_starts_from_the_cache_with_its_state(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(tiny_model(), path)
    first = called(whence.compile(path, shapes=SHAPES, state=STATE))
    again = called(whence.compile(path, shapes=SHAPES, state=STATE))
    for ours, theirs in zip(first, again, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert first[0].shape == (1, 5, VOCABULARY)
    assert len(whence.compile(path, shapes=SHAPES).inputs) == 2 + len(STATE)


def test_a_place_behind_the_end_of_the_cache_ends_the_run() -> None:
    shapes = dict.fromkeys(STATE, (1, GROUPS, 4, SIZE)) | {"attention_mask": (1, 4)}
    model = whence.compile(tiny_model(), shapes=shapes, state=STATE)
    mask = np.full((1, 4), 2, np.int64)
    with pytest.raises(whence.WhenceError, match="outside"):
        model(input_ids=np.array([[1]]), attention_mask=mask)


@pytest.mark.parametrize(
    ("state", "shapes", "message"),
    [
        ({"nothing": "present.0.key"}, SHAPES, "no input 'nothing'"),
        ({"past_key_values.0.key": "nothing"}, SHAPES, "no output 'nothing'"),
        ({"past_key_values.0.key": "present.0.key"}, {}, "its size must be known"),
        ({"past_key_values.0.key": "logits"}, SHAPES, "'logits' is"),
        (dict.fromkeys(list(STATE)[:2], "present.0.key"), SHAPES, "named twice"),
    ],
)
def test_what_cannot_be_state_is_refused(
    state: dict[str, str], shapes: dict[str, tuple[int, ...]], message: str
) -> None:
    if message == "'logits' is":
        shapes = {**shapes, "input_ids": (1, 1)}
    with pytest.raises(whence.InputError, match=message):
        whence.load(tiny_model(), shapes=shapes, state=state)


def test_the_operator_is_one_in_the_file_and_several_when_compiled() -> None:
    graph = whence.load(tiny_model(), shapes={**SHAPES, "input_ids": (1, 1)}, state=STATE)
    assert graph.op_counts[GROUP_QUERY] == LAYERS
    whence.prepare(graph)
    assert GROUP_QUERY not in graph.op_counts
    assert (graph.op_counts[APPEND], graph.op_counts["Attention"]) == (2 * LAYERS, LAYERS)
    assert graph.ledger.lost() == []
