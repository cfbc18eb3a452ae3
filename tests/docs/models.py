"""The model files that the documentation's commands are about."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser


def write_models(folder: Path) -> None:
    """`model.onnx`, a small network of images; `open.onnx`, with an open size; `decoder.onnx`, with
    tokens; `counter.onnx`, with a sum that can be its state; `relus.onnx`.
    """
    onnx.save(_images(), str(folder / "model.onnx"))
    for name, text in {
        "open": "open (float[n,4] x) => (float[n,4] y) { y = Neg(x) }",
        "counter": (
            "counter (float[1] step, float[1] total) => (float[1] sum, float[1] next) {"
            " next = Add(total, step) sum = Identity(next) }"
        ),
        "relus": "relus (float[4] x) => (float[4] y) { a = Relu(x) y = Relu(a) }",
        "decoder": (
            "decoder (int64[1,length] tokens) => (float[1,length,16] y) {"
            " table = ConstantOfShape<value = float[1] {0.5}>(rows)"
            " e = Gather(table, tokens) y = MatMul(e, weight) }"
        ),
    }.items():
        model = parser.parse_model('<ir_version: 10, opset_import: ["" : 21]>' + text)
        if name == "decoder":
            model.graph.initializer.append(numpy_helper.from_array(np.array([32, 16]), "rows"))
            weight = np.ones((16, 16), np.float32)
            model.graph.initializer.append(numpy_helper.from_array(weight, "weight"))
        onnx.save(model, str(folder / f"{name}.onnx"))


def _images() -> onnx.ModelProto:
    rng = np.random.default_rng(0)

    def weights(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(rng.uniform(0.1, 1, shape).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "conv1.weight"], ["c"], name="conv1", pads=[1] * 4),
        helper.make_node(
            "BatchNormalization",
            ["c", "bn1.weight", "bn1.bias", "bn1.mean", "bn1.var"],
            ["n"],
            name="bn1",
        ),
        helper.make_node("Relu", ["n"], ["r"], name="relu1"),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], name="pool"),
        helper.make_node("Flatten", ["p"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "fc.weight", "fc.bias"], ["y"], name="fc"),
    ]
    constants = [
        weights("conv1.weight", 16, 3, 3, 3),
        *(weights(f"bn1.{part}", 16) for part in ("weight", "bias", "mean", "var")),
        weights("fc.weight", 16, 10),
        weights("fc.bias", 10),
    ]
    graph = helper.make_graph(
        nodes,
        "images",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 32, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
