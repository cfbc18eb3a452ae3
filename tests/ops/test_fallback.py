from __future__ import annotations

import numpy as np
import pytest

from tests.ops.onnx_cases import cases
from whence.errors import ModelError, UnsupportedError
from whence.ops.definition import Call
from whence.ops.fallback import first_line, onnx_reference, type_of
from whence.ops.registry import evaluate
from whence.types import UNKNOWN, DType, MapType, SequenceType, TensorType


def test_a_primitive_operator() -> None:
    (result,) = onnx_reference(
        Call("Add", {}, (np.array([1.0, 2.0], np.float32), np.array(3, np.float32)), 1)
    )
    assert result.tolist() == [4, 5]
    assert result.dtype == np.float32


def test_an_operator_defined_by_a_function() -> None:
    x = np.linspace(-3, 3, 7, dtype=np.float32)
    (result,) = onnx_reference(Call("HardSwish", {}, (x,), 1))
    np.testing.assert_allclose(result, evaluate(Call("HardSwish", {}, (x,), 1))[0], rtol=1e-6)


def test_another_domain() -> None:
    x = np.array([[1.0, 2.0]], np.float32)
    (result,) = onnx_reference(
        Call("ai.onnx.ml::Scaler", {"offset": (1.0,), "scale": (2.0,)}, (x,), 1)
    )
    assert result.tolist() == [[0, 2]]


def test_absent_inputs_in_the_middle() -> None:
    x = np.array([-1.0, 0.5, 9.0], np.float32)
    (result,) = onnx_reference(Call("Clip", {}, (x, None, np.array(2, np.float32)), 1))
    assert result.tolist() == [-1, 0.5, 2]


def test_exactly_as_many_outputs_as_asked() -> None:
    x = np.array([3.0, 1.0, 2.0], np.float32)
    values, indices = onnx_reference(Call("TopK", {}, (x, np.array([2])), 2))
    assert (values.tolist(), indices.tolist()) == ([3, 2], [0, 2])


def test_sequences() -> None:
    (result,) = onnx_reference(
        Call("ConcatFromSequence", {"axis": 0}, ([np.ones(1), np.zeros(2)],), 1)
    )
    assert result.tolist() == [1, 0, 0]


def test_failures_name_the_operator_in_one_line() -> None:
    with pytest.raises(
        ModelError, match=r"^MatMul: the onnx reference implementation failed: "
    ) as caught:
        onnx_reference(Call("MatMul", {}, (np.ones((2, 3)), np.ones((2, 3))), 1))
    assert "\n" not in str(caught.value)
    with pytest.raises(UnsupportedError, match=r"^FusedConv: there is no reference implementation"):
        onnx_reference(Call("FusedConv", {}, (np.ones(1),), 1))


def test_types_of_values() -> None:
    assert type_of(np.ones((2, 1), np.int8)) == TensorType(DType.I8, (2, 1))
    assert type_of([np.ones(2)]) == SequenceType(TensorType(DType.F64, (2,)))
    assert type_of([]) == SequenceType(UNKNOWN)
    assert type_of({"a": 1.0}) == MapType(DType.STRING, TensorType(DType.F32, ()))
    assert type_of(None) == UNKNOWN


def test_first_line() -> None:
    assert first_line(ValueError("two\n  lines")) == "two lines"
    assert first_line(ValueError()) == "ValueError"
    assert len(first_line(ValueError("x" * 5000))) == 300


@pytest.mark.parametrize(
    "name", ["gelu_tanh_1", "reduce_l2_keep_dims_random", "gathernd_example_int32_batch_dim1"]
)
def test_fallback_and_own_references_agree(name: str) -> None:
    call = cases()[name].call
    for own, theirs in zip(evaluate(call), onnx_reference(call), strict=True):
        np.testing.assert_allclose(own, theirs, rtol=1e-5, atol=1e-6)
