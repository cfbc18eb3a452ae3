"""Shapes computed in the graph become constants, wholly or in part, and the outputs stay the same
for every size of input.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.passes.rewriting import only, operators
from whence.graph import Graph, Rewriter
from whence.graph.builder import GraphBuilder, Symbol
from whence.passes.manager import CheckLevel, run_passes
from whence.passes.shapes.fold_shapes import FoldShapes
from whence.types import DType, TensorType


def ints(build: GraphBuilder, *values: int) -> Symbol:
    return build.const(np.array(values, np.int64))


def size_of(build: GraphBuilder, x: Symbol, axis: int) -> Symbol:
    """One dimension as a list of one, as exporters write it: shape, gather, unsqueeze."""
    return build.op(
        "Unsqueeze",
        build.op("Gather", build.op("Shape", x), build.const(axis), axis=0),
        ints(build, 0),
    )


def run_at(graph: Graph, *shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(0)
    return graph.run([rng.standard_normal(shape).astype(np.float32) for shape in shapes])


# ---- known shapes ----


def test_elements_of_constants_without_names_are_left_alone() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, None)
    build.output("y", build.op("Shape", x))
    graph = build.finish()
    assert run_passes(graph, [FoldShapes()], check=CheckLevel.INVARIANTS)[0].changes == 0


# ---- partly known shapes ----


def test_an_empty_batch_is_still_an_empty_batch() -> None:
    """A size that follows from the others would be undefined beside a copied 0, so it is not made
    to follow.
    """
    build = GraphBuilder()
    x = build.input("x", DType.F32, ["n", "h", "w"])
    area = build.op("Mul", size_of(build, x, 1), size_of(build, x, 2))
    build.output(
        "y", build.op("Reshape", x, build.op("Concat", size_of(build, x, 0), area, axis=0))
    )
    graph = build.finish()
    run_passes(graph, [FoldShapes()], check=CheckLevel.INVARIANTS)
    assert run_at(graph, (0, 4, 5))[0].shape == (0, 20)
    assert run_at(graph, (2, 4, 5))[0].shape == (2, 20)


def test_where_zero_means_zero_nothing_is_copied() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, ["n", 0])
    build.output(
        "y",
        build.op(
            "Reshape",
            x,
            build.op("Concat", size_of(build, x, 0), ints(build, 0, 3), axis=0),
            allowzero=1,
        ),
    )
    graph = build.finish()
    run_passes(graph, [FoldShapes()], check=CheckLevel.INVARIANTS)
    assert run_at(graph, (2, 0))[0].shape == (2, 0, 3)
    assert graph.const_value(only(graph, "Reshape").inputs[1]) is None


def test_an_expansion_that_enlarges_stays_and_its_type_is_known() -> None:
    build = GraphBuilder()
    x, z = build.input("x", DType.F32, [1, 4]), build.input("z", DType.F32, ["n"])
    build.output(
        "y",
        build.op(
            "Expand",
            x,
            build.op("Concat", build.op("Shape", z), ints(build, 4), axis=0),
            name="expand",
        ),
    )
    graph = build.finish()
    run_passes(graph, [FoldShapes()], check=CheckLevel.INVARIANTS)
    assert operators(graph) == ["Shape", "Concat", "Expand"]
    assert only(graph, "Expand").type == TensorType(DType.F32, ("n", 4))


def test_types_learn_what_constants_cannot_say() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, ["n", "m"])
    build.output(
        "zeros",
        build.op(
            "ConstantOfShape", build.op("Concat", size_of(build, x, 1), ints(build, 3), axis=0)
        ),
    )
    length = build.op("Gather", build.op("Shape", x), build.const(0), axis=0)
    build.output("range", build.op("Range", build.const(0), length, build.const(1)))
    graph = build.finish()
    run_passes(graph, [FoldShapes()], check=CheckLevel.INVARIANTS)
    assert only(graph, "ConstantOfShape").type == TensorType(DType.F32, ("m", 3))
    assert only(graph, "Range").type == TensorType(DType.I64, ("n",))


def test_a_declared_shape_that_is_wrong_is_not_acted_on() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, ["n", 6])
    build.output(
        "y",
        build.op("Reshape", x, build.op("Concat", size_of(build, x, 0), ints(build, 2, 3), axis=0)),
    )
    graph = build.finish()
    graph.set_types(only(graph, "Reshape"), [TensorType(DType.F32, (1, 9, 9))])
    run_passes(graph, [FoldShapes()], check=CheckLevel.INVARIANTS)
    assert only(graph, "Reshape").type == TensorType(DType.F32, (1, 9, 9))


# ---- properties ----

BINARY = ["Add", "Sub", "Mul", "Div", "Mod", "Min", "Max"]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(BINARY), st.integers(0, 9), st.integers(0, 9)),
        st.tuples(
            st.sampled_from(
                ["Where", "Concat", "Gather", "Slice", "ReduceProd", "ReduceMax", "Cast", "Squeeze"]
            ),
            st.integers(0, 9),
            st.integers(0, 9),
        ),
    ),
    min_size=1,
    max_size=12,
)


@given(STEPS, st.tuples(st.integers(1, 5), st.integers(1, 5)))
def test_whatever_is_computed_from_sizes_stays_the_same(
    steps: list[tuple[str, int, int]], sizes: tuple[int, int]
) -> None:
    """Lists of one and of three elements, combined at random; every intermediate is an output."""
    build = GraphBuilder()
    x = build.input("x", DType.F32, ["a", "b", 3])
    values = [build.op("Shape", x), ints(build, 2), ints(build, 1, -1, 4)]
    lengths = [3, 1, 3]
    for op, left, right in steps:
        i, j = left % len(values), right % len(values)
        one, two = values[i], values[j]
        if op in BINARY:
            # Divisors are kept away from 0, where the result is not defined.
            divisor = build.op("Max", two, ints(build, 1)) if op in ("Div", "Mod") else two
            dividend = build.op("Max", one, ints(build, 0)) if op == "Div" else one
            values.append(build.op(op, dividend, divisor))
            lengths.append(max(lengths[i], lengths[j]))
        elif op == "Where":
            values.append(build.op("Where", build.op("Less", one, two), two, one))
            lengths.append(max(lengths[i], lengths[j]))
        elif op == "Concat":
            values.append(
                build.op(
                    "Slice", build.op("Concat", one, two, axis=0), ints(build, 0), ints(build, 1)
                )
            )
            lengths.append(1)
        elif op == "Gather":
            values.append(build.op("Gather", one, ints(build, right % lengths[i]), axis=0))
            lengths.append(1)
        elif op == "Slice":
            values.append(
                build.op(
                    "Slice",
                    one,
                    ints(build, -1),
                    ints(build, -(2**63)),
                    ints(build, 0),
                    ints(build, -1),
                )
            )
            lengths.append(lengths[i])
        elif op == "Cast":
            values.append(build.op("Cast", build.op("Equal", one, two), to=7))
            lengths.append(max(lengths[i], lengths[j]))
        elif op == "Squeeze":
            scalar = build.op("Gather", one, build.const(0), axis=0)
            values.append(
                build.op("Reshape", build.op("Unsqueeze", scalar, ints(build, 0)), ints(build, 1))
            )
            lengths.append(1)
        else:
            values.append(build.op(op, one, ints(build, 0), keepdims=1))
            lengths.append(1)
    for number, value in enumerate(values):
        build.output(f"y{number}", build.op("Identity", value))
    graph = build.finish()
    before = run_at(graph, (*sizes, 3))
    run_passes(graph, [FoldShapes()], check=CheckLevel.INVARIANTS)
    for was, now in zip(before, run_at(graph, (*sizes, 3)), strict=True):
        np.testing.assert_array_equal(was, now)
    assert run_passes(graph, [FoldShapes()], check=CheckLevel.INVARIANTS)[0].changes == 0


def test_what_is_not_about_shapes_is_not_followed(monkeypatch) -> None:
    """Plain arithmetic costs one look at its type."""
    from whence.passes.shapes import shape_values

    followed = 0
    of = shape_values.ShapeValues.of

    def counting(self: shape_values.ShapeValues, ref: Any) -> Any:
        nonlocal followed
        followed += 1
        return of(self, ref)

    monkeypatch.setattr(shape_values.ShapeValues, "of", counting)
    build = GraphBuilder()
    value, c = build.input("x", DType.F32, ["n", 4]), build.const(np.ones(4, np.float32))
    for _ in range(300):
        value = build.op("Add", value, c)
    build.output("y", build.op("Reshape", value, ints(build, 0, 2, 2)))
    FoldShapes().run(Rewriter(build.finish(), "test"))
    assert followed <= 3
