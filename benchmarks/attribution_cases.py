"""Graphs of which the answer can be measured from outside: each can be built without one of its operators.

The truth about an operator is what the model gains when it is not there: both graphs are compiled as models of their own and run in turns, so
that whatever disturbs one disturbs the other, and the shortest times count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from whence.api import compile_model, prepare
from whence.attribution import profile_executable
from whence.attribution.assemble import Measurement, assemble
from whence.attribution.policy import EXACT
from whence.attribution.profile import Profile
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.passes.equivalence import random_inputs
from whence.runtime.stream import Stream, StreamFlags, reset_profiling
from whence.types import DType

_ROW = 5


@dataclass(frozen=True)
class Case:
    """`build("")` is the whole graph, `build(name)` the one without operator `name`; a name may end in `/`, for all that begin with it."""

    name: str
    build: Callable[[str], Graph]
    leave_out: str


def _weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32) / np.float32(np.sqrt(shape[-1]))


def _add_erf(rows: int) -> Callable[[str], Graph]:
    def build(without: str) -> Graph:
        graph = GraphBuilder("add_erf")
        x, y = (graph.input(name, DType.F32, [rows, 256]) for name in "xy")
        value = graph.op("Add", x, y, name="add")
        graph.output("z", value if without == "erf" else graph.op("Erf", value, name="erf"))
        return graph.finish()

    return build


def _conv(channels: int, size: int, kernel: int, then: Sequence[str]) -> Callable[[str], Graph]:
    def build(without: str) -> Graph:
        graph = GraphBuilder("conv")
        x = graph.input("x", DType.F32, [1, channels, size, size])
        value = graph.op("Conv", x, graph.const(_weights(channels, channels, kernel, kernel)), name="conv", pads=(kernel // 2,) * 4)
        for op in then:
            if op == without:
                continue
            operands = [graph.input("r", DType.F32, [1, channels, size, size])] if op == "Add" else []
            value = graph.op(op, value, *operands, name=op)
        graph.output("z", value)
        return graph.finish()

    return build


def _matmul_norm(without: str) -> Graph:
    graph = GraphBuilder("matmul_norm")
    value = graph.op("MatMul", graph.input("x", DType.F32, [512, 256]), graph.const(_weights(256, 256)), name="product")
    if without != "norm":
        value = graph.op("LayerNormalization", value, graph.const(_weights(256)), graph.const(_weights(256)), name="norm", axis=-1)
    graph.output("z", value)
    return graph.finish()


def _matmul_gelu(without: str) -> Graph:
    graph = GraphBuilder("matmul_gelu")
    value = graph.op("MatMul", graph.input("x", DType.F32, [512, 64]), graph.const(_weights(64, 256)), name="product")
    graph.output("z", value if without == "gelu" else graph.op("Gelu", value, name="gelu"))
    return graph.finish()


def _transpose_add(without: str) -> Graph:
    graph = GraphBuilder("transpose_add")
    x, y = graph.input("x", DType.F32, [128, 128]), graph.input("y", DType.F32, [128, 128])
    value = x if without == "turn" else graph.op("Transpose", x, name="turn", perm=(1, 0))
    graph.output("z", graph.op("Add", value, y, name="add"))
    return graph.finish()


def _erf_softmax(without: str) -> Graph:
    graph = GraphBuilder("erf_softmax")
    x = graph.input("x", DType.F32, [256, 256])
    value = x if without == "erf" else graph.op("Erf", x, name="erf")
    graph.output("z", graph.op("Softmax", value, name="softmax", axis=-1))
    return graph.finish()


def _chains(without: str) -> Graph:
    """Two chains that have nothing to do with each other, of which one does ten times the work."""
    graph = GraphBuilder("chains")

    def chain(name: str, rows: int) -> Symbol:
        value = graph.input(name, DType.F32, [rows, 128])
        for number in range(3):
            value = graph.op("MatMul", value, graph.const(_weights(128, 128)), name=f"{name}/{number}/product")
            value = graph.op("Tanh", value, name=f"{name}/{number}/tanh")
        return value

    for name, rows in (("small", 56), ("large", 560)):
        if without != f"{name}/":
            graph.output(f"{name}_out", chain(name, rows))
    return graph.finish()


CASES = (
    Case("an error function on a sum, in cache", _add_erf(64), "erf"),
    Case("an error function on a sum, from memory", _add_erf(4096), "erf"),
    Case("a cheap activation of a heavy convolution", _conv(64, 28, 3, ["Relu"]), "Relu"),
    Case("a dear activation of a light convolution", _conv(64, 56, 1, ["Sigmoid"]), "Sigmoid"),
    Case("an addition to a convolution", _conv(64, 56, 1, ["Add", "Relu"]), "Add"),
    Case("a norm of a product", _matmul_norm, "norm"),
    Case("an activation of a product", _matmul_gelu, "gelu"),
    Case("a transpose on the way to a sum", _transpose_add, "turn"),
    Case("an error function on the way to a softmax", _erf_softmax, "erf"),
    Case("ten times the work", _chains, "large/"),
    Case("a tenth of the work", _chains, "small/"),
)


class Race:
    """Models that run in turns. Every further round can only make the shortest times shorter."""

    def __init__(self, *graphs: Graph) -> None:
        self.models = [compile_model(graph, threads=1) for graph in graphs]
        self._inputs = [random_inputs(graph) for graph in graphs]
        self._streams = [Stream(model.engine, StreamFlags.PROFILING) for model in self.models]
        self.shortest: list[np.ndarray | None] = [None] * len(graphs)
        """Nanoseconds by step, of each model."""

    def run(self, rounds: int) -> None:
        """Each model runs a few times in a row, so that it meets its own data in the caches and not that of the others."""
        for _ in range(rounds):
            for number in range(len(self.models)):
                for _ in range(_ROW):
                    self._time(number)

    def _time(self, number: int) -> None:
        model, stream = self.models[number], self._streams[number]
        reset_profiling(stream)
        model.execute(stream, **self._inputs[number])
        stream.wait()
        assert stream.profiler is not None
        samples = stream.profiler.samples()
        times = np.zeros(int(samples["step"].max()) + 1, np.int64)
        times[samples["step"]] = samples["end"] - samples["begin"]
        known = self.shortest[number]
        self.shortest[number] = times if known is None else np.minimum(known, times)

    def gain(self) -> float:
        """What the second model saves of the first one's time."""
        whole, less = (times.sum() for times in self.shortest if times is not None)
        return float(1 - less / whole)


