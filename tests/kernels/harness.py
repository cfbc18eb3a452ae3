"""Many small cases compiled into one library, run, and compared with the reference implementation
and with ONNX Runtime.
"""

from __future__ import annotations

import functools
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnxruntime

from tests.cpu_backend import cpu_backend
from whence.backends.cpu.generator import build_program
from whence.backends.cpu.instance import Instance
from whence.building.program import Program, Segment
from whence.frontends.onnx.writer import write_onnx
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.passes.equivalence import difference
from whence.runtime.engine import Engine
from whence.types import DType


@functools.cache
def engine() -> Engine:
    return Engine(threads=2)


class Cases:
    """A graph of independent cases. Each puts in arrays, applies operators, and says which values
    to compare.
    """

    def __init__(self, seed: int = 0) -> None:
        self.build = GraphBuilder("cases")
        self.rng = np.random.default_rng(seed)
        self.feeds: dict[str, np.ndarray] = {}
        self._limits: dict[str, float] = {}

    def feed(self, value: Any) -> Symbol:
        """An input of the graph that holds this array."""
        array = np.asarray(value)
        name = f"x{len(self.feeds)}"
        self.feeds[name] = array
        return self.build.input(name, DType.of(array), array.shape)

    def normal(self, *shape: int, dtype: type = np.float32) -> Symbol:
        return self.feed(self.rng.standard_normal(shape).astype(dtype))

    def weights(self, *shape: int, dtype: type = np.float32) -> Symbol:
        return self.build.const(self.rng.standard_normal(shape).astype(dtype))

    def const(self, value: Any) -> Symbol:
        return self.build.const(value)

    def op(self, op: str, *inputs: Symbol | None, **attrs: Any) -> Symbol:
        return self.build.op(op, *inputs, **attrs)

    def expect(self, value: Symbol, name: str = "", limit: float = 1e-5) -> None:
        """Compare this value; `limit` is relative to its largest magnitude."""
        name = f"y{len(self._limits)}_{name}"
        self._limits[name] = limit
        self.build.output(name, value)

    def check(self, *, peer: bool = True, native: bool = True) -> Program:
        """Compile and run all cases, with work items spread over threads as thinly as can be."""
        graph = self.build.finish()
        program = build_program(graph, cpu_backend(engine()).toolchain)
        if native:
            left = {
                f"{step.name}: {step.why_reference}" for step in program.steps if not step.symbol
            }
            assert not left, sorted(left)
        for action in program.actions:
            if isinstance(action, Segment):
                for number in range(action.plan.n_steps):
                    action.plan.steps[number].grain = min(action.plan.steps[number].grain, 1)
        inputs = [self.feeds[node.name] for node in graph.inputs]
        results = Instance(program, cpu_backend(engine())).run(inputs, None)
        self.compare("the reference", graph.run(inputs), results)
        if peer:
            self.compare("ONNX Runtime", self._peer(graph), results)
        return program

    def compare(self, whom: str, expected: list[Any], results: list[Any]) -> None:
        """Each result against what somebody else has for it, by its own limit."""
        gaps = {
            name: difference(np.asarray(was), np.asarray(now))
            for (name, _), was, now in zip(self._limits.items(), expected, results, strict=True)
        }
        wrong = {name: gap for name, gap in gaps.items() if not gap <= self._limits[name]}
        assert not wrong, f"differ from {whom}: {wrong}"

    def _peer(self, graph: Graph) -> list[Any]:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "cases.onnx"
            write_onnx(graph, path)
            session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
            return list(session.run(None, self.feeds))
