"""State in the caller's memory, changed where it lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

import whence
from tests.frontends.tflite.making import Model
from tests.llm.test_caches import CALLS, NAMES, ROOM, SHAPES, STATE, called
from tests.llm.tiny_model import GROUPS, SIZE, tiny_model
from whence.errors import InputError

LENGTH = 2048


def scattered(mode: str = "linear") -> onnx.ModelProto:
    """ONNX's own cache: rows of keys from a place on, which each text has for itself."""
    return onnx.parser.parse_model(
        '<ir_version: 11, opset_import: ["" : 24]>\n'
        f"net (float[2,3,{LENGTH},4] past_k, float[2,3,n,4] new, int64[2] at)"
        f" => (float[2,3,{LENGTH},4] present_k, float[2,3,1,1] total)"
        " <int64[2] axes = {2, 3}>"
        f' {{ present_k = TensorScatter <axis: int = 2, mode: string = "{mode}"> (past_k, new, at)\n'
        " total = ReduceSum (present_k, axes) }"
    )


def rows(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((2, 3, count, 4)).astype(np.float32)


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_a_cache_of_2048_tokens_is_allocated_once_and_only_new_rows_are_written(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = np.full((2, 3, LENGTH, 4), 7, np.float32)
    address, wanted = cache.ctypes.data, cache.copy()
    compiled = whence.compile(scattered(mode), shapes={"new": (2, 3, 2, 4)})
    model = compiled.bind({"past_k": cache})
    assert [port.name for port in model.inputs] == ["new", "at"]
    (program,) = model.programs
    assert not [step.why_reference for step in program.steps if not step.symbol]
    assert [each.in_place for each in program.plan.variables] == [True]
    # The arena of a run has no room for a cache, and no state of its own is made.
    assert program.plan.arena_bytes < cache.nbytes
    monkeypatch.setattr("whence.runtime.state_memory.aligned_bytes", None)
    for step in range(4):
        at = np.array([2 * step, LENGTH - 2 - step], np.int64)
        new = rows(2, step)
        total = model(new, at)
        for text in range(2):
            wanted[text, :, at[text] : at[text] + 2] = new[text]
        np.testing.assert_array_equal(cache, wanted)
        np.testing.assert_allclose(total[..., 0, 0], wanted.sum((2, 3)), rtol=1e-4)
    assert cache.ctypes.data == address
    np.testing.assert_array_equal(model.state["past_k"], cache)


def test_places_around_the_end_and_outside() -> None:
    cache = np.zeros((2, 3, LENGTH, 4), np.float32)
    shapes = {"new": (2, 3, 2, 4)}
    model = whence.compile(scattered("circular"), shapes=shapes).bind({"past_k": cache})
    new = rows(2, 1)
    model(new, np.array([LENGTH - 1, 3], np.int64))
    np.testing.assert_array_equal(cache[0, :, [LENGTH - 1, 0]], new[0].swapaxes(0, 1))
    linear = whence.compile(scattered(), shapes=shapes).bind({"past_k": cache})
    with pytest.raises(whence.WhenceError, match="outside"):
        linear(new, np.array([LENGTH - 1, 3], np.int64))


def buffers() -> dict[str, np.ndarray]:
    return {name: np.zeros((1, GROUPS, ROOM, SIZE), np.float32) for name in STATE}


def test_a_language_model_with_caches_of_the_caller() -> None:
    proto = tiny_model(0)
    plain = whence.compile(proto, shapes=SHAPES, state=STATE)
    wanted = called(plain)
    # Compiled with state, and compiled without: names tell which output belongs to which input.
    for model in (plain, whence.compile(proto, shapes={"attention_mask": (1, ROOM)})):
        own, other = buffers(), buffers()
        bound, beside = model.bind(own), model.bind(other)
        for ours, theirs in zip(called(bound), wanted, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        assert not any(array.any() for array in other.values())
        called(beside)
        for name in STATE:
            np.testing.assert_array_equal(own[name], plain.state[name])
            np.testing.assert_array_equal(own[name], other[name])
        assert bound.programs[0] in beside.programs
        bound.reset()
        assert not any(array.any() for array in own.values())
    assert len(CALLS) > 1
    assert len(NAMES) == len(STATE)


class Tensor:
    """What another library has: memory that it hands out by DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def test_memory_of_another_library() -> None:
    arrays = buffers()
    caches = {name: Tensor(array) for name, array in arrays.items()}
    plain = whence.compile(tiny_model(0), shapes=SHAPES, state=STATE)
    wanted = called(plain)
    found = called(plain.bind(caches))
    np.testing.assert_array_equal(found[-1], wanted[-1])
    for name in STATE:
        np.testing.assert_array_equal(arrays[name], plain.state[name])


def counter() -> onnx.ModelProto:
    """Reads what it was after it has what it will be: the two cannot lie in one place."""
    return onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17]>\n'
        "net (float[4] past, float[4] x) => (float[4] present, float[4] y)"
        " { present = Add(past, x)\n s = ReduceMax(present)\n y = Sub(past, s) }"
    )


def test_what_cannot_be_written_in_place_is_copied_to_the_buffer() -> None:
    memory = np.zeros(4, np.float32)
    model = whence.compile(counter()).bind({"past": memory})
    one = np.ones(4, np.float32)
    for step in range(3):
        np.testing.assert_array_equal(model(one), step - (step + 1) * one)
        np.testing.assert_array_equal(memory, (step + 1) * one)


@pytest.mark.parametrize(
    ("memory", "outputs", "said"),
    [
        ({"past": [0.0] * 4}, None, "is list: an array of NumPy is wanted"),
        ({"past": np.zeros((4, 2), np.float32)[:, 0]}, None, "gaps between its rows"),
        ({"past": np.broadcast_to(np.float32(0), 4)}, None, "gaps|read-only"),
        ({"past": np.zeros(4)}, None, r"is float64\[4\], and the variable f32\[4\]"),
        ({"past": np.zeros(5, np.float32)}, None, "past"),
        ({"nothing": np.zeros(4, np.float32)}, None, "no input or variable 'nothing'"),
        ({"x": np.zeros(4, np.float32)}, None, "which output has the next value of input 'x'"),
        ({"x": np.zeros(4, np.float32)}, {"x": "z"}, "which output has the next value"),
        ({"x": np.zeros(4, np.float32)}, {"x": "y", "past": "y"}, "'past', which has no buffer"),
    ],
)
def test_buffers_that_do_not_fit(
    memory: dict[str, Any], outputs: dict[str, str] | None, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        whence.compile(counter()).bind(memory, outputs)


def test_two_variables_in_one_place_are_refused() -> None:
    own = buffers()
    first, second, *_ = own
    own[second] = own[first]
    with pytest.raises(InputError, match="share memory"):
        whence.compile(tiny_model(0), shapes=SHAPES, state=STATE).bind(own)


def test_a_slice_of_a_tflite_cache_is_updated_where_it_lies() -> None:
    made = Model()
    given = [made.input(shape) for shape in ((4, LENGTH, 8), (4, 1, 8))]
    given.append(made.input((3,), np.int32))
    made.output(made.op("DYNAMIC_UPDATE_SLICE", given, (4, LENGTH, 8)))
    memory = np.zeros((4, LENGTH, 8), np.float32)
    compiled = whence.compile(made.bytes())
    cache, after = compiled.inputs[0].name, compiled.graph.outputs[0].name
    model = compiled.bind({cache: memory}, {cache: after})
    (program,) = model.programs
    assert [each.in_place for each in program.plan.variables] == [True]
    assert not [step.why_reference for step in program.steps if not step.symbol]
    for step in (3, 700, LENGTH - 1):
        new = np.full((4, 1, 8), step, np.float32)
        model(new, np.array([0, step, 0], np.int32))
        assert (memory[:, step] == step).all()
    assert np.count_nonzero(memory) == 3 * 4 * 8


def test_multi_head_attention_with_the_length_of_its_past() -> None:
    room, heads, size = 64, 2, 4
    kinds = [
        ("query", 1, (1, 1, heads * size)),
        ("key", 1, (1, 1, heads * size)),
        ("value", 1, (1, 1, heads * size)),
        ("past_key", 1, (1, heads, room, size)),
        ("past_value", 1, (1, heads, room, size)),
        ("length", 6, (1,)),
    ]
    node = onnx.helper.make_node(
        "MultiHeadAttention",
        ["query", "key", "value", "", "", "", "past_key", "past_value", "length"],
        ["y", "present_key", "present_value"],
        num_heads=heads,
        domain="com.microsoft",
    )
    inputs = [onnx.helper.make_tensor_value_info(*kind) for kind in kinds]
    outputs = [
        onnx.helper.make_tensor_value_info("y", 1, (1, 1, heads * size)),
        *(
            onnx.helper.make_tensor_value_info(name, 1, (1, heads, room, size))
            for name in ("present_key", "present_value")
        ),
    ]
    proto = onnx.helper.make_model(
        onnx.helper.make_graph([node], "net", inputs, outputs),
        opset_imports=[
            onnx.helper.make_opsetid("", 17),
            onnx.helper.make_opsetid("com.microsoft", 1),
        ],
        ir_version=9,
    )
    caches = {
        name: np.zeros((1, heads, room, size), np.float32) for name in ("past_key", "past_value")
    }
    graph = whence.load(proto)
    model = whence.compile(proto).bind(caches)
    (program,) = model.programs
    assert [each.in_place for each in program.plan.variables] == [True, True]
    dice, past = np.random.default_rng(3), {name: each.copy() for name, each in caches.items()}
    for step in range(4):
        query, key, value = dice.standard_normal((3, 1, 1, heads * size)).astype(np.float32)
        given = {"query": query, "key": key, "value": value, "length": np.array([step], np.int32)}
        wanted, keys, values = graph.run({**given, **past})
        past = {"past_key": keys, "past_value": values}
        np.testing.assert_allclose(model(**given), wanted, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(caches["past_key"], keys)
        np.testing.assert_array_equal(caches["past_value"], values)


def test_onnx_attention_over_caches_that_are_written_where_they_lie() -> None:
    """As opset 24 does it: TensorScatter writes the new rows, nonpad_kv_seqlen says how many
    count.
    """
    proto = onnx.parser.parse_model(
        '<ir_version: 11, opset_import: ["" : 24]>\n'
        "net (float[1,4,1,8] q, float[1,2,256,8] past_k, float[1,2,256,8] past_v, float[1,2,1,8] k,"
        " float[1,2,1,8] v, int64[1] at, int64[1] count)"
        " => (float[1,4,1,8] y, float[1,2,256,8] present_k, float[1,2,256,8] present_v)"
        " { present_k = TensorScatter <axis: int = 2> (past_k, k, at)\n"
        " present_v = TensorScatter <axis: int = 2> (past_v, v, at)\n"
        " y = Attention (q, present_k, present_v, , , , count) }"
    )
    caches = {name: np.zeros((1, 2, 256, 8), np.float32) for name in ("past_k", "past_v")}
    past = {name: each.copy() for name, each in caches.items()}
    graph, model = whence.load(proto), whence.compile(proto).bind(caches)
    (program,) = model.programs
    assert [each.in_place for each in program.plan.variables] == [True, True]
    assert not [step.why_reference for step in program.steps if not step.symbol]
    dice = np.random.default_rng(0)
    for step in range(4):
        given = {
            name: dice.standard_normal((1, heads, 1, 8)).astype(np.float32)
            for name, heads in (("q", 4), ("k", 2), ("v", 2))
        }
        given |= {"at": np.array([step]), "count": np.array([step + 1])}
        wanted, keys, values = graph.run({**given, **past})
        past = {"past_k": keys, "past_v": values}
        np.testing.assert_allclose(model(**given), wanted, atol=1e-6)
        np.testing.assert_array_equal(caches["past_k"], keys)
