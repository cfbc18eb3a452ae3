"""RMS norm is found in the forms exporters write it in."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from tests.passes.rewriting import carried, is_left_alone, only, operators, rewrite
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.graph.structure import structure
from whence.passes.recognise.recognise_rms_norm import RecogniseRmsNorm
from whence.types import DType

Form = Callable[[GraphBuilder, Symbol], Symbol]
SCALE = np.random.default_rng(4).standard_normal(8).astype(np.float32)
EPSILON = float(np.float32(1e-6))


def finished(form: Form, dtype: DType = DType.F32) -> Graph:
    build = GraphBuilder()
    build.output("y", form(build, build.input("x", dtype, [2, 3, 8])))
    return build.finish()


def number(build: GraphBuilder, value: float) -> Symbol:
    return build.const(np.array(value, np.float32))


def mean_square(
    build: GraphBuilder, x: Symbol, axes: tuple[int, ...] = (-1,), exponent: float = 2.0
) -> Symbol:
    square = build.op("Pow", x, number(build, exponent))
    return build.op(
        "Add",
        build.op("ReduceMean", square, build.const(np.array(axes, np.int64))),
        number(build, EPSILON),
    )


def by_reciprocal(build: GraphBuilder, x: Symbol) -> Symbol:
    y = build.op("Mul", x, build.op("Reciprocal", build.op("Sqrt", mean_square(build, x))))
    return build.op("Mul", build.const(SCALE), y)


def by_division(build: GraphBuilder, x: Symbol) -> Symbol:
    return build.op(
        "Mul", build.op("Div", x, build.op("Sqrt", mean_square(build, x))), build.const(SCALE)
    )


def by_product_and_power(build: GraphBuilder, x: Symbol) -> Symbol:
    m = build.op(
        "ReduceMean", build.op("Mul", x, x), build.const(np.array([2], np.int64)), keepdims=1
    )
    r = build.op("Pow", build.op("Add", number(build, EPSILON), m), number(build, -0.5))
    return build.op("Mul", build.op("Mul", r, x), build.const(SCALE.reshape(1, 1, 8)))


def with_scale_in_the_factor(build: GraphBuilder, x: Symbol) -> Symbol:
    r = build.op("Div", number(build, 1.0), build.op("Sqrt", mean_square(build, x)))
    return build.op("Mul", x, build.op("Mul", r, build.const(SCALE)))


def expected(scale: np.ndarray) -> str:
    return structure(
        finished(
            lambda build, x: build.op(
                "RMSNormalization", x, build.const(scale), axis=-1, epsilon=EPSILON, stash_type=1
            )
        )
    )


@pytest.mark.parametrize(
    "form", [by_reciprocal, by_division, by_product_and_power, with_scale_in_the_factor]
)
def test_forms(form: Form) -> None:
    graph = finished(form)
    sources = [source.name for source in graph.ledger.sources]
    assert rewrite(graph, RecogniseRmsNorm()) == {
        "x/√(mean(x²) + ε)·scale = RMSNormalization(x, scale)": 1
    }
    assert structure(graph) == expected(SCALE)
    assert carried(graph, only(graph, "RMSNormalization")) == (sources, [])


def plain(
    build: GraphBuilder, x: Symbol, axes: tuple[int, ...] = (-1,), exponent: float = 2.0
) -> Symbol:
    return build.op("Div", x, build.op("Sqrt", mean_square(build, x, axes, exponent)))


def test_without_scale() -> None:
    graph = finished(plain)
    rewrite(graph, RecogniseRmsNorm())
    assert structure(graph) == expected(np.ones(8, np.float32))


def test_casts_around_the_core_are_part_of_it() -> None:
    def form(build: GraphBuilder, x: Symbol) -> Symbol:
        y = build.op(
            "Cast", plain(build, build.op("Cast", x, to=int(DType.F32))), to=int(DType.F16)
        )
        return build.op("Mul", y, build.const(SCALE.astype(np.float16)))

    graph = finished(form, DType.F16)
    sources = [source.name for source in graph.ledger.sources]
    rewrite(graph, RecogniseRmsNorm(), tolerance=3e-3)
    assert operators(graph) == ["RMSNormalization"]
    assert carried(graph, only(graph, "RMSNormalization")) == (sources, [])


def test_a_wide_root_on_a_narrow_value() -> None:
    def form(build: GraphBuilder, x: Symbol) -> Symbol:
        wide = build.op("Cast", x, to=int(DType.F32))
        r = build.op(
            "Cast",
            build.op("Reciprocal", build.op("Sqrt", mean_square(build, wide))),
            to=int(DType.F16),
        )
        return build.op("Mul", x, r)

    graph = finished(form, DType.F16)
    rewrite(graph, RecogniseRmsNorm(), tolerance=3e-3)
    assert operators(graph) == ["RMSNormalization"]


def test_what_only_looks_like_it() -> None:
    for axes, exponent in (((1,), 2.0), ((-1,), 4.0)):
        build_plain = partial(plain, axes=axes, exponent=exponent)
        assert is_left_alone(finished(build_plain), RecogniseRmsNorm())
    assert is_left_alone(
        finished(lambda build, x: build.op("Mul", x, build.op("Sqrt", mean_square(build, x)))),
        RecogniseRmsNorm(),
    )
    assert is_left_alone(
        finished(
            lambda build, x: build.op(
                "Div", build.op("Neg", x), build.op("Sqrt", mean_square(build, x))
            )
        ),
        RecogniseRmsNorm(),
    )


def test_an_inner_value_that_others_read() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2, 8])
    root = build.op("Sqrt", mean_square(build, x))
    build.output("y", build.op("Div", x, root))
    build.output("root", root)
    assert is_left_alone(build.finish(), RecogniseRmsNorm())
