"""Tiny models for sweeps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def tiny_model(path: Path, seed: int = 0, layers: int = 2) -> Path:
    """A chain of products and activations, saved as a file."""
    rng = np.random.default_rng(seed)
    nodes, weights, value = [], [], "x"
    for layer in range(layers):
        matrix = rng.normal(size=(64, 64)).astype(np.float32) / 8
        weights.append(numpy_helper.from_array(matrix, f"layer{layer}.weight"))
        nodes.append(
            helper.make_node(
                "MatMul",
                [value, f"layer{layer}.weight"],
                [f"m{layer}"],
                name=f"/layer{layer}/MatMul",
            )
        )
        value = f"r{layer}"
        nodes.append(helper.make_node("Relu", [f"m{layer}"], [value], name=f"/layer{layer}/Relu"))
    floats = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [16, 64]) for name in ("x", value)
    ]
    graph = helper.make_graph(nodes, "tiny", floats[:1], floats[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(path))
    return path
