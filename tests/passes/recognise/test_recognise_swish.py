"""SiLU, hard-swish, hard sigmoid and Mish are found as exporters write them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.passes.rewriting import carried, is_left_alone, only, operators, rewrite
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.graph.structure import structure
from whence.passes.recognise.recognise_swish import RecogniseSwish
from whence.types import DType

Form = Callable[[GraphBuilder, Symbol], Symbol]


def number(build: GraphBuilder, value: float, shape: tuple[int, ...] = ()) -> Symbol:
    return build.const(np.full(shape, value, np.float32))


def finished(form: Form) -> Graph:
    build = GraphBuilder()
    build.output("y", form(build, build.input("x", DType.F32, [3, 5])))
    return build.finish()


def silu(build: GraphBuilder, x: Symbol) -> Symbol:
    return build.op("Mul", x, build.op("Sigmoid", x))


def silu_with_alpha(build: GraphBuilder, x: Symbol) -> Symbol:
    return build.op("Mul", build.op("Sigmoid", build.op("Mul", number(build, 1.5, (1,)), x)), x)


@pytest.mark.parametrize(("form", "alpha"), [(silu, 1.0), (silu_with_alpha, 1.5)])
def test_swish(form: Form, alpha: float) -> None:
    graph = finished(form)
    sources = [source.name for source in graph.ledger.sources]
    assert rewrite(graph, RecogniseSwish()) == {"x·sigmoid(αx) = Swish(x, α)": 1}
    assert structure(graph) == structure(
        finished(lambda build, x: build.op("Swish", x, alpha=alpha))
    )
    assert carried(graph, only(graph, "Swish")) == (sources, [])


def test_a_gate_of_another_value_is_no_swish() -> None:
    build = GraphBuilder()
    x, z = build.input("x", DType.F32, [3]), build.input("z", DType.F32, [3])
    build.output("y", build.op("Mul", x, build.op("Sigmoid", z)))
    assert is_left_alone(build.finish(), RecogniseSwish())


def test_a_sigmoid_that_others_read_stays() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [3])
    s = build.op("Sigmoid", x)
    build.output("y", build.op("Mul", x, s))
    build.output("s", s)
    assert is_left_alone(build.finish(), RecogniseSwish())


def test_a_shifted_or_doubled_sigmoid_is_no_swish() -> None:
    assert is_left_alone(
        finished(lambda b, x: b.op("Mul", x, b.op("Sigmoid", b.op("Add", x, number(b, 1.0))))),
        RecogniseSwish(),
    )
    assert is_left_alone(
        finished(lambda b, x: b.op("Mul", x, b.op("Add", b.op("Sigmoid", x), number(b, 1.0)))),
        RecogniseSwish(),
    )
    assert is_left_alone(
        finished(lambda b, x: b.op("Mul", b.op("Mul", x, number(b, 2.0)), b.op("Sigmoid", x))),
        RecogniseSwish(),
    )


def relu6(build: GraphBuilder, x: Symbol, shift: float = 3.0, top: float = 6.0) -> Symbol:
    return build.op(
        "Clip", build.op("Add", x, number(build, shift)), number(build, 0.0), number(build, top)
    )


def divided_last(build: GraphBuilder, x: Symbol) -> Symbol:
    return build.op("Div", build.op("Mul", x, relu6(build, x)), number(build, 6.0, (1,)))


def divided_first(build: GraphBuilder, x: Symbol) -> Symbol:
    return build.op("Mul", build.op("Div", relu6(build, x), number(build, 6.0)), x)


def multiplied(build: GraphBuilder, x: Symbol) -> Symbol:
    return build.op("Mul", build.op("Mul", relu6(build, x), x), number(build, 1 / 6))


def scaled_x(build: GraphBuilder, x: Symbol) -> Symbol:
    return build.op("Mul", build.op("Mul", x, number(build, 1 / 6)), relu6(build, x))


def unit_clip(build: GraphBuilder, x: Symbol) -> Symbol:
    ramp = build.op("Add", build.op("Div", x, number(build, 6.0)), number(build, 0.5))
    return build.op("Mul", x, build.op("Clip", ramp, number(build, 0.0), number(build, 1.0)))


def by_hard_sigmoid(build: GraphBuilder, x: Symbol) -> Symbol:
    return build.op("Mul", build.op("HardSigmoid", x, alpha=0.1666667), x)


@pytest.mark.parametrize(
    "form", [divided_last, divided_first, multiplied, scaled_x, unit_clip, by_hard_sigmoid]
)
def test_hard_swish(form: Form) -> None:
    graph = finished(form)
    sources = [source.name for source in graph.ledger.sources]
    rewrite(graph, RecogniseSwish())
    assert structure(graph) == structure(finished(lambda build, x: build.op("HardSwish", x)))
    assert carried(graph, only(graph, "HardSwish")) == (sources, [])


def test_a_scaled_convolution_in_front_stays_outside() -> None:
    def form(build: GraphBuilder, x: Symbol) -> Symbol:
        x = build.op(
            "Add", build.op("Mul", x, number(build, 1.38, (1,))), number(build, 0.58, (1,))
        )
        return divided_last(build, x)

    graph = finished(form)
    rewrite(graph, RecogniseSwish())
    assert operators(graph) == ["Mul", "Add", "HardSwish"]


def test_other_numbers_are_no_hard_swish() -> None:
    def shifted(build: GraphBuilder, x: Symbol) -> Symbol:
        return build.op("Div", build.op("Mul", x, relu6(build, x, shift=2.5)), number(build, 6.0))

    def cut_higher(build: GraphBuilder, x: Symbol) -> Symbol:
        return build.op("Div", build.op("Mul", x, relu6(build, x, top=8.0)), number(build, 6.0))

    def steep(build: GraphBuilder, x: Symbol) -> Symbol:
        return build.op("Mul", x, build.op("HardSigmoid", x, alpha=0.2))

    for form in (shifted, cut_higher, steep):
        assert is_left_alone(finished(form), RecogniseSwish())


def hard_sigmoid_of_six(build: GraphBuilder, x: Symbol) -> Symbol:
    return build.op("Div", relu6(build, x), number(build, 6.0))


def hard_sigmoid_of_one(build: GraphBuilder, x: Symbol) -> Symbol:
    ramp = build.op("Add", build.op("Mul", x, number(build, 0.2)), number(build, 0.5))
    return build.op("Clip", ramp, number(build, 0.0), number(build, 1.0))


@pytest.mark.parametrize(
    ("form", "alpha"), [(hard_sigmoid_of_six, 1 / 6), (hard_sigmoid_of_one, 0.2)]
)
def test_hard_sigmoid(form: Form, alpha: float) -> None:
    graph = finished(form)
    sources = [source.name for source in graph.ledger.sources]
    rewrite(graph, RecogniseSwish())
    found = only(graph, "HardSigmoid")
    assert operators(graph) == ["HardSigmoid"]
    assert found.attrs == {"alpha": pytest.approx(alpha), "beta": pytest.approx(0.5)}
    assert carried(graph, found) == (sources, [])


def test_a_plain_clip_is_no_hard_sigmoid() -> None:
    assert is_left_alone(
        finished(lambda b, x: b.op("Clip", x, number(b, 0.0), number(b, 1.0))), RecogniseSwish()
    )
    assert is_left_alone(
        finished(
            lambda b, x: b.op(
                "Clip", b.op("Add", x, number(b, 1.0)), number(b, -1.0), number(b, 1.0)
            )
        ),
        RecogniseSwish(),
    )


def test_integers_divide_differently() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.I32, [4])
    clipped = build.op("Clip", x, build.const(np.int32(0)), build.const(np.int32(6)))
    build.output("y", build.op("Div", clipped, build.const(np.int32(6))))
    assert is_left_alone(build.finish(), RecogniseSwish())


def test_squeeze_and_excite_keeps_its_gate() -> None:
    build = GraphBuilder()
    x, z = build.input("x", DType.F32, [3]), build.input("z", DType.F32, [3])
    build.output("y", build.op("Mul", x, hard_sigmoid_of_six(build, z)))
    graph = build.finish()
    rewrite(graph, RecogniseSwish())
    assert operators(graph) == ["HardSigmoid", "Mul"]


def test_mish() -> None:
    graph = finished(lambda build, x: build.op("Mul", x, build.op("Tanh", build.op("Softplus", x))))
    rewrite(graph, RecogniseSwish())
    assert structure(graph) == structure(finished(lambda build, x: build.op("Mish", x)))
    assert carried(graph, only(graph, "Mish"))[0] == ["Softplus_1", "Tanh_2", "Mul_3"]


def test_mish_of_two_values_is_none() -> None:
    build = GraphBuilder()
    x, z = build.input("x", DType.F32, [3]), build.input("z", DType.F32, [3])
    build.output("y", build.op("Mul", z, build.op("Tanh", build.op("Softplus", x))))
    assert is_left_alone(build.finish(), RecogniseSwish())
