"""Small models for the runtime's tests, and their results by the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import parser

from whence.api import compile_model
from whence.frontends.onnx.reader import read_onnx
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.runtime.engine import Engine
from whence.runtime.executable import Executable
from whence.types import Dim, DType

X = np.array([-2.0, -0.5, 1.0, 3.0], np.float32)


def relu(*shape: Dim) -> Graph:
    """One native kernel: y = relu(x + 1)."""
    build = GraphBuilder("relu")
    x = build.input("x", DType.F32, shape or (4,))
    build.output("y", build.op("Relu", build.op("Add", x, build.const(np.float32(1)))))
    return build.finish()


def mixed() -> Graph:
    """A native kernel, a reference step with a size known only at run time, another native
    kernel.
    """
    build = GraphBuilder("mixed")
    x = build.input("x", DType.F32, [4])
    found = build.op("NonZero", build.op("Relu", x), name="found")
    build.output("count", build.op("ReduceSum", build.op("Cast", found, to=DType.I64), keepdims=0))
    build.output("y", build.op("Neg", x))
    return build.finish()


def reshape(*, n: Dim = 4) -> Graph:
    """Fails when the shape it is given does not fit: operator 'fold'."""
    build = GraphBuilder("reshape")
    x = build.input("x", DType.F32, [n])
    shape = build.input("shape", DType.I64, [2])
    build.output("y", build.op("Reshape", x, shape, name="fold"))
    return build.finish()


def parsed(text: str) -> Graph:
    """A model in ONNX's text form."""
    return read_onnx(parser.parse_model('<ir_version: 10, opset_import: ["" : 21]>' + text))


def compiled(graph: Graph, engine: Engine) -> Executable:
    return compile_model(graph, engine=engine)


def outputs(result: Any) -> list[Any]:
    """What a call of an executable returned, as a list."""
    return list(result) if isinstance(result, tuple) else [result]


def assert_same(got: Sequence[Any], expected: Sequence[Any]) -> None:
    """Same types, same shapes, same numbers up to rounding."""
    assert len(got) == len(expected)
    for ours, theirs in zip(got, expected, strict=True):
        if isinstance(theirs, list):
            assert isinstance(ours, list)
            assert_same(ours, theirs)
        elif theirs is None:
            assert ours is None
        else:
            assert isinstance(ours, np.ndarray)
            assert ours.dtype == theirs.dtype
            assert ours.shape == theirs.shape
            if theirs.dtype.kind == "f":
                np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
            else:
                np.testing.assert_array_equal(ours, theirs)
