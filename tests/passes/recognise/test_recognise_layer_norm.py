"""Layer norm is found in the forms exporters write it in, with all of its operators in the new
node's origin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.passes.rewriting import carried, is_left_alone, only, operators, rewrite
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.graph.structure import structure
from whence.passes.recognise.recognise_layer_norm import RecogniseLayerNorm
from whence.types import Dim, DType

Form = Callable[[GraphBuilder, Symbol], Symbol]
RNG = np.random.default_rng(3)
SCALE, BIAS = (RNG.standard_normal(8).astype(np.float32) for _ in range(2))
EPSILON = float(np.float32(1e-5))
RULE = "(x - mean)/√(variance + ε)·scale + bias = LayerNormalization(x, scale, bias)"


def number(build: GraphBuilder, value: float, dtype: Any = np.float32) -> Symbol:
    return build.const(np.array(value, dtype))


def mean(build: GraphBuilder, x: Symbol, axes: tuple[int, ...] = (-1,), **attrs: Any) -> Symbol:
    return build.op("ReduceMean", x, build.const(np.array(axes, np.int64)), **attrs)


def finished(form: Form, shape: tuple[Dim, ...] = (2, 3, 8), dtype: DType = DType.F32) -> Graph:
    build = GraphBuilder()
    build.output("y", form(build, build.input("x", dtype, shape)))
    return build.finish()


def layer_norm(
    shape: tuple[Dim, ...] = (2, 3, 8),
    scale: np.ndarray = SCALE,
    bias: np.ndarray | None = BIAS,
    **attrs: Any,
) -> str:
    def form(build: GraphBuilder, x: Symbol) -> Symbol:
        given = (build.const(scale),) if bias is None else (build.const(scale), build.const(bias))
        return build.op(
            "LayerNormalization",
            x,
            *given,
            **{"axis": -1, "epsilon": EPSILON, "stash_type": 1, **attrs},
        )

    return structure(finished(form, shape))


def centred(build: GraphBuilder, x: Symbol, axes: tuple[int, ...] = (-1,)) -> Symbol:
    return build.op("Sub", x, mean(build, x, axes))


def variance(build: GraphBuilder, d: Symbol, axes: tuple[int, ...] = (-1,)) -> Symbol:
    return build.op(
        "Add", mean(build, build.op("Pow", d, number(build, 2.0)), axes), number(build, EPSILON)
    )


def affine(build: GraphBuilder, y: Symbol) -> Symbol:
    return build.op("Add", build.op("Mul", y, build.const(SCALE)), build.const(BIAS))


def by_pow_and_div(build: GraphBuilder, x: Symbol) -> Symbol:
    d = centred(build, x)
    return affine(build, build.op("Div", d, build.op("Sqrt", variance(build, d))))


def by_mul_and_reciprocal(build: GraphBuilder, x: Symbol) -> Symbol:
    d = centred(build, x)
    v = build.op("Add", number(build, EPSILON), mean(build, build.op("Mul", d, d)))
    y = build.op("Mul", build.op("Reciprocal", build.op("Sqrt", v)), d)
    return build.op("Add", build.const(BIAS), build.op("Mul", build.const(SCALE), y))


def by_division_of_one(build: GraphBuilder, x: Symbol) -> Symbol:
    d = centred(build, x)
    return affine(
        build,
        build.op(
            "Mul", d, build.op("Div", number(build, 1.0), build.op("Sqrt", variance(build, d)))
        ),
    )


def by_power(build: GraphBuilder, x: Symbol) -> Symbol:
    d = centred(build, x)
    return affine(
        build, build.op("Mul", d, build.op("Pow", variance(build, d), number(build, -0.5)))
    )


def with_two_differences(build: GraphBuilder, x: Symbol) -> Symbol:
    m = mean(build, x)
    one, two = build.op("Sub", x, m), build.op("Sub", x, m)
    return affine(build, build.op("Div", one, build.op("Sqrt", variance(build, two))))


def with_two_means(build: GraphBuilder, x: Symbol) -> Symbol:
    return affine(
        build,
        build.op("Div", centred(build, x), build.op("Sqrt", variance(build, centred(build, x)))),
    )


def with_scale_in_the_factor(build: GraphBuilder, x: Symbol) -> Symbol:
    d = centred(build, x)
    factor = build.op(
        "Mul", build.op("Reciprocal", build.op("Sqrt", variance(build, d))), build.const(SCALE)
    )
    return build.op("Add", build.op("Mul", d, factor), build.const(BIAS))


def as_tensorflow(build: GraphBuilder, x: Symbol) -> Symbol:
    m = mean(build, x)
    factor = build.op(
        "Mul",
        build.op("Reciprocal", build.op("Sqrt", variance(build, build.op("Sub", x, m)))),
        build.const(SCALE),
    )
    return build.op(
        "Add",
        build.op("Mul", x, factor),
        build.op("Sub", build.const(BIAS), build.op("Mul", m, factor)),
    )


def by_pooling(build: GraphBuilder, x: Symbol) -> Symbol:
    d = build.op("Sub", x, build.op("GlobalAveragePool", x))
    v = build.op(
        "Add", build.op("GlobalAveragePool", build.op("Mul", d, d)), number(build, EPSILON)
    )
    return affine(build, build.op("Div", d, build.op("Sqrt", v)))


FORMS = [
    by_pow_and_div,
    by_mul_and_reciprocal,
    by_division_of_one,
    by_power,
    with_two_differences,
    with_two_means,
    with_scale_in_the_factor,
    as_tensorflow,
    by_pooling,
]


@pytest.mark.parametrize("form", FORMS)
def test_forms(form: Form) -> None:
    graph = finished(form)
    sources = [source.name for source in graph.ledger.sources]
    assert rewrite(graph, RecogniseLayerNorm()) == {RULE: 1}
    assert structure(graph) == layer_norm()
    assert carried(graph, only(graph, "LayerNormalization")) == (sources, [])


def plain(build: GraphBuilder, x: Symbol, axes: tuple[int, ...] = (-1,)) -> Symbol:
    d = centred(build, x, axes)
    return build.op("Div", d, build.op("Sqrt", variance(build, d, axes)))


def test_without_scale_and_bias() -> None:
    graph = finished(plain)
    rewrite(graph, RecogniseLayerNorm())
    assert structure(graph) == layer_norm(scale=np.ones(8, np.float32), bias=None)


def test_with_bias_only_and_tensorflow_without_scale() -> None:
    def shifted(build: GraphBuilder, x: Symbol) -> Symbol:
        m = mean(build, x)
        factor = build.op("Reciprocal", build.op("Sqrt", variance(build, build.op("Sub", x, m))))
        return build.op(
            "Add",
            build.op("Mul", x, factor),
            build.op("Sub", build.const(BIAS), build.op("Mul", m, factor)),
        )

    for form in (shifted, lambda build, x: build.op("Add", plain(build, x), build.const(BIAS))):
        graph = finished(form)
        rewrite(graph, RecogniseLayerNorm())
        assert structure(graph) == layer_norm(scale=np.ones(8, np.float32))


def test_two_axes_and_parameters_of_other_ranks() -> None:
    bias = RNG.standard_normal((1, 3, 1)).astype(np.float32)

    def form(build: GraphBuilder, x: Symbol) -> Symbol:
        return build.op(
            "Add", build.op("Mul", plain(build, x, (1, 2)), number(build, 3.0)), build.const(bias)
        )

    graph = finished(form)
    rewrite(graph, RecogniseLayerNorm())
    wide = np.ascontiguousarray(np.broadcast_to(bias[0], (3, 8)))
    assert structure(graph) == layer_norm(scale=np.full((3, 8), 3, np.float32), bias=wide, axis=-2)


def test_scale_and_bias_from_inputs_and_open_dimensions() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, ["batch", "words", "size"])
    scale, bias = (
        build.input("scale", DType.F32, ["size"]),
        build.input("bias", DType.F32, ["size"]),
    )
    build.output("y", build.op("Add", build.op("Mul", scale, plain(build, x)), bias))
    graph = build.finish()
    rewrite(graph, RecogniseLayerNorm())
    assert operators(graph) == ["LayerNormalization"]
    assert [
        graph[ref.node].name for ref in only(graph, "LayerNormalization").inputs if ref is not None
    ] == ["x", "scale", "bias"]


def test_a_residual_is_no_bias() -> None:
    build = GraphBuilder()
    x, other = build.input("x", DType.F32, [2, 8]), build.input("other", DType.F32, [2, 8])
    build.output("y", build.op("Add", build.op("Mul", plain(build, x), build.const(SCALE)), other))
    graph = build.finish()
    rewrite(graph, RecogniseLayerNorm())
    assert operators(graph) == ["LayerNormalization", "Add"]


def test_one_core_with_two_scales() -> None:
    build = GraphBuilder()
    y = plain(build, build.input("x", DType.F32, [2, 8]))
    build.output("one", build.op("Mul", y, build.const(SCALE)))
    build.output("two", build.op("Mul", y, build.const(BIAS)))
    graph = build.finish()
    rewrite(graph, RecogniseLayerNorm())
    assert operators(graph) == ["LayerNormalization", "Mul", "Mul"]


def narrow(value: np.ndarray) -> np.ndarray:
    return value.astype(np.float16)


def test_casts_around_the_core_are_part_of_it() -> None:
    def form(build: GraphBuilder, x: Symbol) -> Symbol:
        y = build.op(
            "Cast", plain(build, build.op("Cast", x, to=int(DType.F32))), to=int(DType.F16)
        )
        return build.op(
            "Add", build.op("Mul", y, build.const(narrow(SCALE))), build.const(narrow(BIAS))
        )

    graph = finished(form, dtype=DType.F16)
    sources = [source.name for source in graph.ledger.sources]
    rewrite(graph, RecogniseLayerNorm(), tolerance=3e-3)
    assert operators(graph) == ["LayerNormalization"]
    assert carried(graph, only(graph, "LayerNormalization")) == (sources, [])


def test_a_cast_of_the_difference_only() -> None:
    def form(build: GraphBuilder, x: Symbol) -> Symbol:
        d = build.op("Cast", centred(build, x), to=int(DType.F32))
        return build.op(
            "Cast", build.op("Div", d, build.op("Sqrt", variance(build, d))), to=int(DType.F16)
        )

    graph = finished(form, dtype=DType.F16)
    rewrite(graph, RecogniseLayerNorm(), tolerance=3e-3)
    assert operators(graph) == ["LayerNormalization"]


def test_a_cast_that_only_follows_stays() -> None:
    def form(build: GraphBuilder, x: Symbol) -> Symbol:
        y = build.op("Cast", plain(build, x), to=int(DType.F16))
        return build.op("Mul", y, build.const(narrow(SCALE)))

    graph = finished(form)
    rewrite(graph, RecogniseLayerNorm(), tolerance=3e-3)
    assert operators(graph) == ["LayerNormalization", "Cast", "Mul"]


def test_a_cast_that_others_read_stays_for_them() -> None:
    build = GraphBuilder()
    x = build.op("Cast", build.input("x", DType.F16, [2, 8]), name="shared", to=int(DType.F32))
    build.output("y", build.op("Cast", plain(build, x), to=int(DType.F16)))
    build.output("wide", x)
    graph = build.finish()
    rewrite(graph, RecogniseLayerNorm(), tolerance=3e-3)
    assert sorted(operators(graph)) == ["Cast", "LayerNormalization"]
    assert "shared" not in carried(graph, only(graph, "LayerNormalization"))[0]


@pytest.mark.parametrize("inner", ["mean", "difference", "variance"])
def test_an_inner_value_that_others_read(inner: str) -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2, 8])
    m = mean(build, x)
    d = build.op("Sub", x, m)
    v = variance(build, d)
    build.output("y", affine(build, build.op("Div", d, build.op("Sqrt", v))))
    build.output("inner", {"mean": m, "difference": d, "variance": v}[inner])
    assert is_left_alone(build.finish(), RecogniseLayerNorm())


def test_what_only_looks_like_it() -> None:
    def other_axis(build: GraphBuilder, x: Symbol) -> Symbol:
        return plain(build, x, (1,))

    def mixed_axes(build: GraphBuilder, x: Symbol) -> Symbol:
        d = centred(build, x, (-1,))
        return build.op("Div", d, build.op("Sqrt", variance(build, d, (1, 2))))

    def cube(build: GraphBuilder, x: Symbol) -> Symbol:
        d = centred(build, x)
        v = build.op(
            "Add", mean(build, build.op("Pow", d, number(build, 4.0))), number(build, EPSILON)
        )
        return build.op("Div", d, build.op("Sqrt", v))

    def upside_down(build: GraphBuilder, x: Symbol) -> Symbol:
        d = centred(build, x)
        return build.op("Div", build.op("Sqrt", variance(build, d)), d)

    def undivided(build: GraphBuilder, x: Symbol) -> Symbol:
        d = centred(build, x)
        return build.op("Mul", d, build.op("Sqrt", variance(build, d)))

    def epsilon_outside(build: GraphBuilder, x: Symbol) -> Symbol:
        d = centred(build, x)
        root = build.op("Sqrt", mean(build, build.op("Mul", d, d)))
        return build.op("Div", d, build.op("Add", root, number(build, EPSILON)))

    def other_numerator(build: GraphBuilder, x: Symbol) -> Symbol:
        return build.op("Div", x, build.op("Sqrt", variance(build, centred(build, x))))

    for form in (
        other_axis,
        mixed_axes,
        cube,
        upside_down,
        undivided,
        epsilon_outside,
        other_numerator,
    ):
        assert is_left_alone(finished(form), RecogniseLayerNorm())


def test_a_size_that_nobody_knows() -> None:
    assert is_left_alone(finished(plain, (2, "size")), RecogniseLayerNorm())
