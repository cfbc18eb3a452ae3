"""Other people's answers: ONNX's own node test cases, and ONNX Runtime on a model of one node."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from whence.ops.definition import Attr, Call, OpDef, TypeQuery, Value
from whence.types import TensorType

CASES = "onnx.backend.test.case.node"


@cache
def node_cases(module: str, op: str) -> tuple[Any, ...]:
    """ONNX's test cases for one operator, as made by `onnx.backend.test.case.node.<module>`,
    single-node models only.
    """
    importlib.import_module(f"{CASES}.{module}")
    registry = importlib.import_module(CASES)
    found = [
        case
        for case in registry._NodeTestCases
        if len(case.model.graph.node) == 1 and case.model.graph.node[0].op_type == op
    ]

    return tuple(found)


def parameters(ops: Mapping[str, str]) -> list[Any]:
    """The cases of several operators, given as operator → module, ready for
    `pytest.mark.parametrize`.
    """
    return [case for op, module in ops.items() for case in node_cases(module, op)]


def case_name(case: Any) -> str:
    return str(case.name).removeprefix("test_")


def attributes(node: onnx.NodeProto) -> dict[str, Attr]:
    """A node's attributes in the form that operators take them."""
    return {attr.name: _plain(helper.get_attribute_value(attr)) for attr in node.attribute}


def _plain(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (list, tuple)):
        return tuple(_plain(item) for item in value)
    return value


def evaluate(
    definition: OpDef, attrs: Mapping[str, Attr], inputs: Sequence[Value | None], n_outputs: int = 1
) -> tuple[Value, ...]:
    """The outputs of an operator's own reference kernel."""
    assert definition.reference is not None
    made = definition.reference(Call(definition.name, attrs, tuple(inputs), n_outputs))
    return made[:n_outputs] if isinstance(made, tuple) else (made,)


def flops(
    definition: OpDef,
    attrs: Mapping[str, Attr],
    inputs: Sequence[np.ndarray | None],
    outputs: Sequence[np.ndarray],
) -> int | None:
    """The operator's count of operations on values of these types."""
    types = tuple(None if value is None else TensorType.of(value) for value in inputs)
    query = TypeQuery(definition.name, attrs, types, (None,) * len(types), len(outputs))
    assert callable(definition.flops)
    return definition.flops(query, [TensorType.of(value) for value in outputs])


def check_node_case(definition: OpDef, case: Any, rtol: float = 1e-5, atol: float = 1e-5) -> None:
    """Evaluate one of ONNX's cases with our reference and compare."""
    node = case.model.graph.node[0]
    given, expected = case.data_sets[0]
    present = iter(_array(value) for value in given)
    inputs = [next(present) if name else None for name in node.input]
    actual = evaluate(definition, attributes(node), inputs, len(node.output))
    wanted = iter(_array(value) for value in expected)
    for name, value in zip(node.output, actual, strict=True):
        if name:
            assert_close(value, next(wanted), rtol, atol)


def _array(value: Any) -> np.ndarray:
    return (
        numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)
    )


def assert_close(
    actual: np.ndarray, expected: np.ndarray, rtol: float = 1e-5, atol: float = 1e-5
) -> None:
    """Same type, same shape, same values; narrow floats may differ by one unit in the last
    place.
    """
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    if actual.dtype.kind in "iub":
        np.testing.assert_array_equal(actual, expected)
        return
    if actual.dtype not in {np.dtype(np.float32), np.dtype(np.float64)}:
        try:
            step = float(ml_dtypes.finfo(actual.dtype).eps)
        except ValueError:
            step = 0.0
        rtol, atol = max(rtol, 2 * step), max(atol, 2 * step)
        actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


def one_node_model(
    op: str,
    attrs: Mapping[str, Any],
    inputs: Sequence[np.ndarray | None],
    n_outputs: int,
    opset: int,
) -> onnx.ModelProto:
    """A model of one node whose inputs `i0`, `i1`, ... are like the given values. An absent input
    is `None`.
    """
    names = ["" if value is None else f"i{index}" for index, value in enumerate(inputs)]
    outputs = [f"o{index}" for index in range(n_outputs)]
    given = [(name, value) for name, value in zip(names, inputs, strict=True) if value is not None]
    graph = helper.make_graph(
        [helper.make_node(op, names, outputs, **attrs)],
        "one",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
            )
            for name, value in given
        ],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def run_onnxruntime(model: onnx.ModelProto, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of a model in ONNX Runtime, on one thread."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, dict(values)))


def onnxruntime_outputs(
    op: str,
    attrs: Mapping[str, Any],
    inputs: Sequence[np.ndarray | None],
    n_outputs: int = 1,
    opset: int = 22,
) -> list[np.ndarray]:
    """What ONNX Runtime computes for one node. An absent input is `None`."""
    model = one_node_model(op, attrs, inputs, n_outputs, opset)
    return run_onnxruntime(
        model, {f"i{index}": value for index, value in enumerate(inputs) if value is not None}
    )


def assert_infers(
    definition: OpDef,
    attrs: Mapping[str, Attr],
    inputs: Sequence[np.ndarray | None],
    outputs: Sequence[np.ndarray],
) -> None:
    """The operator's own rule, which sees only the types of the inputs, foretells the types of the
    outputs.
    """
    assert definition.infer is not None
    types = tuple(None if value is None else TensorType.of(value) for value in inputs)
    query = TypeQuery(definition.name, attrs, types, (None,) * len(types), len(outputs))
    found = definition.infer(query)
    kinds = found[: len(outputs)] if isinstance(found, tuple) else (found,)
    assert kinds == tuple(TensorType.of(value) for value in outputs)
