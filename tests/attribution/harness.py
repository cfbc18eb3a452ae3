"""Programs of graphs written by hand, and profiles of them from made-up times."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whence.api import prepare
from whence.attribution.assemble import Measurement, assemble
from whence.attribution.profile import Profile
from whence.attribution.rows import Event
from whence.backends.cpu.generator import build_program
from whence.building.nominal_rates import nominal_rates
from whence.building.program import Program
from whence.codegen.target import Target
from whence.codegen.toolchain import Toolchain
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.types import DType

RATES = nominal_rates(Target.named("x86_64-avx512"), threads=2)
"""Of a machine that is the same wherever tests run."""


def program_of(graph: Graph) -> Program:
    """Compiled in full, except that nothing is linked: these tests do not run it. The graph is left
    as it is.
    """
    return build_program(prepare(graph.copy()), Toolchain(), load=False)


def measured(
    program: Program,
    step_ns: Sequence[int],
    runs: int = 1,
    residual_ns: dict[str, int] | None = None,
) -> Measurement:
    """Made up: each step takes its time, one after the other, in `runs` equal runs; the residuals
    are added to the wall time.
    """
    times = np.array(step_ns, np.int64)
    residual = residual_ns if residual_ns is not None else {"dispatch": 0, "idle": 0, "profiler": 0}
    wall = int(times.sum()) + sum(residual.values())
    walls = [wall // runs] * runs
    walls[0] += wall - sum(walls)
    ends = np.cumsum(times // runs)
    timeline = tuple(
        Event(step.number, int(end - time // runs), int(end))
        for step, time, end in zip(program.steps, times.tolist(), ends.tolist(), strict=True)
    )
    return Measurement(
        runs_ns=tuple(walls),
        residual_ns=residual,
        step_ns=times,
        step_calls=np.full(len(times), runs),
        step_waited_ns=np.zeros_like(times),
        step_min_ns=times // runs,
        per_run_ns=np.tile(times // runs, (runs, 1)),
        timeline=timeline,
        timeline_ns=walls[0],
        overhead_ratio=0.003,
    )


def profile_of(
    graph: Graph,
    step_ns: int | Sequence[int] = 1_000_000,
    runs: int = 1,
    residual_ns: dict[str, int] | None = None,
) -> Profile:
    """A profile in which each kernel took `step_ns`."""
    program = program_of(graph)
    times = [step_ns] * len(program.steps) if isinstance(step_ns, int) else step_ns
    return assemble(
        graph,
        program,
        measured(program, times, runs, residual_ns),
        model="made/up.onnx",
        engine="cpu",
        threads=2,
        rates=RATES,
    )


def shares(profile: Profile) -> dict[str, float]:
    """By operator: its part of what is in kernels."""
    return {row.name: row.time_ns / profile.attributed_ns for row in profile.sources}


def conv_bn_relu(name: str = "bn") -> Graph:
    """Conv, BatchNormalization, Relu, and an Identity, under names with modules in them."""
    rng = np.random.default_rng(0)
    build = GraphBuilder("tiny")
    x = build.input("x", DType.F32, [1, 16, 12, 12])
    y = build.op(
        "Conv",
        x,
        build.const(rng.standard_normal((16, 16, 3, 3)).astype(np.float32)),
        name="/net/layer1/conv",
    )
    stats = [build.const(rng.uniform(0.5, 1, 16).astype(np.float32)) for _ in range(4)]
    y = build.op("BatchNormalization", y, *stats, name=f"/net/layer1/{name}")
    y = build.op("Relu", y, name="/net/layer1/relu")
    build.output("y", build.op("Identity", y, name="/net/same"))
    return build.finish()
