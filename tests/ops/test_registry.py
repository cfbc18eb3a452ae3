"""Every operator of the newest opset is known, and evaluates as ONNX's own tests say."""

from __future__ import annotations

import importlib.util
from typing import Any

import ml_dtypes
import numpy as np
import onnx.defs
import pytest

from tests.ops.onnx_cases import Case, cases
from tests.ops.oracle import onnxruntime_outputs
from whence.errors import ModelError, UnsupportedError
from whence.ops.definition import Call, OpClass, OpDef
from whence.ops.registry import REGISTRY, classes_of, collect, evaluate, lookup
from whence.ops.tensor.control import INTERPRETED
from whence.ops.types.onnx_node import schema_of

# Where ONNX Runtime disagrees with what ONNX's own tests expect, we agree with ONNX Runtime.
DISPUTED = {
    "maxunpool_export_with_output_shape",
    "resize_downsample_scales_linear_align_corners",
    "resize_downsample_scales_cubic_align_corners",
}
NEEDS_PILLOW = {name for name in cases() if name.startswith("image_decoder_")}
FAILING = {*DISPUTED, *(NEEDS_PILLOW if importlib.util.find_spec("PIL") is None else ())}
# Two draws differ, so only type and shape can be compared.
RANDOM = {"bernoulli", "bernoulli_double", "bernoulli_seed"}
# The expected numbers are written down with four digits.
ROUNDED = {
    "averagepool_2d_ceil_last_window_starts_on_pad",
    "gridsample_bicubic",
    "roialign_aligned_false",
    "roialign_aligned_true",
}
# Holds a graph of its own, or needs one: only an interpreter of gradients could evaluate it.
LEFT_OUT = {"ai.onnx.preview::FlexAttention", "ai.onnx.preview.training::Gradient"}


def assert_same(actual: Any, expected: Any, tolerance: float, *, values: bool = True) -> None:
    if isinstance(expected, list):
        assert isinstance(actual, list)
        assert len(actual) == len(expected)
        for left, right in zip(actual, expected, strict=True):
            assert_same(left, right, tolerance)
        return
    if expected is None:
        return
    assert isinstance(actual, np.ndarray)
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    if not values:
        return
    if actual.dtype == np.object_ or actual.dtype.kind in "iub":
        np.testing.assert_array_equal(actual, expected)
        return
    if actual.dtype.itemsize <= 2:
        tolerance = max(tolerance, 2 * _step(actual.dtype))
        actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


def _step(dtype: np.dtype[Any]) -> float:
    """The distance between neighbouring numbers at 1; whole numbers must be exact."""
    try:
        return float(ml_dtypes.finfo(dtype).eps)
    except ValueError:
        return 0.0


def check(case: Case) -> None:
    actual = evaluate(case.call)
    assert len(actual) == case.call.n_outputs
    for left, right in zip(actual, case.expected, strict=True):
        assert_same(
            left, right, 1e-3 if case.name in ROUNDED else 1e-5, values=case.name not in RANDOM
        )


@pytest.mark.parametrize("name", sorted(set(cases()) - FAILING))
def test_onnx_case(name: str) -> None:
    check(cases()[name])


@pytest.mark.parametrize("name", sorted(FAILING))
def test_onnx_case_that_fails_still_fails(name: str) -> None:
    with pytest.raises((AssertionError, UnsupportedError)):
        check(cases()[name])


@pytest.mark.parametrize("name", sorted(DISPUTED))
def test_disputed_case_is_as_onnxruntime_has_it(name: str) -> None:
    call = cases()[name].call
    (expected,) = onnxruntime_outputs(call.op, call.attrs, call.inputs)
    (actual,) = evaluate(call)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_there_are_cases_for_most_operators() -> None:
    assert len(cases()) > 1200
    assert len({case.call.op for case in cases().values()}) > 160


def test_every_operator_of_the_newest_opset_is_registered() -> None:
    names = {
        f"{schema.domain}::{schema.name}" if schema.domain else schema.name
        for schema in onnx.defs.get_all_schemas()
        if not schema.deprecated
    }
    assert names - set(REGISTRY) == LEFT_OUT


def test_operators_without_a_reference_are_left_to_the_interpreter_or_to_onnx() -> None:
    for definition in REGISTRY.values():
        if definition.reference is None and definition.name not in INTERPRETED:
            assert schema_of(definition.name) is not None, definition.name


def test_registry_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        REGISTRY["Mine"] = OpDef("Mine")  # type: ignore[index]


def test_two_definitions_of_one_name_are_an_error() -> None:
    with pytest.raises(ValueError, match="Twin is defined twice"):
        collect(((OpDef("Twin"),), (OpDef("Other"), OpDef("Twin"))))


def test_lookup_suggests_close_names() -> None:
    assert lookup("Conv").name == "Conv"
    with pytest.raises(UnsupportedError, match=r"'Cov' is not known; did you mean Conv\b"):
        lookup("Cov")
    with pytest.raises(UnsupportedError, match=r"'q' is not known$"):
        lookup("q")


def test_classes_of() -> None:
    assert OpClass.ACTIVATION in classes_of("Relu")
    assert OpClass.RANDOM in classes_of("RandomNormal")
    assert classes_of("Loop") is OpClass.CONTROL
    assert classes_of("nobody knows") is OpClass.NONE


def test_evaluate_makes_arrays_of_scalars() -> None:
    (result,) = evaluate(Call("Add", {}, (np.array(1.5, np.float32), np.array(2, np.float32)), 1))
    assert isinstance(result, np.ndarray)
    assert result.dtype == np.float32
    assert result.shape == ()
    assert result == 3.5


def test_evaluate_returns_as_many_outputs_as_asked() -> None:
    x = np.array([3.0, 1.0, 2.0], np.float32)
    assert len(evaluate(Call("TopK", {}, (x, np.array([2])), 1))) == 1
    assert len(evaluate(Call("TopK", {}, (x, np.array([2])), 2))) == 2
    with pytest.raises(ModelError, match="Relu: 2 outputs are asked for, it has 1"):
        evaluate(Call("Relu", {}, (x,), 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (Call("Add", {}, (np.ones(3), np.ones(4)), 1), "Add: operands could not be broadcast"),
        (Call("Gather", {}, (np.ones(3), np.array(9)), 1), "Gather: index 9 is out of bounds"),
        (Call("Relu", {}, (None,), 1), "Relu: input 0 is required but absent"),
        (Call("Cast", {"to": "x"}, (np.ones(3),), 1), "Cast: attribute to must be an integer"),
        (Call("Reshape", {}, (np.ones(3), np.array([2, -1])), 1), "Reshape: .* does not divide"),
        (Call("ConstantOfShape", {}, (np.array([2**40, 2**20]),), 1), "ConstantOfShape: "),
    ],
)
def test_values_that_do_not_fit_are_the_models_fault(call: Call, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        evaluate(call)
    assert "\n" not in str(caught.value)


def test_interpreted_operators_are_refused() -> None:
    for op in ("If", "Loop", "Scan", "SequenceMap", "Input", "Const", "Output"):
        with pytest.raises(UnsupportedError, match=f"{op} is evaluated by walking the graph"):
            evaluate(Call(op, {}, (), 1))
