"""Sizes that are taken where a model leaves them open and nobody says which."""

from __future__ import annotations

import numpy as np

from tests.attribution.test_sample_inputs import taking
from whence.api import compile_model
from whence.attribution.guess_sizes import guesses, likely_shapes
from whence.attribution.sample_inputs import sample_inputs, taken_sizes, working_inputs
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.types import Dim, DType


def test_a_cache_has_tokens_and_a_call_one() -> None:
    graph = taking(
        input_ids=(DType.I64, ["batch_size", "sequence_length"]),
        attention_mask=(DType.I64, ["batch_size", "past_sequence_length + sequence_length"]),
        past=(DType.F32, ["batch_size", 2, "past_sequence_length", 8]),
        total=(DType.I64, ["total_sequence_length"]),
        encoder=(DType.F32, ["batch_size", "encoder_sequence_length", 8]),
    )
    assert next(guesses(graph)) == {
        "input_ids": (1, 1),
        "attention_mask": (1, 33),
        "past": (1, 2, 32, 8),
        "total": (33,),
        "encoder": (1, 32, 8),
    }
    given = next(guesses(graph, {"past_sequence_length": 0, "sequence_length": 16}))
    assert given["attention_mask"] == (1, 16)
    assert given["past"] == (1, 2, 0, 8)
    assert taken_sizes(graph).options.startswith(
        "--dim batch_size=1 --dim sequence_length=1 --dim past_sequence_length=32"
    )


def test_an_image_has_the_size_that_the_file_states() -> None:
    graph = taking(images=(DType.F32, ["batch", 3, "height", "width"]))
    assert likely_shapes(graph)["images"] == (1, 3, 224, 224)
    graph.metadata["imgsz"] = "[640, 480]"
    assert likely_shapes(graph, batch=4)["images"] == (4, 3, 640, 480)
    for text in ("large", "[640, 'x']", "[-1, 0]", "__import__('os')"):
        graph.metadata["imgsz"] = text
        assert likely_shapes(graph)["images"] == (1, 3, 224, 224)
    other_way = taking(images=(DType.U8, ["n", "h", "w", 3]))
    assert likely_shapes(other_way)["images"] == (1, 224, 224, 3)
    beside = taking(images=(DType.F32, [1, 3, 192, None]))
    assert likely_shapes(beside)["images"] == (1, 3, 192, 192)


def test_lengths_follow_neighbours_and_names() -> None:
    graph = taking(
        ids=(DType.I64, ["n", "l"]), mask=(DType.I64, ["n", 128]), audio=(DType.F32, [1, "s"])
    )
    assert likely_shapes(graph) == {"ids": (1, 128), "mask": (1, 128), "audio": (1, 16_000)}


def product(dims: list[Dim], rows: int) -> Graph:
    build = GraphBuilder("product")
    x = build.op("Relu", build.input("x", DType.F32, dims))
    build.output("y", build.op("MatMul", x, build.const(np.ones((rows, 2), np.float32))))
    return build.finish()


def test_weights_say_how_many_features() -> None:
    build = GraphBuilder("direct")
    x = build.input("x", DType.F32, ["n", "features"])
    build.output("y", build.op("MatMul", x, build.const(np.ones((7, 2), np.float32))))
    z = build.input("z", DType.F32, ["n", "channels", 8, 8])
    build.output("c", build.op("Conv", z, build.const(np.ones((4, 5, 3, 3), np.float32))))
    assert next(guesses(build.finish())) == {"x": (1, 7), "z": (1, 5, 8, 8)}


def test_the_question_that_an_operator_failed_on_says_which_size_it_needs() -> None:
    graph = product(["n", "features"], 7)
    first, second = [shapes for _, shapes in zip(range(2), guesses(graph), strict=False)]
    assert (first["x"], second["x"]) == ((1, 32), (1, 7))
    sample = working_inputs(compile_model(graph, threads=1))
    assert sample.guessed == {"x": (1, 7)}
    assert sample.options == "--dim n=1 --dim features=7"


def test_a_size_that_is_reached_through_arithmetic_is_found() -> None:
    """Halved twice, the height has to be one."""
    build = GraphBuilder("rows")
    x = build.input("x", DType.F32, [1, 3, None, 64])
    pooled = x
    for _ in range(2):
        pooled = build.op("MaxPool", pooled, kernel_shape=(2, 2), strides=(2, 2))
    build.output("y", build.op("Squeeze", pooled, build.const(np.array([2], np.int64))))
    (height,) = {shapes[2] for shapes in likely_shapes(build.finish()).values()}
    assert height // 2 // 2 == 1


def test_a_size_that_is_given_is_never_changed() -> None:
    graph = product(["n", "features"], 7)
    assert all(shapes["x"][1] == 5 for shapes in guesses(graph, {"features": 5}))


def test_one_length_beside_numbers_of_samples_is_found() -> None:
    """As in recurrent models of speech, whose state has its samples second."""
    graph = taking(input=(DType.F32, [None, None]), state=(DType.F32, [2, None, 128]))
    assert {"input": (1, 512), "state": (2, 1, 128)} in list(guesses(graph))


def test_a_rate_of_samples_is_a_usual_one() -> None:
    graph = taking(sr=(DType.I64, []), sample_rate=(DType.I32, [1]), other=(DType.I64, []))
    values = sample_inputs(graph).values
    assert values["sr"] == 16_000
    assert np.asarray(values["sample_rate"]).tolist() == [16_000]
    assert values["other"] != 16_000
