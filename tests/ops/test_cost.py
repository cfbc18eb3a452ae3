from __future__ import annotations

import pytest

from whence.building.nominal_rates import SCALAR_CYCLES, VECTOR_CYCLES
from whence.errors import UnsupportedError
from whence.ops.cost import cost, measured_functions
from whence.ops.definition import Cost, TypeQuery
from whence.ops.registry import REGISTRY
from whence.types import Dim, DType, SequenceType, TensorType, ValueType


def f32(*shape: Dim) -> TensorType:
    return TensorType(DType.F32, shape)


def count(op: str, inputs: tuple[ValueType | None, ...], *outputs: ValueType) -> Cost | None:
    return cost(TypeQuery(op, {}, inputs, (None,) * len(inputs), len(outputs)), outputs)


def test_elementwise_counts_operations_per_element_and_every_byte() -> None:
    assert count("Add", (f32(8, 8), f32(8)), f32(8, 8)) == Cost(64, 4 * (64 + 8 + 64))
    assert count("Sum", (f32(8), f32(8), f32(8)), f32(8)) == Cost(16, 4 * 32)
    assert count("Clip", (f32(8), None, f32()), f32(8)) == Cost(16, 4 * 17)


def test_reductions_count_what_they_read() -> None:
    assert count("ReduceSum", (f32(8, 8),), f32(8, 1)) == Cost(64, 4 * 72)


def test_matrix_products_count_two_for_each_multiply_add() -> None:
    assert count("MatMul", (f32(2, 3), f32(3, 4)), f32(2, 4)) == Cost(48, 4 * (6 + 12 + 8))


def test_movement_is_free_of_arithmetic() -> None:
    assert count("Transpose", (f32(8, 4),), f32(4, 8)) == Cost(0, 256)


def test_a_lookup_does_not_read_its_whole_table() -> None:
    indices = TensorType(DType.I64, (3,))
    assert count("Gather", (f32(1_000_000, 64), indices), f32(3, 64)) == Cost(
        0, 2 * 4 * 3 * 64 + 24
    )
    assert count("Shape", (f32(1_000_000, 64),), TensorType(DType.I64, (2,))) == Cost(0, 16)


def test_small_types_are_counted_in_bits() -> None:
    assert count("Identity", (TensorType(DType.I4, (5,)),), TensorType(DType.I4, (5,))) == Cost(
        0, 6
    )


def test_unknown_dimensions_have_no_cost() -> None:
    assert count("Add", (f32("b"), f32(1)), f32("b")) is None
    assert count("Gather", (f32("n", 4), TensorType(DType.I64, (2,))), f32(2, 4)) == Cost(
        0, 2 * 32 + 16
    )
    assert count("SequenceLength", (SequenceType(f32(1)),), TensorType(DType.I64, ())) is None


def test_structure_costs_nothing() -> None:
    assert count("Output", (f32(2),)) == Cost(0, 8)


def test_costs_add_up() -> None:
    assert Cost(1, 2) + Cost(3, 4) == Cost(4, 6)


def test_unknown_operator() -> None:
    with pytest.raises(UnsupportedError):
        count("Nothing", (f32(1),), f32(1))


@pytest.mark.parametrize(
    ("op", "measured"),
    [
        ("Relu", ()),
        ("HardSwish", ()),
        ("Elu", ("Exp",)),
        ("Swish", ("Sigmoid",)),
        ("Softsign", ("Div",)),
        ("Celu", ("Exp", "Div")),
        ("Cos", ("Sin",)),
        ("Mish", ("Mish",)),
        ("LogSoftmax", ("Softmax",)),
        ("vendor::Unknown", ()),
    ],
)
def test_functions_in_a_formula_take_its_time(op: str, measured: tuple[str, ...]) -> None:
    assert measured_functions(op) == measured


def test_every_function_that_is_measured_for_another_has_a_rate() -> None:
    known = {*VECTOR_CYCLES, *SCALAR_CYCLES}
    assert {name for op in REGISTRY for name in measured_functions(op)} <= known
