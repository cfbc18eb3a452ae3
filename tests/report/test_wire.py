"""What is written is read back by an independent reader."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.report import wire_reader
from whence.report import wire


@given(st.integers(1, 2**29 - 1), st.integers(0, 2**64 - 1))
def test_numbers(field: int, value: int) -> None:
    assert wire_reader.fields(wire.number(field, value) + wire.fixed64(field, value)) == {
        field: [value, value]
    }


@given(st.text())
def test_text(value: str) -> None:
    assert wire_reader.text(wire_reader.fields(wire.text(5, value)), 5) == value


@given(st.lists(st.integers(0, 2**64 - 1)))
def test_packed(values: list[int]) -> None:
    assert wire_reader.unpacked(wire_reader.fields(wire.packed(2, values)), 2) == values


def test_a_negative_number_is_its_complement() -> None:
    assert wire_reader.fields(wire.number(1, -1)) == {1: [2**64 - 1]}


def test_text_that_is_none_is_still_readable() -> None:
    assert wire_reader.text(wire_reader.fields(wire.text(1, "a\udc80")), 1) == "a\\udc80"
