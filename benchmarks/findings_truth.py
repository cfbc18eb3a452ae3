"""Are findings right? The prize that `whence advise` names, beside what mending the fault saves.

    python -m benchmarks.findings_truth [--case NAME] [--threads 2] [--json out.json]

Each case is a model with one known fault, and the same model mended. Both run in turns, and the
medians count; the faulty one is profiled, and its first finding must be of the fault, with a prize
within 30 % of what mending saves. The exit code is 1 if one is not. Only a machine that does
nothing else gives an answer, so the machine's rates are measured again if something else used its
cores when they were.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import whence
from whence.api import machine_rates
from whence.calibration.measure import calibrate
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.passes.equivalence import random_inputs
from whence.runtime.engine import Engine
from whence.types import DType

_WITHIN = 0.3
# Of a model without a fault, what a finding may promise.
_NOTHING = 0.1
_ROUNDS, _ROW = 40, 4


@dataclass(frozen=True)
class Case:
    """`build(True)` is the mended graph. Without a rule there is no fault."""

    name: str
    rule: str
    build: Callable[[bool], Graph]


@dataclass(frozen=True)
class Result:
    case: str
    first: str
    """The rule of the first finding."""
    prize: float
    """As a part of a run,"""
    saved: float
    """and what mending saves."""
    right: bool


def _graph(build: Callable[[GraphBuilder], Symbol]) -> Graph:
    graph = GraphBuilder("case")
    graph.output("y", build(graph))
    return graph.finish()


def _weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _few_items(mended: bool) -> Graph:
    """As many running sums of as many numbers, in one sequence or in many."""

    def build(graph: GraphBuilder) -> Symbol:
        shape = [64, 1 << 14] if mended else [1, 1 << 20]
        return graph.op("CumSum", graph.input("x", DType.F32, shape), graph.const(np.array(1)))

    return _graph(build)


def _reference(mended: bool) -> Graph:
    """An operator without a kernel, or one with a kernel that makes as much."""

    def build(graph: GraphBuilder) -> Symbol:
        x = graph.op("Relu", graph.input("x", DType.F32, [16, 64, 64]))
        axes = graph.const(np.array([1, 2]))
        return graph.op("ReduceSum", x, axes, keepdims=0) if mended else graph.op("Det", x)

    return _graph(build)


def _transpose(mended: bool) -> Graph:
    """A softmax of what was transposed, or of what is in that order already."""

    def build(graph: GraphBuilder) -> Symbol:
        # Small: a large result is new memory in every call, which costs more than the transpose.
        x = graph.input("x", DType.F32, [4096, 96] if mended else [96, 4096])
        turned = x if mended else graph.op("Transpose", x, perm=(1, 0))
        return graph.op("Softmax", turned, axis=-1)

    return _graph(build)


def _three_channels(mended: bool) -> Graph:
    """A filter of a picture with 3 channels, which leaves most of a vector empty; or space folded
    into depth: of 16 pixels each, the same filter has 48 channels and 16 times the products.
    """

    def build(graph: GraphBuilder) -> Symbol:
        channels, size = (48, 56) if mended else (3, 224)
        x = graph.input("x", DType.F32, [1, channels, size, size])
        weights = graph.const(_weights(channels, channels, 3, 3))
        # Of the large result only a mean is kept: to change its layout would be another fault.
        return graph.op("GlobalAveragePool", graph.op("Conv", x, weights, pads=(1, 1, 1, 1)))

    return _graph(build)


def _first_convolution(_: bool) -> Graph:
    """A convolution with 3 channels in and 32 out, as most models begin with: vectors go along the
    channels out, so that it is no fault, and nothing must be promised.
    """

    def build(graph: GraphBuilder) -> Symbol:
        x = graph.input("x", DType.F32, [1, 3, 224, 224])
        weights = graph.const(_weights(32, 3, 3, 3))
        return graph.op("GlobalAveragePool", graph.op("Conv", x, weights, pads=(1, 1, 1, 1)))

    return _graph(build)


def _tiny(mended: bool) -> Graph:
    """Many softmaxes of a few numbers, or two of as many numbers in all."""

    def build(graph: GraphBuilder) -> Symbol:
        x = graph.input("x", DType.F32, [4, 800 if mended else 8])
        for number in range(2 if mended else 200):
            if mended and number == 1:
                x = graph.op("Reshape", x, graph.const(np.array([400, 8])))
            x = graph.op("Softmax", x, axis=number % 2)
        return x

    return _graph(build)


def _chain(mended: bool) -> Graph:
    """Factors that depend on all that is scaled, between each two; or factors that are given."""

    def build(graph: GraphBuilder) -> Symbol:
        x = graph.input("x", DType.F32, [2048, 4096])
        for number in range(4):
            factor = (
                graph.input(f"factor{number}", DType.F32, [2048, 1])
                if mended
                else graph.op("ReduceMax", x, graph.const(np.array([0])), keepdims=1)
            )
            x = graph.op("Mul", x, factor)
        return x

    return _graph(build)


CASES = (
    Case("too few work items", "few_work_items", _few_items),
    Case("an operator in reference", "reference_operators", _reference),
    Case("a transpose", "data_movement", _transpose),
    Case("3 channels", "low_share_of_peak", _three_channels),
    Case("none: 3 channels in, 32 out", "", _first_convolution),
    Case("tiny kernels", "tiny_kernels", _tiny),
    Case("an elementwise chain", "elementwise_chains", _chain),
)


def measure(case: Case, threads: int) -> Result:
    engine = Engine(threads=threads)
    graphs = [case.build(mended) for mended in (False, True)]
    models = [whence.compile(graph, engine=engine) for graph in graphs]
    inputs = [random_inputs(graph) for graph in graphs]

    def row(number: int) -> float:
        times = []
        for _ in range(_ROW):
            began = time.perf_counter_ns()
            models[number](**inputs[number])
            times.append(time.perf_counter_ns() - began)
        return statistics.median(times[1:])

    rounds = [(row(0), row(1)) for _ in range(_ROUNDS)]
    faulty, mended = (statistics.median(each) for each in zip(*rounds, strict=True))
    profile = whence.profile(models[0], inputs[0], runs=100)
    first = next((each for each in profile.findings if each.prize_ns), None)
    prize = first.prize_ns / profile.unprofiled_ns if first is not None else 0.0
    saved = 1 - mended / faulty
    right = (
        prize <= _NOTHING
        if not case.rule
        else first is not None
        and first.rule == case.rule
        and abs(prize - saved) <= _WITHIN * max(saved, 1e-9)
    )
    return Result(case.name, first.rule if first is not None else "", prize, saved, right)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", help="only those whose names this is a part of", default="")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    engine = Engine(threads=options.threads)
    rates = machine_rates(engine)
    if rates is not None and rates.disturbed:
        calibrate(engine.backend.toolchain)
    results = []
    print(f"{'fault':28} {'first finding':24} {'prize':>8} {'saved':>8}")
    for case in CASES:
        if options.case not in case.name:
            continue
        found = measure(case, options.threads)
        verdict = "ok" if found.right else "off"
        print(
            f"{found.case:28} {found.first:24} {found.prize:8.1%} {found.saved:8.1%}  {verdict}",
            flush=True,
        )
        results.append(found)
    if options.json:
        content = json.dumps([asdict(each) for each in results], indent=1)
        options.json.write_text(content + "\n", encoding="utf-8")
    sys.exit(not all(each.right for each in results))


if __name__ == "__main__":
    main()
