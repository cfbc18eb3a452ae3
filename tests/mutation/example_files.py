"""Small files with many of the things that a format has, to be damaged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, parser

_DATABASES = Path(__file__).parents[1] / "debugdb" / "data"

_TEXTS = {
    "control flow": """
        agraph (bool flag, float[3] x, int64 count) => (float[3] y, float[3] z) {
            y = If (flag) <
                then_branch = yes () => (float[3] a) { a = Relu (x) },
                else_branch = no () => (float[3] b) { b = Neg (x) }
            >
            z = Loop (count, flag, x) <body = iteration (int64 i, bool c, float[3] s) =>
                (bool d, float[3] t) { d = Identity (c)  t = Add (s, s) }>
        }""",
    "shapes": """
        agraph (float[n, 4] x) => (float[m, p] y) {
            shape = Shape (x)
            one = Constant <value = int64[1] {-1}> ()
            flat = Reshape (x, one)
            many = Expand (flat, shape)
            parts = Split <axis = 1, num_outputs = 2> (many)
            y = Concat <axis = 0> (parts, x)
        }""",
    "pictures": """
        agraph (float[1, 2, 6, 6] x, float[3, 2, 3, 3] w) => (float[1, 3, k, l] y)
        <float[3] b = {0.0, 1.0, 2.0}> {
            c = Conv <pads = [1, 1, 1, 1], strides = [2, 2], kernel_shape = [3, 3]> (x, w, b)
            p = MaxPool <kernel_shape = [2, 2]> (c)
            y = Softmax <axis = 1> (p)
        }""",
}


def onnx_models() -> Iterator[tuple[str, bytes]]:
    for name, text in _TEXTS.items():
        try:
            yield (
                name,
                parser.parse_model(
                    '<ir_version: 10, opset_import: ["" : 21]>' + text
                ).SerializeToString(),
            )
        except parser.ParseError as error:
            raise AssertionError(f"{name}: {error}") from error
    yield "codes", _codes()


def _codes() -> bytes:
    """Quantised, with constants in several encodings, sparse ones and a function."""
    scale = numpy_helper.from_array(np.array(0.1, np.float32), "scale")
    zero = numpy_helper.from_array(np.array(3, np.uint8), "zero")
    weights = helper.make_tensor("w", TensorProto.INT8, [4, 2], list(range(8)))
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("s", TensorProto.FLOAT, [2], [1.0, 2.0]),
        helper.make_tensor("s_indices", TensorProto.INT64, [2], [0, 3]),
        [4],
    )
    nodes = [
        helper.make_node("MatMulInteger", ["x", "w", "zero"], ["sums"]),
        helper.make_node("Cast", ["sums"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Twice", ["real"], ["more"], domain="own"),
        helper.make_node("QuantizeLinear", ["more", "scale", "zero"], ["y"]),
        helper.make_node("Identity", ["s"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes,
        "codes",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, ["n", 4])],
        [
            helper.make_tensor_value_info("y", TensorProto.UINT8, ["n", 2]),
            helper.make_tensor_value_info("z", TensorProto.FLOAT, [4]),
        ],
        [scale, zero, weights],
        sparse_initializer=[sparse],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    twice = helper.make_function(
        "own", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], opsets[:1]
    )
    model = helper.make_model(graph, opset_imports=opsets, functions=[twice], ir_version=10)
    return bytes(model.SerializeToString())


def debug_databases() -> Iterator[tuple[str, bytes]]:
    for path in sorted(_DATABASES.glob("*.xml")):
        yield path.stem, path.read_bytes()
