"""Choices of kernels: all candidates compute the same, problems are told apart by what matters, and
what was chosen is what is made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.kernels.native import NativeCase, run_native
from tests.kernels.test_conv import Conv
from whence.fusion import find_groups, fuse
from whence.graph import Graph, Node
from whence.graph.builder import GraphBuilder
from whence.kernels.choice import (
    Choice,
    candidates,
    chosen,
    decode_choice,
    encode_choice,
    kind_of,
    lower_choice,
    problem_of,
)
from whence.kernels.conv.bf16x2 import Bf16x2ConvPlan
from whence.kernels.conv.depthwise import SlidePlan
from whence.kernels.conv.direct_program import Conv as ConvMicro
from whence.kernels.conv.plan import ConvPlan
from whence.kernels.conv.winograd import WinogradPlan
from whence.kernels.conv.winograd_program import Winograd
from whence.kernels.group import Group
from whence.kernels.ir import Kernel
from whence.kernels.lower import lower, lower_group
from whence.kernels.product.gemm import GemmPlan
from whence.kernels.product.gemm_program import Gemm
from whence.kernels.tile import AVX2, AVX512, NEON, Tile
from whence.ops.attributes import get_int
from whence.ops.neural.blocked import from_blocked
from whence.passes.equivalence import difference
from whence.types import DType

SAME = (1, 1, 1, 1)


def _anchor(case: NativeCase) -> Node:
    (anchor,) = (node for node in case.graph if node.op == case.anchor)
    return anchor


def _candidates(case: NativeCase) -> tuple[Choice, ...]:
    return candidates(case.group(), _anchor(case), case.tile)


def _problem(case: NativeCase) -> str | None:
    return problem_of(case.group(), _anchor(case), case.tile)


def _by(choice: Choice) -> Callable[[Group, Node, Tile], Kernel]:
    return lambda group, anchor, tile: lower_choice(group, anchor, tile, choice)


def _conv(*args: Any, seed: int = 0, **attrs: Any) -> NativeCase:
    return Conv("conv", *args, **attrs).case(np.random.default_rng(seed))


def _gemm(
    a: tuple[int, ...],
    b: tuple[int, ...],
    op: str = "MatMul",
    *,
    const: bool = True,
    tile: Tile = AVX512,
    **attrs: Any,
) -> NativeCase:
    rng, build = np.random.default_rng(0), GraphBuilder("product")
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in (a, b))
    right = build.const(w) if const else build.input("w", DType.F32, b)
    y = build.op(op, build.input("x", DType.F32, a), right, name="product", **attrs)
    build.output("y", build.op("Relu", y, name="relu"))
    return NativeCase(
        "product", build.finish(), {"x": x} if const else {"x": x, "w": w}, lower_group, tile, op
    )


CASES = {
    "3×3": lambda: _conv((1, 32, 9, 10), 64, (3, 3), pads=SAME, residual=True, activation="Relu"),
    "3×3, avx2": lambda: _conv((1, 16, 7, 9), 40, (3, 3), pads=SAME, tile=AVX2, block=16),
    "3×3, neon": lambda: _conv((1, 8, 5, 6), 12, (3, 3), pads=SAME, tile=NEON, block=4),
    "pointwise": lambda: _conv((1, 40, 5, 20), 72, (1, 1), tail=("Mul", "Tanh")),
    "pointwise, many work items": lambda: _conv((2, 64, 30, 30), 80, (1, 1)),
    "strided": lambda: _conv((2, 16, 15, 15), 48, (3, 3), strides=(2, 2), pads=SAME),
    "grouped": lambda: _conv((1, 32, 8, 8), 64, (3, 3), pads=SAME, group=2),
    "first layer": lambda: _conv(
        (1, 3, 20, 21), 32, (5, 5), strides=(2, 2), pads=(2, 2, 2, 2), plain_input=1
    ),
    "depthwise": lambda: _conv((1, 40, 12, 13), 40, (3, 3), pads=SAME, group=40),
    "depthwise, strided": lambda: _conv(
        (1, 16, 30, 31), 16, (5, 5), strides=(2, 2), pads=(2, 2, 2, 2), group=16
    ),
    "one row": lambda: _gemm((1, 60), (60, 300)),
    "few rows": lambda: _gemm((5, 33), (33, 150)),
    "many rows": lambda: _gemm((2, 37, 50), (50, 90)),
    "turned": lambda: _gemm((41, 40), (70, 40), "Gemm", transB=1, alpha=0.5),
    "packed as it runs": lambda: _gemm((2, 20, 30), (2, 30, 100), const=False),
    "narrow": lambda: _gemm((50, 20), (20, 7)),
    "avx2": lambda: _gemm((19, 20), (20, 40), tile=AVX2),
}


def test_all_candidates_compute_the_same() -> None:
    cases, names = [], []
    for name, make in CASES.items():
        case = make()
        for choice in _candidates(case):
            cases.append(replace(case, name=f"{name}: {choice}", lower=_by(choice)))
            names.append(name)
    assert {name: names.count(name) for name in CASES if names.count(name) < 3} == {}
    expected: dict[str, Any] = {}
    wrong = {}
    for name, case, (made,) in zip(names, cases, run_native(cases), strict=True):
        if name not in expected:
            (expected[name],) = case.graph.run(case.feeds)
        channels = get_int(_anchor(case).attrs, "channels_out", 0)
        gap = difference(
            *(
                from_blocked(value, channels) if channels else value
                for value in (np.asarray(expected[name]), made)
            )
        )
        if not gap <= 1e-5:
            wrong[case.name] = gap
    assert not wrong


def test_the_first_is_what_the_cost_model_takes() -> None:
    for name, make in CASES.items():
        case = make()
        group, anchor = case.group(), _anchor(case)
        usual = lower_group(group, anchor, case.tile)
        assert lower_choice(group, anchor, case.tile, _candidates(case)[0]).body == usual.body, name


def test_which_kinds_there_are() -> None:
    def kinds(case: NativeCase) -> set[str]:
        return {kind_of(choice) for choice in _candidates(case)}

    assert kinds(CASES["3×3"]()) == {"direct", "winograd"}
    assert {
        choice.size for choice in _candidates(CASES["3×3"]()) if isinstance(choice, WinogradPlan)
    } == {2, 4}
    assert kinds(CASES["strided"]()) == {"direct"}
    assert kinds(CASES["depthwise"]()) == {"depthwise"}
    assert kinds(CASES["one row"]()) == {"product"}
    assert kinds(
        _conv((1, 32, 9, 10), 64, (3, 3), pads=SAME, tile=replace(AVX512, transforms=False))
    ) == {"direct"}
    # More columns at once for one row than for many.
    widest = {
        name: max(plan.vectors for plan in _candidates(CASES[name]()) if isinstance(plan, GemmPlan))
        for name in ("one row", "many rows")
    }
    assert widest["one row"] > widest["many rows"]


def test_problems_are_told_apart_by_what_matters() -> None:
    base = _problem(_conv((1, 32, 9, 10), 64, (3, 3), pads=SAME))
    assert base is not None
    same = [
        _conv((1, 32, 9, 10), 64, (3, 3), pads=SAME, seed=1),
        _conv((1, 32, 9, 10), 64, (3, 3), pads=SAME, residual=True, activation="Relu"),
        _conv((1, 32, 9, 10), 64, (3, 3), pads=SAME, bias=False, tail=("Tanh",)),
    ]
    assert {_problem(case) for case in same} == {base}
    others = [
        _conv((1, 32, 9, 11), 64, (3, 3), pads=SAME),
        _conv((2, 32, 9, 10), 64, (3, 3), pads=SAME),
        _conv((1, 32, 9, 10), 80, (3, 3), pads=SAME),
        _conv((1, 32, 9, 10), 64, (3, 3), pads=(0, 0, 0, 0)),
        _conv((1, 32, 9, 10), 64, (3, 3), pads=SAME, strides=(2, 2)),
        _conv((1, 32, 9, 10), 64, (3, 3), pads=SAME, tile=replace(AVX512, cache_bytes=1 << 21)),
        _conv((1, 32, 9, 10), 64, (3, 3), pads=SAME, tile=AVX2),
    ]
    assert len({base, *map(_problem, others)}) == 1 + len(others)
    product = _problem(_gemm((5, 33), (33, 150)))
    assert product == _problem(
        _gemm((5, 33), (33, 150), "FusedMatMul", activation="Relu", trans_a=0)
    )
    assert product != _problem(_gemm((5, 33), (33, 150), const=False))
    assert product != _problem(_gemm((5, 33), (150, 33), "FusedMatMul", trans_b=1))
    assert "conv" not in base


def test_an_operator_without_a_choice() -> None:
    build = GraphBuilder("net")
    y = build.op("Relu", build.input("x", DType.F32, (4, 4)), name="relu")
    build.output("y", y)
    case = NativeCase("relu", build.finish(), {}, lower_group, AVX512, "Relu")
    assert _problem(case) is None
    assert _candidates(case) == ()


def test_what_no_kernel_covers_has_no_candidates() -> None:
    build = GraphBuilder("net")
    x = build.input("x", DType.F64, (4, 4))
    build.output("y", build.op("MatMul", x, x, name="product"))
    assert (
        _candidates(NativeCase("product", build.finish(), {}, lower_group, AVX512, "MatMul")) == ()
    )


@pytest.mark.parametrize(
    "choice",
    [
        ConvPlan(14, 2, 7, True),
        WinogradPlan(4, 7, 4, 28),
        Bf16x2ConvPlan(14, 2),
        SlidePlan(18, 3),
        GemmPlan(9, 3, 90, 64),
    ],
    ids=kind_of,
)
def test_choices_as_json(choice: Choice) -> None:
    record = encode_choice(choice)
    assert decode_choice(record) == choice
    for bad in (
        {**record, "kind": "magic"},
        {**record, "more": 1},
        {name: value for name, value in record.items() if name == "kind"},
        {name: value if name == "kind" else "3" for name, value in record.items()},
        {name: value if name == "kind" else 3.0 for name, value in record.items()},
    ):
        with pytest.raises(ValueError, match=r"choice|type"):
            decode_choice(bad)


def test_only_candidates_are_chosen() -> None:
    case = CASES["3×3"]()
    group, anchor, tile = case.group(), _anchor(case), case.tile
    problem = _problem(case)
    assert problem is not None
    *_, last = _candidates(case)
    assert chosen(group, anchor, tile, {problem: last}) == last
    assert chosen(group, anchor, tile, {"another": last}) is None
    assert chosen(group, anchor, tile, {}) is None
    for impossible in (
        ConvPlan(14, 0, 7, True),
        ConvPlan(1 << 40, 2, 7, True),
        WinogradPlan(3, 7, 4, 28),
        GemmPlan(9, 3, 90, 64),
    ):
        assert chosen(group, anchor, tile, {problem: impossible}) is None
        assert (
            lower_group(group, anchor, tile, {problem: impossible}).body
            == lower_group(group, anchor, tile).body
        )


def _net() -> Graph:
    rng, build = np.random.default_rng(0), GraphBuilder("net")
    y = build.input("x", DType.F32, (40, 50))
    for number, name in enumerate(("one", "two", "three")):
        weights = rng.standard_normal((50, 50) if number < 2 else (50, 20)).astype(np.float32)
        y = build.op("MatMul", y, build.const(weights), name=name)
    build.output("y", y)
    return build.finish()


def test_lowering_takes_what_was_chosen() -> None:
    graph = _net()
    fused = fuse(graph, find_groups(graph, "dominator"))

    def plans(choices: dict[str, Choice]) -> list[tuple[int, int, int]]:
        kernels = [step.kernel for step in lower(fused, AVX512, choices)]
        micros = [kernel.body[0] for kernel in kernels if kernel is not None]
        return [
            (micro.tile.rows, micro.tile.vectors, micro.block_rows)
            for micro in micros
            if isinstance(micro, Gemm)
        ]

    first = next(iter(fused))
    problem = problem_of(
        Group(graph, first.name, first.members, first.inputs, first.outputs), first.anchor, AVX512
    )
    assert problem is not None
    usual = plans({})
    assert usual[0] == usual[1]
    # The first two layers are one problem, the third is another.
    assert plans({problem: GemmPlan(8, 3, 40, 50)}) == [(8, 3, 40), (8, 3, 40), usual[2]]


def test_a_choice_decides_between_algorithms() -> None:
    case = CASES["3×3"]()
    problem = _problem(case)
    assert problem is not None
    made = {
        kind_of(choice): lower_group(
            case.group(), _anchor(case), case.tile, {problem: choice}
        ).body[0]
        for choice in _candidates(case)
    }
    assert isinstance(made["direct"], ConvMicro)
    assert isinstance(made["winograd"], Winograd)
