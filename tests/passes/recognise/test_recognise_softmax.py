"""Softmax and its logarithm are found when they run along one axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.passes.rewriting import carried, is_left_alone, only, operators, rewrite
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.graph.structure import structure
from whence.passes.recognise.recognise_softmax import RecogniseSoftmax
from whence.types import Dim, DType

Form = Callable[[GraphBuilder, Symbol], Symbol]


def axes(build: GraphBuilder, *values: int) -> Symbol:
    return build.const(np.array(values, np.int64))


def finished(form: Form, shape: tuple[Dim, ...] = (2, 3, 4)) -> Graph:
    build = GraphBuilder()
    build.output("y", form(build, build.input("x", DType.F32, shape)))
    return build.finish()


def shifted(build: GraphBuilder, x: Symbol, axis: int = -1) -> Symbol:
    return build.op("Sub", x, build.op("ReduceMax", x, axes(build, axis), keepdims=1))


def by_division(build: GraphBuilder, x: Symbol, axis: int = -1) -> Symbol:
    e = build.op("Exp", shifted(build, x, axis))
    return build.op("Div", e, build.op("ReduceSum", e, axes(build, axis), keepdims=1))


def by_reciprocal(build: GraphBuilder, x: Symbol) -> Symbol:
    e = build.op("Exp", shifted(build, x))
    return build.op("Mul", build.op("Reciprocal", build.op("ReduceSum", e, axes(build, 2))), e)


def without_maximum(build: GraphBuilder, x: Symbol) -> Symbol:
    e = build.op("Exp", x)
    return build.op("Div", e, build.op("ReduceSum", e, axes(build, -1)))


def axis_lost_and_found(build: GraphBuilder, x: Symbol) -> Symbol:
    peak = build.op(
        "Max",
        build.const(np.float32(-np.inf)),
        build.op("ReduceMax", x, axes(build, 2), keepdims=0),
    )
    e = build.op("Exp", build.op("Sub", x, build.op("Unsqueeze", peak, axes(build, 2))))
    total = build.op("ReduceSum", e, axes(build, -1), keepdims=0)
    return build.op("Div", e, build.op("Reshape", total, axes(build, 2, 3, 1)))


@pytest.mark.parametrize("form", [by_division, by_reciprocal, without_maximum, axis_lost_and_found])
def test_softmax(form: Form) -> None:
    graph = finished(form)
    sources = [source.name for source in graph.ledger.sources]
    assert rewrite(graph, RecogniseSoftmax()) == {"exp(x - max)/sum(exp(x - max)) = Softmax(x)": 1}
    assert structure(graph) == structure(finished(lambda build, x: build.op("Softmax", x, axis=-1)))
    assert carried(graph, only(graph, "Softmax")) == (sources, [])


def test_another_axis_and_open_dimensions() -> None:
    graph = finished(lambda build, x: by_division(build, x, axis=1), ("batch", "rows", None))
    rewrite(graph, RecogniseSoftmax())
    assert only(graph, "Softmax").attrs == {"axis": 1}


def log_of_softmax(build: GraphBuilder, x: Symbol) -> Symbol:
    return build.op("Log", by_division(build, x))


def stable(build: GraphBuilder, x: Symbol) -> Symbol:
    s = shifted(build, x)
    return build.op(
        "Sub", s, build.op("Log", build.op("ReduceSum", build.op("Exp", s), axes(build, -1)))
    )


def log_sum_exp(build: GraphBuilder, x: Symbol) -> Symbol:
    return build.op("Sub", x, build.op("ReduceLogSumExp", x, axes(build, -1)))


@pytest.mark.parametrize("form", [log_of_softmax, stable, log_sum_exp])
def test_log_softmax(form: Form) -> None:
    graph = finished(form)
    sources = [source.name for source in graph.ledger.sources]
    rewrite(graph, RecogniseSoftmax())
    assert structure(graph) == structure(
        finished(lambda build, x: build.op("LogSoftmax", x, axis=-1))
    )
    assert carried(graph, only(graph, "LogSoftmax")) == (sources, [])


def mixed(peak: int, total: tuple[int, ...], **attrs: Any) -> Form:
    def form(build: GraphBuilder, x: Symbol) -> Symbol:
        e = build.op("Exp", shifted(build, x, peak))
        return build.op("Div", e, build.op("ReduceSum", e, axes(build, *total), **attrs))

    return form


def test_sums_over_other_axes() -> None:
    assert is_left_alone(finished(mixed(-1, (1, 2))), RecogniseSoftmax())
    assert is_left_alone(finished(mixed(-1, (2,), keepdims=0), (3, 3, 3)), RecogniseSoftmax())


def test_a_maximum_over_another_axis_is_just_part_of_x() -> None:
    graph = finished(mixed(1, (2,)))
    rewrite(graph, RecogniseSoftmax())
    assert operators(graph) == ["ReduceMax", "Sub", "Softmax"]


def test_a_sum_that_others_read() -> None:
    build = GraphBuilder()
    e = build.op("Exp", build.input("x", DType.F32, [2, 3]))
    total = build.op("ReduceSum", e, axes(build, -1))
    build.output("y", build.op("Div", e, total))
    build.output("total", total)
    assert is_left_alone(build.finish(), RecogniseSoftmax())


def test_the_quotient_the_other_way_round() -> None:
    def upside_down(build: GraphBuilder, x: Symbol) -> Symbol:
        e = build.op("Exp", x)
        return build.op("Div", build.op("ReduceSum", e, axes(build, -1)), e)

    assert is_left_alone(finished(upside_down), RecogniseSoftmax())


def test_rows_that_lost_their_place() -> None:
    # [2,3,4] is summed along its last axis to [2,3], but divided as if it were [3,2].
    def crossed(build: GraphBuilder, x: Symbol) -> Symbol:
        e = build.op("Exp", x)
        total = build.op("ReduceSum", e, axes(build, -1), keepdims=0)
        return build.op("Div", e, build.op("Reshape", total, axes(build, 1, 2, 1)))

    assert is_left_alone(finished(crossed, (2, 1, 4)), RecogniseSoftmax())
