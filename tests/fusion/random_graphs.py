"""Random graphs for the properties every grouping must have."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.types import DType

_UNARY = ("Relu", "Exp", "Sigmoid", "Neg", "Softmax")
_BINARY = ("Add", "Mul", "Sub", "Max")
_SIDE = 4


@st.composite
def graphs(draw: st.DrawFn, max_operators: int = 24) -> Graph:
    """A graph of all patterns on 4x4, 4x1 and 1x4 matrices, with skips, shared values, dead ends
    and outputs anywhere.
    """
    build = GraphBuilder()
    values: list[Symbol] = [
        build.input("x", DType.F32, [_SIDE, _SIDE]),
        build.input("y", DType.F32, [_SIDE, _SIDE]),
    ]
    square = list(values)
    weights = build.const(np.linspace(-1, 1, _SIDE * _SIDE, dtype=np.float32).reshape(_SIDE, _SIDE))
    axes = build.const(np.array([1]))
    half = build.const(np.float32(0.5))

    def pick(among: list[Symbol]) -> Symbol:
        # Mostly recent values: long chains with a few long skips, as in real models.
        back = draw(st.integers(1, 3)) if draw(st.booleans()) else draw(st.integers(1, len(among)))
        return among[-min(back, len(among))]

    for _ in range(draw(st.integers(1, max_operators))):
        match draw(
            st.sampled_from(
                [
                    "unary",
                    "binary",
                    "scalar",
                    "transpose",
                    "reduce",
                    "matmul",
                    "split",
                    "concat",
                    "any",
                ]
            )
        ):
            case "unary":
                made = [build.op(draw(st.sampled_from(_UNARY)), pick(square))]
            case "binary":
                made = [build.op(draw(st.sampled_from(_BINARY)), pick(square), pick(square))]
            case "scalar":
                made = [build.op("Mul", pick(square), half)]
            case "transpose":
                made = [build.op("Transpose", pick(square), perm=(1, 0))]
            case "matmul":
                made = [build.op("MatMul", pick(square), weights)]
            case "reduce":
                values.append(build.op("ReduceMean", pick(square), axes))
                made = []
            case "split":
                first = build.op("Split", pick(square), n_outputs=2, axis=0, num_outputs=2)
                made = [build.op("Concat", first[1], first, axis=0)]
            case "concat":
                value = pick(square)
                wide = build.op("Concat", value, pick(square), axis=1)
                made = [
                    build.op(
                        "ReduceMax",
                        build.op("Reshape", wide, build.const(np.array([4, 4, 2]))),
                        build.const(np.array([2])),
                        keepdims=0,
                    )
                ]
            case _:
                made = [build.op(draw(st.sampled_from(_BINARY)), pick(square), pick(values))]
        square += made
        values += made
    build.output("last", values[-1])
    for number in range(draw(st.integers(0, 2))):
        build.output(f"extra{number}", pick(values))
    return build.finish()
