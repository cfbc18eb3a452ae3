"""Small ONNX models for tests, and the two ways to run one: ONNX Runtime, and whence's reader with
its interpreter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from whence.frontends.onnx.reader import read_onnx
from whence.graph import Graph
from whence.graph.interpreter import run

MICROSOFT = "com.microsoft"


def node(
    op: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    *,
    domain: str = "",
    name: str = "",
    **attrs: Any,
) -> NodeProto:
    return helper.make_node(op, inputs, outputs, domain=domain, name=name, **attrs)


def model(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, np.ndarray | tuple[int, Sequence[Any]]],
    outputs: Sequence[str],
    *,
    opset: int = 21,
    constants: Mapping[str, np.ndarray] | None = None,
    functions: Sequence[FunctionProto] = (),
    domains: Mapping[str, int] | None = None,
    ir_version: int = 10,
    output_types: Mapping[str, int] | None = None,
) -> ModelProto:
    """A model; inputs are given by an example array or by (element type, shape)."""
    values = []
    for name, example in inputs.items():
        dtype, shape = (
            (helper.np_dtype_to_tensor_dtype(example.dtype), example.shape)
            if isinstance(example, np.ndarray)
            else example
        )
        values.append(helper.make_tensor_value_info(name, dtype, shape))
    results = [
        helper.make_tensor_value_info(name, (output_types or {}).get(name, 0), None)
        for name in outputs
    ]
    for result in results:
        if not (output_types or {}).get(result.name):
            result.ClearField("type")
    tensors = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "test", values, results, tensors)
    opsets = [
        helper.make_opsetid("", opset),
        *(helper.make_opsetid(domain, version) for domain, version in (domains or {}).items()),
    ]
    if any(each.domain == MICROSOFT for each in nodes):
        opsets.append(helper.make_opsetid(MICROSOFT, 1))
    return helper.make_model(
        graph, opset_imports=opsets, ir_version=ir_version, functions=list(functions)
    )


def run_ort(proto: ModelProto | bytes, feeds: Mapping[str, Any]) -> list[Any]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(
        proto if isinstance(proto, bytes) else proto.SerializeToString(),
        options,
        providers=["CPUExecutionProvider"],
    )
    return list(session.run(None, dict(feeds)))


def run_whence(proto: ModelProto | bytes, feeds: Mapping[str, Any]) -> list[Any]:
    graph = read_onnx(proto)
    assert graph.ledger.lost() == []
    return run(graph, {each.name: feeds[each.name] for each in graph.inputs})


def assert_close(got: Sequence[Any], expected: Sequence[Any], tolerance: float = 1e-5) -> None:
    assert len(got) == len(expected)
    for ours, theirs in zip(got, expected, strict=True):
        if isinstance(theirs, list):
            assert_close(ours, theirs, tolerance)
            continue
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        if theirs.dtype.kind in "fV":
            np.testing.assert_allclose(
                ours.astype(np.float64), theirs.astype(np.float64), rtol=tolerance, atol=tolerance
            )
        else:
            np.testing.assert_array_equal(ours, theirs)


def assert_like_ort(proto: ModelProto, feeds: Mapping[str, Any], tolerance: float = 1e-5) -> None:
    """The model computes the same through whence as through ONNX Runtime."""
    assert_close(run_whence(proto, feeds), run_ort(proto, feeds), tolerance)


def single(
    op: str,
    arrays: Mapping[str, np.ndarray],
    opset: int,
    /,
    *,
    n_outputs: int = 1,
    domain: str = "",
    **attrs: Any,
) -> ModelProto:
    """A model of one operator; arrays whose names begin with `c_` are constants, `_` is an input
    left out.
    """
    names = ["" if name.startswith("_") else name for name in arrays]
    outputs = [f"y{index}" for index in range(n_outputs)]
    inputs = {name: array for name, array in arrays.items() if not name.startswith(("_", "c_"))}
    constants = {name: array for name, array in arrays.items() if name.startswith("c_")}
    return model(
        [node(op, names, outputs, domain=domain, name="it", **attrs)],
        inputs,
        outputs,
        opset=opset,
        constants=constants,
    )


def feeds_of(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: array for name, array in arrays.items() if not name.startswith(("_", "c_"))}


def info(name: str, dtype: int = TensorProto.FLOAT, shape: list[Any] | None = None) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def operators(graph: Graph) -> list[str]:
    """Number and name of each."""
    return [f"{each.id}:{each.op}" for each in graph if each.op not in ("Input", "Const", "Output")]
