"""Graphs of which the answer can be measured from outside: each can be built without one of its
operators.

The truth about an operator is what the model gains when it is not there: both graphs are compiled
as models of their own and run in turns, so that whatever disturbs one disturbs the other. Both make
their products the same way: whether matrix units may round them is decided by a model's outputs
(`backends/cpu/reduced_precision.py`), which are others without the operator, and is no part of what
the operator costs. As in a profile, the usual times count and not the shortest: in the quickest
runs an error function hides behind memory traffic, in the usual ones much less of it does.
"""

from __future__ import annotations

import ctypes
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from whence.api import compile_model, prepare
from whence.attribution import profile_executable
from whence.attribution.assemble import Measurement, assemble
from whence.attribution.policy import EXACT
from whence.attribution.profile import Profile
from whence.attribution.rounds import saved_part
from whence.building.aligned_memory import aligned_bytes
from whence.calibration import calibrated
from whence.codegen.toolchain import Toolchain
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.ops.definition import Value
from whence.passes.equivalence import random_inputs
from whence.runtime.engine import Engine
from whence.runtime.stream import Stream, StreamFlags, reset_profiling
from whence.types import DType

# Runs in a row, of which the first few do not count; rounds of which the middle one counts.
_ROW, _WARM = 6, 2
_BATCH = 5
# Batches between two moves.
_GROUP = 4
# How long a model is profiled, and how often the race goes on meanwhile.
_PROFILED_NS, _LEAST_RUNS, _MOST_RUNS = 400_000_000, 100, 3000
_PAUSES = 400
# Of mallopt, as in malloc.h, and of prctl.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_SET_THP_DISABLE = 41


@dataclass(frozen=True)
class Case:
    """`build("")` is the whole graph, `build(name)` the one without operator `name`; a name may end
    in `/`, for all that begin with it.
    """

    name: str
    build: Callable[[str], Graph]
    leave_out: str
    precise: bool = False
    """Without matrix units, where there are any."""


