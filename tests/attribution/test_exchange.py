"""Variants that stand in for steps of a program that runs as a whole. How long they take is not looked at."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.attribution_cases import CASES, Case
from tests.attribution.harness import conv_bn_relu
from whence.api import compile_model, prepare
from whence.attribution import leave_out
from whence.attribution.exchange import Exchange
from whence.attribution.leave_out import measure_savings
from whence.attribution.rounds import Saving
from whence.attribution.source_costs import source_kinds
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.graph.interpreter import bind_inputs
from whence.ops.definition import Value
from whence.passes.equivalence import random_inputs
from whence.runtime.engine import Engine
from whence.types import DType


class Seen:
    """What an exact profile of a graph would measure, not measured: the program runs with every variant alone, and with all that can be together."""

    def __init__(self, graph: Graph, monkeypatch: pytest.MonkeyPatch, threads: int = 1) -> None:
        engine = Engine(threads=threads)
        model = compile_model(graph, engine=engine)
        self.inputs: Sequence[Value] = bind_inputs(graph, random_inputs(graph))
        program = model.program_for(self.inputs)
        self.wanted = model(*self.inputs)
        self.steps: list[int] = []
        self.outputs: list[list[Value]] = []
        self.times: list[np.ndarray] = []

        def look(exchange: Exchange, steps: Sequence[int], *_: object, **__: object) -> list[Saving]:
            self.steps += steps
            together = list({step: variant for variant, step in enumerate(steps)}.values())
            for standing_in in ([], *([variant] for variant in range(len(steps))), together, []):
                exchange.move()
                self.times.append(exchange.run(standing_in))
                self.outputs.append(list(exchange.outputs))
            return [Saving(0.1, 0.0)] * len(steps)

        monkeypatch.setattr(leave_out, "measure", look)
        measured = measure_savings(program, prepare(graph.copy()), engine, self.inputs, [1000] * len(program.steps), source_kinds(graph))
        self.notes = measured.notes

    def check(self) -> None:
        """Whatever stood in for a step, the model's results are right."""
        assert self.steps
        for outputs in self.outputs:
            for found, wanted in zip(outputs, self.wanted if isinstance(self.wanted, tuple) else (self.wanted,), strict=True):
                np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("case", [case for case in CASES if case.leave_out not in ("norm", "erf") or "sum" in case.name], ids=lambda case: case.name)
def test_results_stay_right(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    Seen(case.build(""), monkeypatch).check()


def test_results_stay_right_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    Seen(conv_bn_relu(), monkeypatch, threads=2).check()


def test_every_step_that_runs_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(each for each in CASES if each.name == "ten times the work")
    seen = Seen(case.build(""), monkeypatch)
    assert sorted(set(seen.steps)) == list(range(6))
    assert all((times > 0).all() for times in seen.times)


def test_what_prepares_an_operand_is_spared_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(each for each in CASES if each.leave_out == "Add")
    seen = Seen(case.build(""), monkeypatch)
    seen.check()
    spared = [int((times == 0).sum()) for times in seen.times]
    assert spared[0] == spared[-1] == 0
    assert 1 in spared, "the change of the added operand's layout does not run before the variant"
    assert max(spared) == 1


def test_steps_by_reference_run_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    build = GraphBuilder("mixed")
    x, y = (build.input(name, DType.F32, [64, 64]) for name in "xy")
    before = build.op("Tanh", build.op("Add", x, y, name="add"), name="tanh")
    found = build.op("NonZero", before, name="nonzero")
    after = build.op("Erf", build.op("Mul", before, y, name="mul"), name="erf")
    build.output("where", found)
    build.output("z", after)
    seen = Seen(build.finish(), monkeypatch)
    seen.check()
    assert all((times > 0).all() for times in seen.times)


def test_what_lies_nowhere_is_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    build = GraphBuilder("cast")
    x, y = build.input("x", DType.I32, [64]), build.input("y", DType.F32, [64])
    build.output("z", build.op("Mul", build.op("Cast", x, name="cast", to=int(DType.F32)), y, name="mul"))
    Seen(build.finish(), monkeypatch).check()
