"""Random weights for models that come without theirs.

ONNX's own package has the architectures of real networks with every weight the same number, which
keeps the files small. All channels of such a network are equal: its outputs say nothing about what
its convolutions compute, and where they tie, rounding decides.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

# A node of these multiplies by weights, its second input.
_WEIGHTED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


def has_filled_weights(model: onnx.ModelProto) -> bool:
    """Are any weights of a convolution or a product one number, repeated?"""
    filled = {node.output[0] for node in model.graph.node if node.op_type == "ConstantOfShape"}
    return any(node.op_type in _WEIGHTED and node.input[1] in filled for node in model.graph.node)


def with_random_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with weights, not constant fills, so that a wrong transformation shows."""
    rng = np.random.default_rng(0)
    shapes = {
        init.name: tuple(int(dim) for dim in numpy_helper.to_array(init).reshape(-1))
        for init in model.graph.initializer
    }
    # Scales and variances near what training leaves, so that values neither vanish nor drown each
    # other on the way.
    positive = {
        node.input[index]
        for node in model.graph.node
        if node.op_type == "BatchNormalization"
        for index in (1, 4)
    }
    kept = []
    for node in model.graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        name, shape = node.output[0], shapes[node.input[0]]
        fan_in = max(1, int(np.prod(shape[1:])))
        weights = (
            rng.uniform(0.4, 0.8, shape)
            if name in positive
            else rng.standard_normal(shape) * (0.1 if len(shape) < 2 else np.sqrt(1 / fan_in))
        )
        model.graph.initializer.append(numpy_helper.from_array(weights.astype(np.float32), name))
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return model
