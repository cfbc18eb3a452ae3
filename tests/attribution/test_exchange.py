"""Variants that stand in for steps of a program that runs as a whole. How long they take is not
looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.attribution_cases import CASES, Case
from tests.attribution.harness import conv_bn_relu
from tests.cpu_backend import cpu_backend
from tests.runtime.models import parsed
from tests.runtime.test_branches import ASIDE
from whence.api import compile_model, prepare
from whence.attribution import leave_out
from whence.attribution.exchange import Exchange
from whence.attribution.leave_out import measure_savings
from whence.attribution.rounds import Saving
from whence.attribution.source_costs import source_kinds
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.graph.interpreter import bind_inputs
from whence.ops.definition import Value
from whence.passes.equivalence import random_inputs
from whence.runtime.engine import Engine
from whence.types import DType


class Seen:
    """What an exact profile of a graph would measure, not measured: the program runs with every
    variant alone, and with all that can be together.
    """

    def __init__(
        self,
        graph: Graph,
        monkeypatch: pytest.MonkeyPatch,
        threads: int = 1,
        inputs: Sequence[Value] | None = None,
    ) -> None:
        engine = Engine(threads=threads)
        model = compile_model(graph, engine=engine)
        self.inputs = bind_inputs(graph, random_inputs(graph)) if inputs is None else inputs
        program = model.program_for(self.inputs)
        self.wanted = model(*self.inputs)
        self.steps: list[int] = []
        self.outputs: list[list[Value]] = []
        self.times: list[np.ndarray] = []

        def look(
            exchange: Exchange, steps: Sequence[int], *_: object, **__: object
        ) -> list[Saving]:
            self.steps += steps
            together = list({step: variant for variant, step in enumerate(steps)}.values())
            for variants in ([], *([variant] for variant in range(len(steps))), together, []):
                exchange.move()
                self.times.append(exchange.run(variants))
                self.outputs.append(list(exchange.outputs))
            return [Saving(0.1, 0.0)] * len(steps)

        monkeypatch.setattr(leave_out, "measure", look)
        measured = measure_savings(
            program,
            prepare(graph.copy()),
            engine,
            self.inputs,
            [1000] * len(program.steps),
            source_kinds(graph),
        )
        self.notes = measured.notes

    def check(self) -> None:
        """Whatever stood in for a step, the model's results are right."""
        assert self.steps
        for outputs in self.outputs:
            for found, wanted in zip(
                outputs,
                self.wanted if isinstance(self.wanted, tuple) else (self.wanted,),
                strict=True,
            ):
                np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.leave_out not in ("norm", "erf") or "sum" in case.name],
    ids=lambda case: case.name,
)
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
    build.output(
        "z", build.op("Mul", build.op("Cast", x, name="cast", to=int(DType.F32)), y, name="mul")
    )
    Seen(build.finish(), monkeypatch).check()


def aside(*after: str) -> Graph:
    """A model with a reference step that runs only if its second input is false, and with more
    operators behind it.
    """
    return parsed(
        ASIDE.replace("  y = Neg(b)\n", "".join(f"  {each}\n" for each in after))
        if after
        else ASIDE
    )


@pytest.mark.parametrize("taken", [True, False])
def test_a_run_goes_on_after_a_reference_step_under_a_guard(taken: bool) -> None:
    engine, graph = Engine(threads=1), aside()
    model, inputs = (
        compile_model(graph, engine=engine),
        [np.linspace(-1, 1, 4).astype(np.float32), np.array(taken)],
    )
    program = model.program_for(inputs)
    assert program.library is not None
    exchange = Exchange(program, cpu_backend(engine), inputs, program.library, [])
    ran = exchange.run() > 0
    np.testing.assert_array_equal(exchange.outputs[0], model(*inputs))
    asides = [step.number for step in program.plan.references]
    assert asides
    assert (ran[asides] != taken).all()
    assert ran[-1]


@pytest.mark.parametrize("taken", [True, False])
def test_variants_around_a_reference_step_under_a_guard(
    taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = aside("d = Tanh(b)", "e = Mul(d, a)", "y = Softmax(e)")
    seen = Seen(
        graph, monkeypatch, inputs=[np.linspace(-1, 1, 4).astype(np.float32), np.array(taken)]
    )
    seen.check()
    assert max(seen.steps) > 3, "behind it, too"


@pytest.mark.parametrize("taken", [True, False])
def test_a_variant_of_a_step_that_does_not_run_does_not_run(
    taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """sides (float[64,64] x, bool c) => (float[64,64] y) {
      y = If (c) <
        then_branch = yes () => (float[64,64] p) { g = MatMul(x, x) h = Tanh(g) p = Softmax(h) },
        else_branch = no () => (float[64,64] r) { i = Transpose<perm = [1, 0]>(x) j = MatMul(i, x) k = Erf(j) r = Softmax(k) }
      >
    }"""
    given = np.linspace(-1, 1, 4096).astype(np.float32).reshape(64, 64)
    seen = Seen(parsed(text), monkeypatch, inputs=[given, np.array(taken)])
    seen.check()
    ran = [times > 0 for times in seen.times]
    assert not ran[0][seen.steps].all(), "variants of steps on the other side are on offer"
    assert ran[0][seen.steps].any()
    for each in ran:
        np.testing.assert_array_equal(each, ran[0])


@pytest.mark.parametrize("is_first", [True, False])
def test_what_is_overwritten_is_not_read_after_a_variant(
    is_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sum's operand is brought into blocks from memory in which the result of the convolution
    with the sum lies then.
    """
    rng = np.random.default_rng(0)
    build = GraphBuilder("reused")
    x = build.input("x", DType.F32, [1, 32, 16, 16])

    def convolved(value: Symbol, name: str) -> Symbol:
        weights = build.const((rng.standard_normal((32, 32, 3, 3)) * 0.1).astype(np.float32))
        return build.op("Conv", value, weights, name=name, kernel_shape=(3, 3), pads=(1, 1, 1, 1))

    soft = build.op("Softmax", x, name="soft", axis=-1) if is_first else None
    first = convolved(x, "first")
    soft = soft or build.op("Softmax", x, name="soft", axis=-1)
    total = build.op(
        "Relu", build.op("Add", convolved(first, "second"), soft, name="add"), name="relu"
    )
    build.output("z", convolved(total, "third"))
    seen = Seen(build.finish(), monkeypatch)
    seen.check()
    assert all((times > 0).all() for times in seen.times), (
        "its change of layout runs before the variant"
    )
