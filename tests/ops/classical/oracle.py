"""ONNX Runtime's answers for operators of `ai.onnx.ml`, and their comparison with ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

from tests.ops.oracle import assert_close, run_onnxruntime
from whence.ops.definition import Call, TypeQuery
from whence.ops.fallback import type_of
from whence.ops.registry import evaluate
from whence.ops.types.inference import infer, to_type_proto
from whence.types import TensorType


def onnxruntime_outputs(
    op: str, attrs: dict[str, Any], inputs: list[Any], n_outputs: int, opset: int
) -> list[Any]:
    names, outputs = (
        [f"i{index}" for index in range(len(inputs))],
        [f"o{index}" for index in range(n_outputs)],
    )
    graph = helper.make_graph(
        [helper.make_node(op, names, outputs, domain="ai.onnx.ml", **attrs)],
        "one",
        [
            helper.make_value_info(name, to_type_proto(type_of(value)))
            for name, value in zip(names, inputs, strict=True)
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", opset)]
    return run_onnxruntime(
        helper.make_model(graph, opset_imports=opsets, ir_version=8),
        dict(zip(names, inputs, strict=True)),
    )


def run(op: str, *inputs: Any, n_outputs: int = 1, **attrs: Any) -> Any:
    """Our own answer."""
    results = evaluate(Call(f"ai.onnx.ml::{op}", attrs, inputs, n_outputs))
    return results[0] if n_outputs == 1 else results


def check(op: str, *inputs: Any, n_outputs: int = 1, opset: int = 1, **attrs: Any) -> None:
    """Ours and ONNX Runtime's outputs are equal, and have the types that inference foretold."""
    expected = onnxruntime_outputs(op, attrs, list(inputs), n_outputs, opset)
    actual = evaluate(Call(f"ai.onnx.ml::{op}", attrs, inputs, n_outputs))
    types = infer(
        TypeQuery(
            f"ai.onnx.ml::{op}",
            attrs,
            tuple(type_of(value) for value in inputs),
            (None,) * len(inputs),
            n_outputs,
        )
    )
    for ours, theirs, kind in zip(actual, expected, types, strict=True):
        if isinstance(theirs, list):
            assert ours == theirs
            continue
        if theirs.dtype == np.object_:
            assert ours.tolist() == theirs.tolist()
        else:
            assert_close(ours, theirs, rtol=1e-4)
        assert isinstance(kind, TensorType)
        assert kind.dtype is TensorType.of(ours).dtype
        assert kind.shape is None or all(
            not isinstance(dim, int) or dim == size
            for dim, size in zip(kind.shape, ours.shape, strict=True)
        )
