"""Formulas, and operators that are nothing but one."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

from whence.kernels.ir import Fn
from whence.kernels.rules.elementwise import RULES
from whence.ops.definition import Call, OpClass, Pattern, TypeQuery
from whence.ops.formula import (
    Function,
    X,
    Y,
    apply,
    evaluate,
    maximum,
    operand_count,
    operations,
    parameter,
    parameters,
    select,
)
from whence.ops.neural.activation import ACTIVATIONS, FORMULAS
from whence.ops.neural.nonlinear import activation
from whence.ops.operands.rules import RULES as OPERAND_RULES
from whence.ops.registry import REGISTRY
from whence.types import DType, TensorType

LEAKY = select(X < 0, X * parameter("alpha", 0.5), X)


def test_a_formula_is_evaluated_in_the_type_of_its_operands() -> None:
    x = np.array([-2, 0, 3], np.float32)
    assert evaluate(LEAKY, (x,), {}).tolist() == [-1, 0, 3]
    assert evaluate(LEAKY, (x,), {"alpha": 0.25}).tolist() == [-0.5, 0, 3]
    assert evaluate(LEAKY, (x,), {}).dtype == np.float32
    large = np.array([2**62 + 1, -5], np.int64)
    assert evaluate(maximum(X, 0), (large,), {}).tolist() == [2**62 + 1, 0]
    assert evaluate(2 - X / Y, (x, np.array(2, np.float32)), {}).tolist() == [3, 2, 0.5]


def test_an_evaluation_does_not_hold_its_operands() -> None:
    x = np.ones(3, np.float32)
    held = weakref.ref(x)
    evaluate(FORMULAS["HardSwish"], (x,), {})
    del x
    assert held() is None


def test_signs_and_magnitudes_are_written_as_in_python() -> None:
    x = np.array([-2, 0, 3], np.float32)
    for formula, expected in (
        (-X, [2, 0, -3]),
        (abs(X), [2, 0, 3]),
        (select(X <= 0, 1, 2), [1, 1, 2]),
        (select(X >= 0, 1, 2), [2, 1, 1]),
    ):
        assert evaluate(formula, (x,), {}).tolist() == expected


def test_nobody_decides_by_a_formula() -> None:
    """Python's `max(X, 0)` would quietly be one of the two."""
    for decide in (lambda: max(X, 0), lambda: min(0, X + 1), lambda: 1 if X > 0 else 2):
        with pytest.raises(TypeError, match="maximum, minimum and select instead of max, min"):
            decide()


def test_what_a_formula_says_about_itself() -> None:
    assert parameters(LEAKY) == {"alpha": 0.5}
    assert (operand_count(LEAKY), operand_count(X + Y)) == (1, 2)
    # A product and a choice; comparing is part of choosing.
    assert operations(LEAKY) == 2
    assert operations(1 / (1 + apply(Function.EXP, 0 - X))) == 7


def test_an_activation_is_one_definition() -> None:
    square = activation("SquaredRelu", maximum(X, 0) * maximum(X, 0))
    assert square.pattern is Pattern.ELEMWISE
    assert OpClass.ACTIVATION in square.classes
    assert square.flops == 3
    assert square.by_element
    assert square.operands.names == ("X",)
    assert square.infer is not None
    assert square.reference is not None
    x = np.array([[-1, 2, 3]], np.float32)
    kind = TensorType.of(x)
    assert square.infer(TypeQuery("SquaredRelu", {}, (kind,), (None,), 1)) == kind
    y = square.reference(Call("SquaredRelu", {}, (x,), 1))
    assert y.tolist() == [[0, 4, 9]]
    half = x.astype(DType.F16.numpy)
    assert square.reference(Call("SquaredRelu", {}, (half,), 1)).dtype == half.dtype


@pytest.mark.parametrize(
    "op", sorted(name for name, known in REGISTRY.items() if known.formula is not None)
)
def test_a_formula_brings_a_kernel_and_an_operand_rule(op: str) -> None:
    assert op in RULES
    assert op in OPERAND_RULES


def test_kernels_know_every_function() -> None:
    assert {function.name for function in Function} <= {fn.name for fn in Fn}


def test_functions_by_name_have_their_numbers() -> None:
    assert (ACTIVATIONS["HardSigmoid"].alpha, ACTIVATIONS["HardSigmoid"].beta) == (0.2, 0.5)
    assert (ACTIVATIONS["Relu"].alpha, ACTIVATIONS["Swish"].beta) == (None, None)
    assert set(FORMULAS) == set(ACTIVATIONS)
