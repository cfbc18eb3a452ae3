"""Small graphs with state, and what they should do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.graph.state import initial_state
from whence.ops.definition import Value
from whence.types import DType, TensorType


def counter() -> Graph:
    """y = n · x with n the number of the call, which begins at 1."""
    build = GraphBuilder("counter")
    x = build.input("x", DType.F32, [4])
    n = build.variable("n", np.ones(4, np.float32))
    build.output("y", build.op("Mul", x, n))
    build.assign("n", build.op("Add", n, build.const(np.ones(4, np.float32))))
    return build.finish()


def accumulator() -> Graph:
    """y = the sum of all x so far: what is assigned is an output as well."""
    build = GraphBuilder("accumulator")
    x = build.input("x", DType.F32, [4])
    total = build.op("Add", build.variable("total", np.zeros(4, np.float32)), x)
    build.output("y", total)
    build.assign("total", total)
    return build.finish()


def exchange() -> Graph:
    """Two variables that change places, and one that is the last input."""
    build = GraphBuilder("exchange")
    x = build.input("x", DType.F32, [4])
    a = build.variable("a", np.full(4, 1, np.float32))
    b = build.variable("b", np.arange(4, dtype=np.float32))
    last = build.variable("last", np.zeros(4, np.float32))
    build.output("y", build.op("Sub", build.op("Mul", a, x), last))
    build.output("before", a)
    build.assign("a", b)
    build.assign("b", a)
    build.assign("last", x)
    return build.finish()


def window() -> Graph:
    """A filter over the last five inputs, as streaming models have it."""
    build = GraphBuilder("window")
    x = build.input("x", DType.F32, [1, 1, 8])
    rng = np.random.default_rng(3)
    past = build.variable("past", np.zeros((1, 4, 8), np.float32))
    whole = build.op("Concat", past, x, axis=1)
    weights = build.const(rng.normal(size=(1, 5, 8)).astype(np.float32))
    axes = build.const(np.array([1], np.int64))
    product = build.op("Mul", whole, weights)
    build.output("y", build.op("ReduceSum", product, axes, keepdims=0))
    begin, end = (build.const(np.array([place], np.int64)) for place in (1, 5))
    build.assign("past", build.op("Slice", whole, begin, end, axes))
    return build.finish()


def codes() -> Graph:
    """Whole numbers of eight bits that begin at a value other than zero."""
    build = GraphBuilder("codes")
    x = build.input("x", DType.I8, [3])
    seen = build.variable("seen", np.full(3, -7, np.int8))
    larger = build.op("Max", seen, x)
    build.output("y", build.op("Sub", larger, seen))
    build.assign("seen", larger)
    return build.finish()


def unsized() -> Graph:
    """What is assigned has a size that is known only when it is there."""
    build = GraphBuilder("unsized")
    x = build.input("x", DType.F32, [4])
    last = build.variable("last", np.zeros((4, 1), np.int64))
    build.output("y", build.op("Identity", last))
    build.assign("last", build.op("Transpose", build.op("NonZero", x), perm=(1, 0)))
    return build.finish()


GRAPHS = {made.__name__: made for made in (counter, accumulator, exchange, window, codes)}


def calls(graph: Graph, count: int, seed: int = 0) -> list[list[np.ndarray]]:
    """Inputs for so many calls."""
    rng = np.random.default_rng(seed)
    kinds = [node.type for node in graph.inputs if isinstance(node.type, TensorType)]
    return [
        [rng.integers(1, 100, kind.static_shape).astype(kind.dtype.numpy) for kind in kinds]
        for _ in range(count)
    ]


def interpreted(graph: Graph, inputs: Sequence[Sequence[np.ndarray]]) -> list[list[Value]]:
    """What the graph gives for these calls, one after the other."""
    state = initial_state(graph)
    return [graph.run(each, state=state) for each in inputs]
