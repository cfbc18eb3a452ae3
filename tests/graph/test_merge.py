from __future__ import annotations

import pytest

from whence.graph.merge import (
    common,
    merge,
    substitute,
    with_declared_elements,
    without_dims,
)
from whence.types import UNKNOWN, DType, OptionalType, SequenceType, TensorType, ValueType


def f32(*shape: int | str | None) -> TensorType:
    return TensorType(DType.F32, shape)


ANY = TensorType(DType.F32)


@pytest.mark.parametrize(
    ("found", "declared", "expected"),
    [
        (f32(1, 2), None, f32(1, 2)),
        (UNKNOWN, f32(1), f32(1)),
        (UNKNOWN, SequenceType(ANY), SequenceType(ANY)),
        (ANY, f32("n", 2), f32("n", 2)),
        (f32(None, "a"), f32(3, 4), f32(3, 4)),
        (f32(3, "a"), f32(5, "b"), f32(3, "a")),
        (f32(3), f32(3, 4), f32(3)),
        (f32(3), TensorType(DType.I64, (3,)), f32(3)),
        (f32(3), SequenceType(ANY), f32(3)),
        (SequenceType(ANY), SequenceType(f32(2)), SequenceType(f32(2))),
        (OptionalType(UNKNOWN), OptionalType(ANY), OptionalType(ANY)),
    ],
)
def test_merge_fills_gaps_and_keeps_what_was_found(
    found: ValueType, declared: ValueType | None, expected: ValueType
) -> None:
    assert merge(found, declared) == expected


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (f32(1, 2), f32(1, 2), f32(1, 2)),
        (f32(1, 2), f32(1, 3), f32(1, None)),
        (f32(1), f32(1, 3), ANY),
        (f32(1), TensorType(DType.I64, (1,)), TensorType(DType.UNDEFINED, (1,))),
        (SequenceType(f32(1)), SequenceType(f32(2)), SequenceType(f32(None))),
        (f32(1), SequenceType(ANY), UNKNOWN),
    ],
)
def test_common_holds_for_both(first: ValueType, second: ValueType, expected: ValueType) -> None:
    assert common(first, second) == expected
    assert common(second, first) == expected


def test_named_dimensions_are_replaced() -> None:
    assert substitute(f32("n", "m", 3, None), {"n": 5}) == f32(5, "m", 3, None)
    assert substitute(SequenceType(f32("n")), {"n": 5}) == SequenceType(f32(5))
    assert without_dims(f32("n", 3)) == f32(None, None)


def test_a_declaration_says_what_elements_are_and_nothing_of_shapes() -> None:
    nothing, declared = TensorType(DType.UNDEFINED), f32(4, "n")
    assert with_declared_elements(nothing, declared) == TensorType(DType.F32)
    assert with_declared_elements(TensorType(DType.UNDEFINED, (2,)), declared) == f32(2)
    assert with_declared_elements(f32(None, 3), declared) == f32(None, 3)
    assert with_declared_elements(nothing, None) == nothing
    listed = SequenceType(declared)
    assert with_declared_elements(nothing, listed) == SequenceType(TensorType(DType.F32))
    assert with_declared_elements(SequenceType(nothing), listed) == SequenceType(
        TensorType(DType.F32)
    )
