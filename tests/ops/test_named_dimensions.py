"""Sizes by the names of dimensions."""

from __future__ import annotations

import pytest

from whence.errors import InputError
from whence.ops.binding import Port
from whence.ops.named_dimensions import named_sizes, names_in, open_sizes, size_of, sized_inputs
from whence.types import Dim, DType, TensorType


def port(name: str, *dims: Dim) -> Port:
    return Port(name, TensorType(DType.F32, dims))


TOTAL = "past_sequence_length + sequence_length"
DECODER = [
    port("ids", "batch", "sequence_length"),
    port("mask", "batch", TOTAL),
    port("past", "batch", 2, "past_sequence_length", 4),
]


def test_a_size_stands_wherever_its_name_does() -> None:
    assert sized_inputs(DECODER, {"batch": 3}) == {
        "ids": (3, "sequence_length"),
        "mask": (3, TOTAL),
        "past": (3, 2, "past_sequence_length", 4),
    }


def test_an_expression_follows_from_the_names_in_it() -> None:
    found = sized_inputs(DECODER, {"sequence_length": 1, "past_sequence_length": 0})
    assert found["mask"] == ("batch", 1)
    assert found["past"] == ("batch", 2, 0, 4)
    assert names_in(TOTAL) == ["past_sequence_length", "sequence_length"]
    assert size_of("2 * (a - 1) // b", {"a": 9, "b": 3}) == 5
    for other in ("batch", "DynamicDimension.1", "1", "a ** b", "f(a)", "a / 0", "-", "a\x00"):
        assert size_of(other, {"a": 2, "b": 3}) is None, other
        assert not set(names_in(other)) - {"a"}, other


@pytest.mark.parametrize("terms", [1000, 2500, 100_000])
def test_a_sum_of_thousands_is_no_expression(terms: int) -> None:
    name = "+".join("a" * terms)
    assert size_of(name, {"a": 1}) is None
    assert names_in(name) == []


def test_a_size_without_a_name_is_called_by_its_place() -> None:
    ports = [port("x", None, "?", 3), port("scalar")]
    assert [place.name for place in open_sizes(ports)] == ["x_0", "x_1"]
    assert sized_inputs(ports, {"x_1": 5}) == {"x": (None, 5, 3)}


def test_shapes_are_given_besides_and_must_agree() -> None:
    assert sized_inputs(DECODER, {"batch": 3}, {"ids": (3, 7)})["ids"] == (3, 7)
    with pytest.raises(
        InputError,
        match=r"'batch' is given as 3, and input 'ids' with shape \[2, 7\], where it is 2",
    ):
        sized_inputs(DECODER, {"batch": 3}, {"ids": (2, 7)})


@pytest.mark.parametrize("size", [-1, True, 2.0, "4", None])
def test_a_size_is_a_whole_number(size: object) -> None:
    with pytest.raises(InputError, match="dimension 'batch' is given as"):
        sized_inputs(DECODER, {"batch": size})  # type: ignore[dict-item]


def test_a_name_that_the_model_does_not_have_is_an_error() -> None:
    with pytest.raises(InputError, match=r"no dimension 'batsh'; did you mean 'batch'\?"):
        sized_inputs(DECODER, {"batsh": 1})
    with pytest.raises(InputError, match="leaves no size open"):
        sized_inputs([port("x", 1, 2)], {"n": 1})


def test_the_sizes_of_a_call_by_name() -> None:
    declared: dict[str, tuple[Dim, ...]] = {"a": ("n", 3, None), "b": ("m", "n")}
    assert named_sizes(declared, {"a": (2, 3, 4), "b": (5, 6)}) == {"n": 2, "m": 5}
