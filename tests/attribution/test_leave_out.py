"""Leaving operators out: which kernels are made, and what is done with the differences. How long
they take is in `test_truth`.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from benchmarks.attribution_cases import CASES
from tests.attribution.harness import conv_bn_relu, profile_of, program_of, shares
from whence.api import compile_model, prepare, profile_model
from whence.attribution import leave_out, profile_executable
from whence.attribution.assemble import assemble
from whence.attribution.leave_out import Measured, enough_for, measure_savings, nest_of
from whence.attribution.policy import EXACT, MODELLED
from whence.attribution.source_costs import source_kinds
from whence.attribution.split import Savings
from whence.attribution.variants import Nest, SupernodePart, left_outs, variant
from whence.building.program import Program
from whence.errors import InputError, UnsupportedError
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.graph.interpreter import bind_inputs
from whence.kernels.choice import candidates, problem_of
from whence.kernels.group import Group
from whence.kernels.ir import Fn, Load, Op, Store, walk
from whence.kernels.tile import AVX512
from whence.passes.equivalence import random_inputs
from whence.runtime.engine import Engine
from whence.types import DType


def nests(graph: Graph) -> list[Nest]:
    program, prepared = program_of(graph), prepare(graph.copy())
    return [
        nest for step in program.steps if (nest := nest_of(program, prepared, step)) is not None
    ]


def functions(nest: Nest, left_out: int | SupernodePart | None) -> set[Fn]:
    """What a variant computes. Its kernel is a plain loop nest."""
    found: set[Fn] = set()
    stack = list(variant(nest, AVX512, left_out).kernel.body)
    while stack:
        part = stack.pop()
        stack += getattr(part, "body", ())
        if isinstance(part, Store):
            found |= {each.fn for each in walk(part.value) if isinstance(each, Op)}
    return found


def test_a_member_is_left_out_of_the_arithmetic_and_its_operand_stays() -> None:
    build = GraphBuilder("three")
    x, y = (build.input(name, DType.F32, [64, 64]) for name in "xy")
    total = build.op("Add", x, y, name="add")
    build.output("z", build.op("Exp", build.op("Neg", total, name="neg"), name="exp"))
    (nest,) = nests(build.finish())
    graph = nest.graph
    names = {graph[number].op: number for number in nest.nodes}
    assert graph[nest.anchor].op == "Add"
    assert set(left_outs(nest)) == {names["Neg"], names["Exp"]}
    assert functions(nest, None) >= {Fn.ADD, Fn.NEG, Fn.EXP}
    assert Fn.NEG not in functions(nest, names["Neg"]) >= {Fn.ADD, Fn.EXP}
    assert Fn.EXP not in functions(nest, names["Exp"]) >= {Fn.ADD, Fn.NEG}
    for left_out in left_outs(nest):
        assert set(variant(nest, AVX512, left_out).inputs) == set(variant(nest, AVX512).inputs)
    with pytest.raises(UnsupportedError, match="nothing without its anchor"):
        variant(nest, AVX512, nest.anchor)


def test_what_only_a_left_out_member_reads_goes_with_it() -> None:
    build = GraphBuilder("join")
    x, y, z = (build.input(name, DType.F32, [64, 64]) for name in "xyz")
    first = build.op("Mul", x, y, name="first")
    build.output("o", build.op("Add", first, build.op("Exp", z, name="exp"), name="join"))
    (nest,) = nests(build.finish())
    names = {nest.graph[number].op: number for number in nest.nodes}
    assert nest.graph[nest.anchor].op == "Add"
    whole, without = variant(nest, AVX512), variant(nest, AVX512, names["Mul"])
    assert len(whole.inputs) == 3
    assert len(without.inputs) == 2, "the other operand of the product is not read any more"
    assert without.dropped == {names["Mul"]}


def test_a_shape_that_changes_is_stood_in_for_by_a_view() -> None:
    build = GraphBuilder("turn")
    x, y = build.input("x", DType.F32, [8, 16]), build.input("y", DType.F32, [16, 8])
    build.output(
        "z", build.op("Add", build.op("Transpose", x, name="turn", perm=(1, 0)), y, name="add")
    )
    (nest,) = nests(build.finish())
    (turn,) = left_outs(nest)
    found = variant(nest, AVX512, turn)
    loads = [
        each
        for part in _stores(found.kernel.body)
        for each in walk(part.value)
        if isinstance(each, Load)
    ]
    assert len({load.buffer for load in loads}) == 2
    assert len({load.index for load in loads}) == 1, "both operands are read in order"


def _stores(body: object) -> list[Store]:
    found: list[Store] = []
    stack = list(body) if isinstance(body, tuple) else []
    while stack:
        part = stack.pop()
        stack += getattr(part, "body", ())
        if isinstance(part, Store):
            found.append(part)
    return found


def test_a_type_that_changes_is_read_from_memory_instead() -> None:
    build = GraphBuilder("cast")
    x, y = build.input("x", DType.I32, [64]), build.input("y", DType.F32, [64])
    build.output(
        "z", build.op("Mul", build.op("Cast", x, name="cast", to=int(DType.F32)), y, name="mul")
    )
    (nest,) = nests(build.finish())
    (cast,) = left_outs(nest)
    found = variant(nest, AVX512, cast)
    assert [buffer.dtype for buffer in found.kernel.params] == [DType.F32] * 3


def test_parts_of_a_supernode_are_left_out_by_what_makes_them() -> None:
    case = next(each for each in CASES if each.leave_out == "Add")
    found = [nest for nest in nests(case.build("")) if nest.graph[nest.anchor].op == "BlockedConv"]
    (nest,) = found
    assert set(left_outs(nest)) == {SupernodePart.ACTIVATION, SupernodePart.ADDED}
    assert (
        len(variant(nest, AVX512).inputs)
        == len(variant(nest, AVX512, SupernodePart.ADDED).inputs) + 1
    )
    assert (
        variant(nest, AVX512).kernel.body
        != variant(nest, AVX512, SupernodePart.ACTIVATION).kernel.body
    )


def test_what_was_tuned_is_what_is_left_out_of() -> None:
    case = next(each for each in CASES if each.leave_out == "Add")
    (nest,) = (
        nest for nest in nests(case.build("")) if nest.graph[nest.anchor].op == "BlockedConv"
    )
    anchor = nest.graph[nest.anchor]
    inputs = tuple(dict.fromkeys(ref for ref in anchor.inputs if ref is not None))
    group = Group(nest.graph, "whole", (anchor,), inputs, (anchor.ref(),))
    problem, (usual, *_, other) = (
        problem_of(group, anchor, AVX512),
        candidates(group, anchor, AVX512),
    )
    assert problem is not None
    for part in (None, SupernodePart.ACTIVATION, SupernodePart.ADDED):
        plain, tuned, same = (
            variant(nest, AVX512, part, choices).kernel.body
            for choices in ({}, {problem: other}, {problem: usual})
        )
        assert plain == same != tuned


@pytest.mark.parametrize("halves", [False, True])
def test_whether_matrix_units_round_is_not_decided_again(halves: bool) -> None:
    """It was for the model as a whole, by its outputs. A variant is compared with its kernel, so
    both make their products the same way.
    """
    case = next(each for each in CASES if each.leave_out == "Sigmoid")
    (nest,) = (
        nest for nest in nests(case.build("")) if nest.graph[nest.anchor].op == "BlockedConv"
    )
    tile = dataclasses.replace(AVX512, bf16x2=halves)
    for part in (None, SupernodePart.ACTIVATION):
        assert variant(nest, tile, part).kernel.reduced_precision is halves


def test_measured_savings_are_what_is_split_by() -> None:
    build = GraphBuilder("two")
    x, y = (build.input(name, DType.F32, [64, 64]) for name in "xy")
    build.output("z", build.op("Erf", build.op("Add", x, y, name="add"), name="erf"))
    graph = build.finish()
    program = program_of(graph)
    (step,) = program.steps
    _, erf = step.nodes
    measured = profile_of(graph, [1_000_001])
    assert measured.policy == MODELLED
    from tests.attribution.harness import RATES
    from tests.attribution.harness import measured as times

    for saved, share in ((25, 0.25), (100, 1.0), (900, 1.0), (-3, 0.0)):
        left_out = Measured({0: Savings(100, {erf: saved}, {})}, ("a note",), {0: 0.02})
        found = assemble(
            graph,
            program,
            times(program, [1_000_001]),
            model="m",
            engine="cpu",
            threads=1,
            rates=RATES,
            left_out=left_out,
        )
        assert shares(found)["erf"] == pytest.approx(share, abs=1e-6)
        assert found.policy == EXACT
        assert found.notes == ("a note",)
        assert found.kernels[0].error == 0.02
        assert {row.name: row.error_ns for row in found.sources if row.time_ns} == {
            row.name: 20_000 for row in found.sources if row.time_ns
        }
        assert found.attributed_ns + sum(found.residual_ns.values()) == found.wall_ns


def test_kernels_are_measured_where_they_are_and_each_has_its_part() -> None:
    build = GraphBuilder("twice")
    value = build.input("x", DType.F32, [128, 64])
    for number in range(2):
        value = build.op(
            "MatMul", value, build.const(np.ones((64, 64), np.float32)), name=f"product{number}"
        )
        value = build.op("Tanh", value, name=f"tanh{number}")
    build.output("y", value)
    graph = build.finish()
    engine = Engine(threads=1)
    program = compile_model(graph, engine=engine).prepare_static()
    seen: list[tuple[str, int, int]] = []
    inputs, times = [np.ones((128, 64), np.float32)], [1000] * len(program.steps)
    found = measure_savings(
        program,
        prepare(graph.copy()),
        engine,
        inputs,
        times,
        source_kinds(graph),
        lambda *what: seen.append(what),
    )
    assert set(found.savings) == set(found.errors) == {step.number for step in program.steps}
    assert [note for note in found.notes if "standard error" not in note] == []
    first, second = found.savings.values()
    assert first.whole == second.whole > 0
    assert set(first.sources) != set(second.sources)
    assert len(first.sources) == len(second.sources) == 1
    assert seen[-1][0] == "leaving out"
    assert seen[-1][1] == seen[-1][2] > 0


@pytest.mark.parametrize(
    ("part", "error"),
    [(1.0, 0.01), (0.1, 0.01), (0.05, 0.02), (0.03, 0.03), (0.001, 0.03), (0.0, 0.03)],
)
def test_a_small_kernel_need_not_be_known_as_well(part: float, error: float) -> None:
    assert enough_for(part) == pytest.approx(error, rel=0.15)


def test_code_that_does_not_change_saves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("there is nothing to measure")

    monkeypatch.setattr(leave_out, "measure", refuse)
    build = GraphBuilder("reshape")
    x = build.input("x", DType.F32, [64, 64])
    build.output(
        "z",
        build.op(
            "Exp",
            build.op("Reshape", x, build.const(np.array([32, 128])), name="reshape"),
            name="exp",
        ),
    )
    found = profile_model(build.finish(), runs=1, threads=1, exact=True)
    assert shares(found) == {"reshape": 0, "exp": 1}


def test_a_program_of_other_code_is_modelled() -> None:
    case = CASES[0]
    graph = case.build("")
    engine = Engine(threads=1)
    program = compile_model(graph, engine=engine).prepare_static()
    (step,) = program.steps
    other = dataclasses.replace(step, symbol="add_erf_0123456789abcdef")
    program = Program(
        program.plan,
        program.packed,
        program.library,
        dataclasses.replace(program.details, steps=(other,)),
    )
    found = measure_savings(program, prepare(graph.copy()), engine, [], [1000], source_kinds(graph))
    assert found.savings == {}
    (note,) = found.notes
    assert note.endswith(
        "it is modelled, not measured: what would be compiled for it now is not what runs"
    )


def test_what_does_not_run_is_modelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leave_out, "measure", lambda _, steps, *__, **___: [None] * len(steps))
    graph, engine = conv_bn_relu(), Engine(threads=1)
    model, inputs = compile_model(graph, engine=engine), bind_inputs(graph, random_inputs(graph))
    program = model.program_for(inputs)
    found = measure_savings(
        program,
        prepare(graph.copy()),
        engine,
        inputs,
        [1000] * len(program.steps),
        source_kinds(graph),
    )
    assert not found.savings
    assert not found.errors
    assert any(
        note.endswith("it is modelled, not measured: it did not run") for note in found.notes
    )


def test_where_nothing_takes_time_there_is_nothing_to_measure() -> None:
    build = GraphBuilder("empty")
    x = build.input("x", DType.F32, [0, 64])
    build.output("y", build.op("Erf", build.op("Add", x, x, name="add"), name="erf"))
    found = profile_model(build.finish(), runs=2, threads=1, exact=True)
    assert [each.time_ns for each in found.sources] == [0, 0]


def test_what_only_the_model_can_tell_apart_is_listed() -> None:
    build = GraphBuilder("swish")
    x = build.input("x", DType.F32, [64, 64])
    build.output("y", build.op("Mul", x, build.op("Sigmoid", x, name="sigmoid"), name="mul"))
    found = profile_model(build.finish(), runs=1, threads=1, exact=True)
    assert found.notes == (
        "kernel 0 fuse_swish: Swish stands for 2 operators, between which it is split by the model",
    )


def test_another_graph_is_refused() -> None:
    program = program_of(conv_bn_relu())
    other = GraphBuilder("other")
    other.output("y", other.op("Exp", other.input("x", DType.F32, [4]), name="exp"))
    with pytest.raises(UnsupportedError, match="not the one of the program"):
        measure_savings(
            program, prepare(other.finish()), Engine(threads=1), [], [1000] * len(program.steps), {}
        )


def test_an_exact_profile_adds_up_and_says_how_it_was_made() -> None:
    seen = []
    executable = compile_model(conv_bn_relu(), threads=1)
    found = profile_executable(
        executable,
        runs=3,
        warmup=0,
        exact=lambda _: prepare(conv_bn_relu()),
        progress=lambda doing, *_: seen.append(doing),
    )
    assert found.policy == EXACT
    assert "leaving out" in seen
    assert found.attributed_ns + sum(found.residual_ns.values()) == found.wall_ns
    assert all(
        sum(part.time_ns for part in kernel.origin) == kernel.time_ns for kernel in found.kernels
    )


def test_open_shapes_and_compiled_models() -> None:
    build = GraphBuilder("open")
    x = build.input("x", DType.F32, ["n", 64])
    build.output(
        "y",
        build.op(
            "Relu",
            build.op("MatMul", x, build.const(np.ones((64, 64), np.float32)), name="product"),
            name="relu",
        ),
    )
    graph = build.finish()
    found = profile_model(
        graph, {"x": np.ones((32, 64), np.float32)}, runs=2, threads=1, exact=True
    )
    assert found.policy == EXACT
    with pytest.raises(InputError, match="not a compiled model"):
        profile_model(compile_model(graph, threads=1), runs=1, exact=True)