def modelled_share(case: Case, race: Race) -> float:
    """What attribution's model says of the shortest times that the race saw."""
    model, times = race.models[0], race.shortest[0]
    assert times is not None
    (program,) = model.programs
    nothing = np.zeros_like(times)
    measured = Measurement(
        runs_ns=(int(times.sum()),),
        residual_ns={},
        step_ns=times,
        step_calls=np.ones_like(times),
        step_waited_ns=nothing,
        step_min_ns=times,
        per_run_ns=times[None],
    )
    return _share(assemble(model.graph, program, measured, model=case.name, engine="cpu", threads=1), case)


def exact_share(case: Case, race: Race) -> float:
    """What is said when attribution leaves the operator out of its kernel and measures."""
    graph = race.models[0].graph
    found = profile_executable(race.models[0], runs=20, warmup=2, exact=lambda _: prepare(graph.copy()))
    assert found.policy == EXACT
    assert found.attributed_ns + sum(found.residual_ns.values()) == found.wall_ns
    return _share(found, case)


def _share(profile: Profile, case: Case) -> float:
    """Of all time in kernels."""
    own = (
        source.time_ns
        for source in profile.sources
        if source.name == case.leave_out or (case.leave_out.endswith("/") and source.name.startswith(case.leave_out))
    )
    return sum(own) / profile.attributed_ns
