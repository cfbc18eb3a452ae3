"""Sizes that are known only when a model is called."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whence.extent import (
    Dimensions,
    Relation,
    decide,
    estimate,
    evaluate,
    is_symbolic,
    larger,
    names,
    smaller,
    surely_divides,
    surely_equal,
)


@pytest.fixture
def dims() -> Dimensions:
    return Dimensions({"batch": 3, "sequence": 37, "past": 50})


def test_an_extent_is_used_as_an_int(dims: Dimensions) -> None:
    size = dims["sequence"]
    assert isinstance(size, int)
    assert is_symbolic(size)
    assert not is_symbolic(7)
    assert str(size * 768) == "768*sequence"
    assert str(size) == "sequence"
    assert str(math.prod((dims["batch"], size, 768))) == "768*batch*sequence"
    assert str(sum([size, dims["past"], -3])) == "past + sequence - 3"
    assert not dims.guards


def test_an_f_string_is_c(dims: Dimensions) -> None:
    """Where names of dimensions are those of no variable of a kernel."""
    batch, sequence = dims["batch"], dims["sequence"]
    assert f"{sequence}" == "dim_sequence"
    assert f"{sequence * 768 - batch}" == "(-dim_batch + 768*dim_sequence)"
    assert f"{-(-sequence // 8)}" == "((dim_sequence + 7) / 8)"
    assert f"{batch * (sequence // 8)}" == "((dim_sequence / 8)*dim_batch)"
    assert f"{larger(sequence, 64)}" == "(dim_sequence > 64 ? dim_sequence : 64)"
    assert not dims.guards


def test_division_by_several_terms_leaves_a_rest(dims: Dimensions) -> None:
    """The last of rows · columns pixels lies in the last row."""
    rows, columns = (dims["batch"] - 1) // 2 + 1, (dims["sequence"] - 1) // 2 + 1
    assert surely_equal((rows * columns - 1) // columns, rows - 1)
    assert surely_equal((rows * columns - 1) % columns, columns - 1)
    more = columns + 5
    assert surely_equal((rows * more + 3) // more, rows)
    assert surely_equal((rows * more + 3) % more, 3)
    # More than the divisor may be left: a division stays.
    assert not surely_equal((rows * more + 30) // more, rows)
    for sizes in ({"batch": 2, "sequence": 2, "past": 2}, {"batch": 9, "sequence": 40, "past": 3}):
        wanted = (evaluate(rows, sizes) * evaluate(more, sizes) + 30) // evaluate(more, sizes)
        assert evaluate((rows * more + 30) // more, sizes) == wanted
    assert not dims.guards


def test_what_divides_evenly_is_no_division(dims: Dimensions) -> None:
    batch, sequence = dims["batch"], dims["sequence"]
    assert str((batch * sequence * 768) // (sequence * 768)) == "batch"
    assert (sequence * 768) // sequence == 768
    assert (8 * sequence + 3) % 8 == 3
    assert str((8 * sequence + 3) // 8) == "sequence"
    assert surely_divides(8, 16 * sequence)
    assert not surely_divides(8, sequence)
    assert str(-(-sequence // 8)) == "((sequence + 7)/8)"
    assert not dims.guards


def test_what_the_bounds_decide_is_not_a_guard(dims: Dimensions) -> None:
    sequence = dims["sequence"]
    assert sequence != 1
    assert sequence > 0
    assert sequence >= 2
    assert sequence + 1 > sequence
    assert bool(sequence)
    assert sequence == dims["sequence"]
    assert sequence * 768 != 768
    assert sequence % 8 < 8
    assert not dims.guards


def test_a_question_is_answered_for_the_call_at_hand_and_recorded(dims: Dimensions) -> None:
    sequence = dims["sequence"]
    assert sequence > 10
    assert sequence != dims["past"]
    assert [str(guard) for guard in dims.guards] == ["10 < sequence", "sequence != past"]
    assert all("test_extent.py:" in guard.asked_by for guard in dims.guards)
    assert dims.hold({"batch": 2, "sequence": 11, "past": 9})
    assert not dims.hold({"batch": 2, "sequence": 10, "past": 9})
    assert not dims.hold({"batch": 2, "sequence": 11, "past": 11})
    assert not dims.hold({"batch": 1, "sequence": 11, "past": 9})


@pytest.mark.parametrize(
    "ask", [int, float, range, lambda n: np.zeros((n, 2)), lambda n: n.bit_length()]
)
def test_whoever_needs_the_number_gets_a_program_for_that_number(
    dims: Dimensions, ask: Callable[[int], object]
) -> None:
    ask(dims["sequence"])
    assert [str(guard) for guard in dims.guards] == ["sequence == 37"]
    assert not dims.hold({"batch": 3, "sequence": 38, "past": 50})


def test_costs_are_estimated_without_a_guard(dims: Dimensions) -> None:
    sequence = dims["sequence"]
    assert estimate(sequence * 2) == 74
    assert estimate(5) == 5
    assert decide(sequence, Relation.LT, 100) is None
    assert not surely_equal(sequence, 37)
    assert surely_equal(sequence + 1, 1 + sequence)
    assert str(larger(sequence, 64)) == "max(sequence, 64)"
    assert larger(sequence, 2) is sequence
    assert str(smaller(sequence, 64)) == "min(sequence, 64)"
    assert smaller(sequence, 1) == 1
    assert names(sequence * dims["past"] // 7) == {"sequence", "past"}
    assert not dims.guards


def test_what_was_asked_decides_later_questions(dims: Dimensions) -> None:
    sequence = dims["sequence"]
    assert sequence > 10
    assert decide(sequence - 9, Relation.LT, 1) is False
    assert decide(5 - sequence, Relation.LT, -4) is True
    assert sequence != 64
    assert decide(sequence + 1, Relation.EQ, 65) is False
    assert len(dims.guards) == 2


def test_a_size_that_a_guard_fixes_is_written_as_what_it_is(dims: Dimensions) -> None:
    """Feature maps of a pyramid: half of a half is a quarter, if that comes out even."""
    half = (dims["past"] - 1) // 2 + 1
    third = (dims["past"] - 1) // 6 + 1
    assert half != 3 * third
    assert (dims["past"] - 2) // 16 == 3
    assert str((dims["past"] - 2) // 16 + dims["batch"]) == "batch + 3"
    dims = Dimensions({"height": 64})
    sixteenth, thirtieth = ((dims["height"] - 1) // by + 1 for by in (16, 32))
    assert sixteenth == 2 * thirtieth
    assert str((dims["height"] - 1) // 16) == "2*((height - 1)/32) + 1"
    assert str((dims["height"] - 1) // 16 * dims["height"]).count("/") == 1
    assert len(dims.guards) == 1


def test_a_dimension_that_a_guard_fixes_is_a_number_from_then_on(dims: Dimensions) -> None:
    channels, sequence = dims["batch"], dims["sequence"]
    rows = channels * sequence * 64
    assert channels == 3
    assert str(rows // 192) == "sequence"
    assert surely_equal(channels * sequence, 3 * sequence)
    assert [str(guard) for guard in dims.guards] == ["batch == 3"]


def test_the_quotient_of_polynomials(dims: Dimensions) -> None:
    total = dims["past"] + dims["sequence"]
    assert str(dims["batch"] * total * 64 // (total * 64)) == "batch"
    assert (total * total - total) % total == 0
    assert str(dims["past"] // 3 // 5) == "(past/15)"
    assert not dims.guards


def test_the_largest_size_of_a_dimension_decides_too() -> None:
    dims = Dimensions({"past": 5}, {"past": 2048})
    assert dims["past"] < 2049
    assert not dims.guards
    assert not dims.hold({"past": 2049})


def test_extents_travel(dims: Dimensions) -> None:
    size = dims["sequence"] * 3 + dims["past"] // 4
    again = pickle.loads(pickle.dumps(size))
    assert str(again) == str(size)
    assert evaluate(again, {"batch": 3, "sequence": 10, "past": 21}) == 35
    assert str(dims.parse(str(size))) == str(size)


_OPERATIONS: list[Callable[[int, int], int]] = [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a // 7 if estimate(a) >= 0 and a >= 0 else a,
    lambda a, b: a % 6 if estimate(a) >= 0 and a >= 0 else a,
    lambda a, b: -(-a // 8) if estimate(a) >= 0 and a >= 0 else a,
    larger,
    smaller,
]


@given(st.data())
def test_arithmetic_is_that_of_the_numbers_it_stands_for(data: st.DataObject) -> None:
    size = st.integers(2, 99)
    dims = Dimensions({"a": data.draw(size), "b": data.draw(size)}, {"b": 100})
    called = {"a": data.draw(size), "b": data.draw(size)}
    symbolic = [dims["a"], dims["b"], 8, 3]
    numbers = [called["a"], called["b"], 8, 3]
    for _ in range(data.draw(st.integers(1, 6))):
        operation = data.draw(st.sampled_from(_OPERATIONS))
        one = data.draw(st.integers(0, len(symbolic) - 1))
        two = data.draw(st.integers(0, len(symbolic) - 1))
        symbolic.append(operation(symbolic[one], symbolic[two]))
        if not dims.hold(called):
            return  # another program's sizes
        numbers.append(operation(numbers[one], numbers[two]))
    for expected, found in zip(numbers, symbolic, strict=True):
        assert evaluate(found, called) == expected
        text = str(found).replace("/", "//")
        assert eval(text, {"max": max, "min": min}, dict(called)) == expected
        assert evaluate(dims.parse(str(found)), called) == expected


def test_a_quotient_whose_sign_is_open_serves_all_sizes_of_that_sign() -> None:
    dims = Dimensions({"rows": 9, "columns": 7})
    room = (dims["rows"] - 3) * (dims["columns"] - 3)
    parts = -(-room // 4)
    assert estimate(parts) == 6
    assert evaluate(parts, {"rows": 10, "columns": 5}) == 4
    assert not dims.pinned
    assert not dims.hold({"rows": 2, "columns": 5})


def test_a_remainder_that_is_one_number_pins_no_size() -> None:
    dims = Dimensions({"width": 10})
    assert int(dims["width"] % 2) == 0
    assert not dims.pinned
    assert dims.hold({"width": 12})
    assert not dims.hold({"width": 11})
    assert int(dims["width"] // 2) == 5
    assert dims.pinned == {"width"}


def test_multiples_of_a_quotient_lie_below_what_is_divided(dims: Dimensions) -> None:
    size = dims["sequence"] * dims["past"]
    blocks = size // 16
    assert decide(16 * blocks, Relation.LE, size) is True
    assert decide(15 + 16 * (blocks - 1), Relation.LT, size) is True
    assert decide(size - 16 * blocks, Relation.LT, 16) is True
    assert decide(size, Relation.LT, 16 * blocks + 15) is None
    assert decide(2 * size - 32 * blocks, Relation.LE, 30) is True
    assert not dims.guards
