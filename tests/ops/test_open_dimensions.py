"""Which sizes of the inputs stay open, and under which names."""

from __future__ import annotations

from whence.extent import is_symbolic
from whence.ops.binding import Port
from whence.ops.open_dimensions import open_dimensions
from whence.types import DType, TensorType


def port(name: str, *shape: int | str | None) -> Port:
    return Port(name, TensorType(DType.F32, shape))


def test_one_name_is_one_dimension() -> None:
    inputs = [port("a", "batch", "sequence", 8), port("b", "batch", 1)]
    dimensions, shapes = open_dimensions(inputs, {"a": (3, 5, 8), "b": (3, 1)})
    assert dimensions.sizes == {"batch": 3, "sequence": 5}
    assert shapes["a"][0] is not None
    assert str(shapes["a"]) == "(<batch>, <sequence>, 8)"
    assert str(shapes["b"]) == "(<batch>, 1)"
    assert not dimensions.guards


def test_sizes_of_0_and_1_stay_numbers() -> None:
    dimensions, shapes = open_dimensions([port("a", "n", "m")], {"a": (1, 0)})
    assert shapes == {"a": (1, 0)}
    assert not dimensions.sizes


def test_names_are_identifiers_and_labels_the_models_words() -> None:
    inputs = [port("x", "past sequence", "past.sequence", "2d", None)]
    dimensions, _ = open_dimensions(inputs, {"x": (4, 5, 6, 7)})
    assert dimensions.sizes == {"past_sequence": 4, "past_sequence_2": 5, "_2d": 6, "x_3": 7}
    assert list(dimensions.labels.values()) == ["past sequence", "past.sequence", "2d", "x_3"]


def test_one_name_with_two_sizes_is_two_dimensions() -> None:
    dimensions, shapes = open_dimensions([port("a", "n"), port("b", "n")], {"a": (3,), "b": (4,)})
    assert dimensions.sizes == {"n": 3, "n_2": 4}
    assert str(shapes["b"]) == "(<n_2>,)"


def test_a_shape_of_unknown_rank_is_open_throughout() -> None:
    inputs = [Port("a", TensorType(DType.F32)), port("b", "n")]
    dimensions, shapes = open_dimensions(inputs, {"a": (3, 4)})
    assert dimensions.sizes == {"a_0": 3, "a_1": 4}
    assert all(map(is_symbolic, shapes["a"]))
    assert "b" not in shapes
