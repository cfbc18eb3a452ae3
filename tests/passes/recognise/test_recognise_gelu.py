"""GELU is found in every order its factors are written in, and nowhere else."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from tests.passes.rewriting import carried, is_left_alone, only, operators, rewrite
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.graph.structure import structure
from whence.passes.recognise.recognise_gelu import RecogniseGelu
from whence.types import DType

ROOT = math.sqrt(2 / math.pi)


def number(
    build: GraphBuilder, value: float, dtype: type = np.float32, shape: tuple[int, ...] = ()
) -> Symbol:
    return build.const(np.full(shape, value, dtype))


def finished(form: Callable[[GraphBuilder, Symbol], Symbol], dtype: DType = DType.F32) -> Graph:
    build = GraphBuilder()
    x = build.op("Neg", build.input("x", dtype, [2, 5]), name="before")
    build.output("y", form(build, x))
    return build.finish()


def expected(approximate: str) -> str:
    return structure(finished(lambda build, x: build.op("Gelu", x, approximate=approximate)))


def cdf(build: GraphBuilder, x: Symbol) -> Symbol:
    """1 + erf(x/√2)"""
    u = build.op("Div", x, number(build, 1.4142135381698608))
    return build.op("Add", build.op("Erf", u), number(build, 1.0))


def half_first(build: GraphBuilder, x: Symbol) -> Symbol:
    return build.op("Mul", build.op("Mul", x, number(build, 0.5)), cdf(build, x))


def half_last(build: GraphBuilder, x: Symbol) -> Symbol:
    return build.op("Mul", build.op("Mul", x, cdf(build, x)), number(build, 0.5))


def half_on_the_sum(build: GraphBuilder, x: Symbol) -> Symbol:
    return build.op("Mul", x, build.op("Mul", number(build, 0.5), cdf(build, x)))


def half_by_division(build: GraphBuilder, x: Symbol) -> Symbol:
    return build.op("Div", build.op("Mul", cdf(build, x), x), number(build, 2.0, shape=(1,)))


def half_inside(build: GraphBuilder, x: Symbol) -> Symbol:
    e = build.op("Erf", build.op("Mul", number(build, 0.7071067690849304), x))
    return build.op(
        "Mul", build.op("Add", build.op("Mul", e, number(build, 0.5)), number(build, 0.5)), x
    )


def complement(build: GraphBuilder, x: Symbol) -> Symbol:
    e = build.op("Erf", build.op("Mul", build.op("Neg", x), number(build, math.sqrt(0.5))))
    return build.op(
        "Mul", build.op("Sub", number(build, 1.0), e), build.op("Mul", x, number(build, 0.5))
    )


@pytest.mark.parametrize(
    "form", [half_first, half_last, half_on_the_sum, half_by_division, half_inside, complement]
)
def test_exact_form(form: Callable[[GraphBuilder, Symbol], Symbol]) -> None:
    graph = finished(form)
    sources = [source.name for source in graph.ledger.sources if source.name != "before"]
    assert rewrite(graph, RecogniseGelu()) == {"x·½(1 + erf(x/√2)) = Gelu(x)": 1}
    assert structure(graph) == expected("none")
    assert carried(graph, only(graph, "Gelu")) == (sources, [])


def by_cube(build: GraphBuilder, x: Symbol) -> Symbol:
    """√(2/π)·(x + 0.044715·x³)"""
    cubic = build.op("Mul", build.op("Pow", x, number(build, 3.0)), number(build, 0.044715))
    return build.op("Mul", build.op("Add", x, cubic), number(build, ROOT))


def by_products(build: GraphBuilder, x: Symbol) -> Symbol:
    cubic = build.op("Mul", build.op("Mul", build.op("Mul", x, x), x), number(build, 0.044715))
    return build.op("Mul", number(build, ROOT), build.op("Add", cubic, x))


def by_horner(build: GraphBuilder, x: Symbol) -> Symbol:
    square = build.op("Mul", x, build.op("Mul", x, number(build, 0.044715)))
    return build.op(
        "Mul", build.op("Mul", x, number(build, ROOT)), build.op("Add", square, number(build, 1.0))
    )


def expanded(build: GraphBuilder, x: Symbol) -> Symbol:
    square = build.op(
        "Mul", number(build, 0.035677408136300125), build.op("Pow", x, number(build, 2.0))
    )
    return build.op("Mul", x, build.op("Add", square, number(build, 0.7978845608028654)))


def tanh_gelu(
    build: GraphBuilder, x: Symbol, argument: Callable[[GraphBuilder, Symbol], Symbol]
) -> Symbol:
    bracket = build.op("Add", number(build, 1.0), build.op("Tanh", argument(build, x)))
    return build.op("Mul", number(build, 0.5), build.op("Mul", x, bracket))


@pytest.mark.parametrize("argument", [by_cube, by_products, by_horner, expanded])
def test_tanh_form(argument: Callable[[GraphBuilder, Symbol], Symbol]) -> None:
    graph = finished(lambda build, x: tanh_gelu(build, x, argument))
    sources = [source.name for source in graph.ledger.sources if source.name != "before"]
    rewrite(graph, RecogniseGelu())
    assert structure(graph) == expected("tanh")
    assert carried(graph, only(graph, "Gelu")) == (sources, [])


def test_sigmoid_form() -> None:
    def form(build: GraphBuilder, x: Symbol) -> Symbol:
        return build.op(
            "Mul", x, build.op("Sigmoid", build.op("Mul", by_cube(build, x), number(build, 2.0)))
        )

    graph = finished(form)
    rewrite(graph, RecogniseGelu())
    assert structure(graph) == expected("tanh")


def test_all_orders_of_three_factors() -> None:
    for first, second, third in itertools.permutations(range(3)):

        def form(
            build: GraphBuilder, x: Symbol, order: tuple[int, ...] = (first, second, third)
        ) -> Symbol:
            factors = [x, number(build, 0.5), cdf(build, x)]
            left = build.op("Mul", factors[order[0]], factors[order[1]])
            return build.op("Mul", left, factors[order[2]])

        graph = finished(form)
        rewrite(graph, RecogniseGelu())
        assert structure(graph) == expected("none")


def test_x_may_itself_be_a_scaled_value() -> None:
    graph = finished(lambda build, x: half_last(build, build.op("Mul", x, number(build, 3.0))))
    rewrite(graph, RecogniseGelu())
    assert operators(graph) == ["Neg", "Mul", "Gelu"]


def test_half_precision() -> None:
    def form(build: GraphBuilder, x: Symbol) -> Symbol:
        e = build.op("Erf", build.op("Div", x, number(build, 1.4142, np.float16)))
        return build.op(
            "Mul",
            build.op("Mul", x, number(build, 0.5, np.float16)),
            build.op("Add", e, number(build, 1.0, np.float16)),
        )

    graph = finished(form, DType.F16)
    rewrite(graph, RecogniseGelu(), tolerance=3e-3)
    assert operators(graph) == ["Neg", "Gelu"]


def test_wide_in_between() -> None:
    def form(build: GraphBuilder, x: Symbol) -> Symbol:
        wide = build.op("Cast", x, to=int(DType.F32))
        return build.op("Cast", half_last(build, wide), to=int(DType.F16))

    graph = finished(form, DType.F16)
    rewrite(graph, RecogniseGelu(), tolerance=3e-3)
    assert operators(graph) == ["Neg", "Cast", "Gelu", "Cast"]


def test_an_inner_value_that_others_read() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [4])
    e = build.op("Erf", build.op("Mul", x, number(build, math.sqrt(0.5))))
    build.output(
        "y",
        build.op(
            "Mul", build.op("Mul", x, number(build, 0.5)), build.op("Add", e, number(build, 1.0))
        ),
    )
    build.output("erf", e)
    assert is_left_alone(build.finish(), RecogniseGelu())


def variant(
    divisor: float = math.sqrt(2), one: float = 1.0, half: float = 0.5, shape: tuple[int, ...] = ()
) -> Graph:
    def form(build: GraphBuilder, x: Symbol) -> Symbol:
        e = build.op("Erf", build.op("Div", x, number(build, divisor)))
        return build.op(
            "Mul",
            build.op("Mul", x, number(build, half, shape=shape)),
            build.op("Add", e, number(build, one)),
        )

    return finished(form)


def test_numbers_that_only_look_alike() -> None:
    assert is_left_alone(variant(divisor=1.5), RecogniseGelu())
    assert is_left_alone(variant(one=1.01), RecogniseGelu())
    assert is_left_alone(variant(half=0.51), RecogniseGelu())
    assert is_left_alone(variant(shape=(1, 1, 1)), RecogniseGelu())
    assert is_left_alone(variant(shape=(5,)), RecogniseGelu())
    assert operators(variant()) == ["Neg", "Div", "Erf", "Mul", "Add", "Mul"]


def test_a_different_x_in_one_place() -> None:
    build = GraphBuilder()
    x, z = build.input("x", DType.F32, [4]), build.input("z", DType.F32, [4])
    build.output("y", build.op("Mul", build.op("Mul", z, number(build, 0.5)), cdf(build, x)))
    assert is_left_alone(build.finish(), RecogniseGelu())


def test_wrong_cubic() -> None:
    def quadratic(build: GraphBuilder, x: Symbol) -> Symbol:
        square = build.op("Mul", build.op("Pow", x, number(build, 2.0)), number(build, 0.044715))
        return build.op("Mul", build.op("Add", x, square), number(build, ROOT))

    assert is_left_alone(finished(lambda build, x: tanh_gelu(build, x, quadratic)), RecogniseGelu())


def test_long_chains_of_arithmetic_cost_little() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [4])
    y = x
    for _ in range(3000):
        y = build.op("Add", y, x)
    build.output("y", build.op("Mul", y, build.op("Tanh", y)))
    assert is_left_alone(build.finish(), RecogniseGelu())