def _weights(*shape: int, added: int = 1) -> np.ndarray:
    """Random, and so small that a sum of so many products is about as large as one input."""
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32) / np.float32(
        math.sqrt(added)
    )


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
        weights = _weights(channels, channels, kernel, kernel, added=channels * kernel**2)
        value = graph.op("Conv", x, graph.const(weights), name="conv", pads=(kernel // 2,) * 4)
        for op in then:
            if op == without:
                continue
            operands = (
                [graph.input("r", DType.F32, [1, channels, size, size])] if op == "Add" else []
            )
            value = graph.op(op, value, *operands, name=op)
        graph.output("z", value)
        return graph.finish()

    return build


def _matmul_norm(without: str) -> Graph:
    graph = GraphBuilder("matmul_norm")
    value = graph.op(
        "MatMul",
        graph.input("x", DType.F32, [512, 256]),
        graph.const(_weights(256, 256, added=256)),
        name="product",
    )
    if without != "norm":
        value = graph.op(
            "LayerNormalization",
            value,
            graph.const(_weights(256)),
            graph.const(_weights(256)),
            name="norm",
            axis=-1,
        )
    graph.output("z", value)
    return graph.finish()


def _matmul_gelu(without: str) -> Graph:
    graph = GraphBuilder("matmul_gelu")
    value = graph.op(
        "MatMul",
        graph.input("x", DType.F32, [512, 64]),
        graph.const(_weights(64, 256, added=64)),
        name="product",
    )
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
            value = graph.op(
                "MatMul",
                value,
                graph.const(_weights(128, 128, added=128)),
                name=f"{name}/{number}/product",
            )
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
    Case(
        "a dear activation, without matrix units",
        _conv(64, 56, 1, ["Sigmoid"]),
        "Sigmoid",
        precise=True,
    ),
    Case("an addition to a convolution", _conv(64, 56, 1, ["Add", "Relu"]), "Add"),
    Case("a norm of a product", _matmul_norm, "norm"),
    Case("an activation of a product", _matmul_gelu, "gelu"),
    Case("a transpose on the way to a sum", _transpose_add, "turn"),
    Case("an error function on the way to a softmax", _erf_softmax, "erf"),
    # Matrix units would do the large products at another rate than vectors the small ones: ten
    # times the work would not be ten times the time.
    Case("ten times the work", _chains, "large/", precise=True),
    Case("a tenth of the work", _chains, "small/", precise=True),
)


def keep_still() -> None:
    """Take three lotteries out of the measurement, before anything runs.

    One core may be slower at arithmetic than the next, for a while, so all threads stay on one.
    Whether an output gets memory that the system clears first depends on which thread frees it, so
    memory stays with the process. And whether memory that was freed lies in huge pages depends on
    who had it first, so there are none.
    """
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    system = ctypes.CDLL(None)
    for option, value in ((_ARENA_MAX, 1), (_MMAP_THRESHOLD, 1 << 30), (_TRIM_THRESHOLD, 1 << 30)):
        system.mallopt(option, value)
    if system.prctl(_SET_THP_DISABLE, 1, 0, 0, 0):
        raise OSError("the system does not let a process do without huge pages")


class Race:
    """A model and the same without an operator, in turns. Both read the same inputs: where those
    happen to lie matters, too.
    """

    def __init__(self, case: Case) -> None:
        self._graphs = (case.build(""), case.build(case.leave_out))
        self._engine = Engine(threads=1, precise=case.precise)
        self._stream = Stream(self._engine, StreamFlags.PROFILING)
        self._rows: list[np.ndarray] = []
        self._less: list[float] = []
        self._whole: list[float] = []
        self._batches: list[float] = []
        self._move()
        if (
            len(
                {
                    program.details.reduced_precision
                    for model in self._models
                    for program in model.programs
                }
            )
            > 1
        ):
            raise ValueError(
                f"{case.name}: only one of the two models uses matrix units, so that more than an"
                " operator would be compared"
            )
        self.model, self.inputs = self._models[0], self._inputs[0]
        """The whole model, to be profiled."""

    def _move(self) -> None:
        """Put everything elsewhere: where values happen to lie decides how they meet in the
        caches.
        """
        self._models = [compile_model(graph.copy(), engine=self._engine) for graph in self._graphs]
        inputs = {name: _aligned(value) for name, value in random_inputs(self._graphs[0]).items()}
        self._inputs = [
            {node.name: inputs[node.name] for node in graph.inputs} for graph in self._graphs
        ]
        for number in range(len(self._models)):
            self._time(number)

    def round(self) -> None:
        """Each model runs a few times in a row, so that it meets its own data in the caches and not
        the other's. The whole one is last.
        """
        self._less.append(float(np.median([self._time(1).sum() for _ in range(_ROW)][_WARM:])))
        row = [self._time(0) for _ in range(_ROW)][_WARM:]
        self._rows += row
        self._whole.append(float(np.median([times.sum() for times in row])))
        if len(self._whole) == _BATCH:
            self._batches.append(saved_part(np.array(self._whole), np.array(self._less)))
            self._less.clear()
            self._whole.clear()
            if len(self._batches) % _GROUP == 0:
                self._move()

    def go_on(self, seconds: float) -> None:
        """For so long, and a batch at least."""
        until = time.monotonic() + seconds
        for _ in range(_BATCH):
            self.round()
        while time.monotonic() < until:
            self.round()

    def forget(self) -> None:
        """What was seen so far does not count."""
        self._less.clear()
        self._whole.clear()
        self._batches.clear()

    def _time(self, number: int) -> np.ndarray:
        stream = self._stream
        reset_profiling(stream)
        assert self._models[number].perform(stream, **self._inputs[number]).outputs
        assert stream.profiler is not None
        samples = stream.profiler.samples()
        times = np.zeros(int(samples["step"].max()) + 1, np.int64)
        times[samples["step"]] = samples["end"] - samples["begin"]
        return times

    @property
    def gain(self) -> float:
        """What the second model saves of the first one's time in kernels."""
        return statistics.mean(self._batches)

    @property
    def error(self) -> float:
        """The standard error of that. What disturbs a machine lasts longer than a batch, so that
        groups of batches are compared.
        """
        groups = [
            statistics.mean(self._batches[at : at + _GROUP])
            for at in range(0, len(self._batches) - _GROUP + 1, _GROUP)
        ]
        return statistics.stdev(groups) / math.sqrt(len(groups)) if len(groups) > 2 else math.inf

    @property
    def step_ns(self) -> np.ndarray:
        """The usual time of each step of the whole model."""
        usual: np.ndarray = np.median(self._rows, axis=0).astype(np.int64)
        return usual


def _aligned(value: Value) -> np.ndarray:
    """At a cache line, as within a model: who reads across lines pays for it, and that is whoever
    is first to read an input.
    """
    assert isinstance(value, np.ndarray)
    block = aligned_bytes(value.nbytes).view(value.dtype).reshape(value.shape)
    block[...] = value
    return block


def modelled_share(case: Case, race: Race) -> float:
    """What attribution's model says of the times that the race saw."""
    model, times = race.model, race.step_ns
    (program,) = model.programs
    measured = Measurement(
        runs_ns=(int(times.sum()),),
        residual_ns={},
        step_ns=times,
        step_calls=np.ones_like(times),
        step_waited_ns=np.zeros_like(times),
        step_min_ns=times,
        per_run_ns=times[None],
    )
    toolchain = Toolchain()
    found = assemble(
        model.graph,
        program,
        measured,
        model=case.name,
        engine="cpu",
        threads=1,
        rates=calibrated(toolchain),
    )
    return _share(found, case)


def exact_share(case: Case, race: Race) -> float:
    """What is said when attribution leaves the operator out of its kernel and measures.

    The race goes on meanwhile, a round after every so many runs, and after every batch of the
    measurement for as long as that took: what an operator costs changes from second to second with
    the other users of a machine, and one answer is compared with the other. So the race does not go
    on after it, either.
    """
    model = race.model
    race.round()
    runs = int(np.clip(_PROFILED_NS // race.step_ns.sum(), _LEAST_RUNS, _MOST_RUNS))
    pause = max(1, runs // _PAUSES)

    began, is_leaving_out = time.monotonic(), False

    def meanwhile(doing: str, done: int, _: int) -> None:
        nonlocal began, is_leaving_out
        if doing == "leaving out":
            if not is_leaving_out:
                # Where kernels are measured, what they were like before does not matter.
                race.forget()
            is_leaving_out = True
            race.go_on(time.monotonic() - began)
        elif doing == "running" and done % pause == 0:
            race.round()
        began = time.monotonic()

    found = profile_executable(
        model,
        race.inputs,
        runs=runs,
        exact=lambda _: prepare(model.graph.copy()),
        progress=meanwhile,
    )
    assert found.policy == EXACT
    assert found.attributed_ns + sum(found.residual_ns.values()) == found.wall_ns
    return _share(found, case)


def _share(profile: Profile, case: Case) -> float:
    """Of all time in kernels."""
    own = (
        source.time_ns
        for source in profile.sources
        if source.name == case.leave_out
        or (case.leave_out.endswith("/") and source.name.startswith(case.leave_out))
    )
    return sum(own) / profile.attributed_ns
