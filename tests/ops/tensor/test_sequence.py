from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from whence.errors import ModelError
from whence.ops.definition import Call, TypeQuery
from whence.ops.registry import evaluate
from whence.ops.types.inference import infer
from whence.types import UNKNOWN, DType, OptionalType, SequenceType, TensorType

A, B, C = np.array([1.0]), np.array([2.0, 3.0]), np.array([4.0])


def run(op: str, *inputs: Any, **attrs: Any) -> Any:
    return evaluate(Call(op, attrs, inputs, 1))[0]


def at(position: int) -> np.ndarray:
    return np.array(position)


def test_making_and_reading() -> None:
    items = run("SequenceConstruct", A, B)
    assert [item.tolist() for item in items] == [[1], [2, 3]]
    assert run("SequenceLength", items).tolist() == 2
    assert run("SequenceAt", items, at(-1)) is items[1]
    assert run("SequenceEmpty", dtype=1) == []


def test_changes_leave_the_original_alone() -> None:
    items = [A, B]
    assert [item.tolist() for item in run("SequenceInsert", items, C)] == [[1], [2, 3], [4]]
    assert [item.tolist() for item in run("SequenceInsert", items, C, at(0))] == [[4], [1], [2, 3]]
    assert [item.tolist() for item in run("SequenceInsert", items, C, at(-1))] == [[1], [4], [2, 3]]
    assert [item.tolist() for item in run("SequenceErase", items)] == [[1]]
    assert [item.tolist() for item in run("SequenceErase", items, at(0))] == [[2, 3]]
    assert len(items) == 2


@pytest.mark.parametrize(
    ("op", "position"),
    [("SequenceAt", 2), ("SequenceAt", -3), ("SequenceErase", 2), ("SequenceInsert", 3)],
)
def test_positions_outside(op: str, position: int) -> None:
    inputs = ([A, B], C, at(position)) if op == "SequenceInsert" else ([A, B], at(position))
    with pytest.raises(ModelError, match=f"{op}: position {position} is outside a sequence of 2"):
        run(op, *inputs)


def test_a_tensor_is_not_a_sequence() -> None:
    with pytest.raises(ModelError, match="SequenceLength: input 0 must be a sequence"):
        run("SequenceLength", A)


def test_joining() -> None:
    assert run("ConcatFromSequence", [A, B], axis=0).tolist() == [1, 2, 3]
    assert run("ConcatFromSequence", [A, C], axis=-1, new_axis=1).tolist() == [[1, 4]]


def test_splitting() -> None:
    x = np.arange(10).reshape(2, 5)
    assert [part.shape for part in run("SplitToSequence", x, at(2), axis=1)] == [
        (2, 2),
        (2, 2),
        (2, 1),
    ]
    assert [part.shape for part in run("SplitToSequence", x, np.array([1, 4]), axis=-1)] == [
        (2, 1),
        (2, 4),
    ]
    assert [part.shape for part in run("SplitToSequence", x)] == [(1, 5), (1, 5)]
    assert [part.shape for part in run("SplitToSequence", x, keepdims=0)] == [(5,), (5,)]


def test_optionals() -> None:
    assert run("Optional", A) is A
    assert run("Optional") is None
    assert run("OptionalHasElement", A).tolist() is True
    assert run("OptionalHasElement", None).tolist() is False
    assert run("OptionalGetElement", A) is A
    with pytest.raises(ModelError, match="OptionalGetElement: the optional is empty"):
        run("OptionalGetElement", None)


def test_types() -> None:
    f32 = TensorType(DType.F32, ("n", 3))
    sequence = SequenceType(f32)
    assert infer(TypeQuery("SequenceConstruct", {}, (f32, f32), (None, None), 1)) == (sequence,)
    assert infer(TypeQuery("SequenceLength", {}, (sequence,), (None,), 1)) == (
        TensorType(DType.I64, ()),
    )
    assert infer(TypeQuery("Optional", {}, (f32,), (None,), 1)) == (OptionalType(f32),)
    assert infer(TypeQuery("Optional", {}, (), (), 1)) == (OptionalType(UNKNOWN),)
    assert infer(TypeQuery("OptionalGetElement", {}, (OptionalType(sequence),), (None,), 1)) == (
        sequence,
    )
    assert infer(TypeQuery("OptionalHasElement", {}, (None,), (None,), 1)) == (
        TensorType(DType.BOOL, ()),
    )
