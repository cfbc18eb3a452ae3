"""Shapes computed in the graph become constants, wholly or in part, and the outputs stay the same
for every size of input.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.passes.rewriting import buried, edges_into, is_left_alone, only, operators, rewrite
from whence.graph import Graph, Rewriter
from whence.graph.builder import GraphBuilder, Symbol
from whence.passes.manager import CheckLevel, run_passes
from whence.passes.shapes.fold_shapes import FoldShapes
from whence.passes.simplify.remove_dead_nodes import RemoveDeadNodes
from whence.passes.simplify.remove_no_ops import RemoveNoOps
from whence.provenance import Reason
from whence.types import Dim, DType, TensorType

KNOWN = "the shape of a value is known"
COMPUTED = "what is computed from known sizes is a constant"
FOLLOWS = "sizes that follow from the input's are constants"
TWIN = "two lists of the same sizes are one"


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


def constant_input(graph: Graph, op: str, index: int) -> list[int]:
    value = graph.const_value(only(graph, op).inputs[index])
    assert value is not None
    return list(value.tolist())


# ---- known shapes ----


def test_a_known_shape_is_a_constant_and_so_is_what_is_made_of_it() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2, 3, 4])
    shape = build.op("Shape", x, name="shape")
    flat = build.op(
        "Mul",
        build.op("Gather", shape, build.const(1), axis=0, name="g1"),
        build.op("Gather", shape, build.const(2), axis=0, name="g2"),
        name="mul",
    )
    target = build.op(
        "Concat",
        ints(build, -1),
        build.op("Unsqueeze", flat, ints(build, 0), name="list"),
        axis=0,
        name="concat",
    )
    build.output("y", build.op("Reshape", x, target, name="reshape"))
    graph = build.finish()
    rules = rewrite(graph, FoldShapes())
    assert rules[KNOWN] == 1
    assert operators(graph) == ["Reshape"]
    assert constant_input(graph, "Reshape", 1) == [-1, 12]
    assert only(graph, "Reshape").type == TensorType(DType.F32, (2, 12))
    assert set(buried(graph).values()) == {Reason.FOLDED}
    # The last operator of the chain is in the constant; the others say that they were folded.
    assert {graph.ledger.source(source).name for source in only(graph, "Const").origin} == {
        "concat"
    }


def test_known_elements_of_a_partly_known_shape() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, ["n", 3, 4])
    build.output("y", build.op("Gather", build.op("Shape", x), build.const(1), axis=0))
    graph = build.finish()
    assert rewrite(graph, FoldShapes()) == {COMPUTED: 1}
    assert operators(graph) == []
    assert buried(graph) == {"Shape_1": Reason.FOLDED}


def test_start_and_end_of_shape_and_the_size() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, ["n", 3, 4])
    build.output("a", build.op("Shape", x, start=1))
    build.output("b", build.op("Shape", x, start=-5, end=-2))
    build.output("c", build.op("Size", build.op("Transpose", build.input("z", DType.F32, [5, 6]))))
    graph = build.finish()
    rewrite(graph, FoldShapes(), RemoveDeadNodes())
    assert operators(graph) == ["Shape"]
    assert [graph.const_value(output.inputs[0]) is not None for output in graph.outputs] == [
        True,
        False,
        True,
    ]
    # The transpose was only there to be asked for its size: it is dead, not folded.
    assert buried(graph)["Transpose_3"] is Reason.DEAD


def test_elements_of_constants_without_names_are_left_alone() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, None)
    build.output("y", build.op("Shape", x))
    graph = build.finish()
    assert run_passes(graph, [FoldShapes()], check=CheckLevel.INVARIANTS)[0].changes == 0


# ---- partly known shapes ----


def test_a_dynamic_batch_is_copied() -> None:
    """The view that every transformer makes: [batch, length, 768] to [batch, length, 12, 64]."""
    build = GraphBuilder()
    x = build.input("x", DType.F32, ["batch", "length", 12])
    target = build.op(
        "Concat", size_of(build, x, 0), size_of(build, x, 1), ints(build, 3), ints(build, 4), axis=0
    )
    build.output("y", build.op("Reshape", x, target, name="view"))
    graph = build.finish()
    before = run_at(graph, (3, 5, 12))
    rewrite(graph, FoldShapes())
    assert operators(graph) == ["Reshape"]
    assert constant_input(graph, "Reshape", 1) == [0, 0, 3, 4]
    assert only(graph, "Reshape").type == TensorType(DType.F32, ("batch", "length", 3, 4))
    assert edges_into(graph, only(graph, "Reshape")) == {"view": "copy"}
    absorbed = {stone.reason for stone in graph.ledger.tombstones}
    assert absorbed <= {Reason.ABSORBED, Reason.CSE}
    np.testing.assert_array_equal(run_at(graph, (3, 5, 12))[0], before[0])


@pytest.mark.parametrize(
    ("shape", "pick", "target"),
    [
        # (input, for each size: an axis of the input as text, or a number, what becomes of it)
        (("n", 6), ("0", 2, 3), [0, 2, 3]),
        (("n", 6), ("0", -1), [0, -1]),
        (("n", 6), (6, "0"), [6, -1]),
        (("n", "m"), ("1", "0"), None),
        (("n", "m"), ("0", "1"), [0, 0]),
        (("n", "m", 4), ("0*1", 4), [-1, 4]),
        (("n", "m", 4), ("0", "1*2"), None),
        ((None, 6), ("0", 3, 2), [0, 3, 2]),
        ((None, None), ("0", "1"), [0, 0]),
        (("n", "n"), ("1", "0"), [0, 0]),
        (("n", 6), ("0", 1, 6), [0, 1, 6]),
        (("n", 6), (1, "0", 6), [1, -1, 6]),
        (("n", 6), ("0*1",), [-1]),
    ],
)
def test_reshape_targets(
    shape: tuple[Dim, ...], pick: tuple[str | int, ...], target: list[int] | None
) -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, shape)

    def size(item: str | int) -> Symbol:
        if isinstance(item, int):
            return ints(build, item)
        first, *others = (size_of(build, x, int(axis)) for axis in item.split("*"))
        for other in others:
            first = build.op("Mul", first, other)
        return first

    build.output("y", build.op("Reshape", x, build.op("Concat", *map(size, pick), axis=0)))
    graph = build.finish()
    sizes = {None: 5, "n": 3, "m": 5}
    actual = tuple(dim if isinstance(dim, int) else sizes[dim] for dim in shape)
    actual = (3, 3) if shape == ("n", "n") else actual
    before = run_at(graph, actual)
    rewrite(graph, FoldShapes())
    np.testing.assert_array_equal(run_at(graph, actual)[0], before[0])
    value = graph.const_value(only(graph, "Reshape").inputs[1])
    assert (None if value is None else value.tolist()) == target


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


def test_an_expansion_to_the_own_size_is_none() -> None:
    """What torch writes for expand: -1 means "as it is", and is replaced by computing with truth
    values.
    """
    build = GraphBuilder()
    x, z = build.input("x", DType.F32, ["n", 1, 4]), build.input("z", DType.F32, ["n", 7])
    wanted = build.op("Concat", size_of(build, z, 0), ints(build, -1), ints(build, 4), axis=0)
    ones = build.op("ConstantOfShape", build.op("Shape", wanted), value=np.array([1], np.int64))
    missing = build.op("Equal", wanted, build.op("Mul", ones, ints(build, -1)))
    build.output("y", build.op("Expand", x, build.op("Where", missing, ones, wanted)))
    graph = build.finish()
    rewrite(graph, FoldShapes())
    assert operators(graph) == ["Expand"]
    assert constant_input(graph, "Expand", 1) == [1, 1, 4]
    rewrite(graph, RemoveNoOps())
    assert operators(graph) == []


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


def test_a_slice_to_the_own_length_goes_to_the_end() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, ["n", "m"])
    build.output("y", build.op("Slice", x, ints(build, 1), size_of(build, x, 1), ints(build, -1)))
    graph = build.finish()
    before = run_at(graph, (3, 5))
    rewrite(graph, FoldShapes())
    assert operators(graph) == ["Slice"]
    assert constant_input(graph, "Slice", 2) == [2**63 - 1]
    np.testing.assert_array_equal(run_at(graph, (3, 5))[0], before[0])


def test_a_slice_to_another_length_stays() -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, ["n", "m"])
    build.output("y", build.op("Slice", x, ints(build, 0), size_of(build, x, 0), ints(build, 1)))
    assert is_left_alone(build.finish(), FoldShapes())


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


def test_equal_lists_of_sizes_are_computed_once() -> None:
    """Every layer of a transformer asks again for the sizes that the layer before had asked for."""
    build = GraphBuilder()
    value = build.input("x", DType.F32, ["n", "m"])
    for _ in range(3):
        swapped = build.op("Concat", size_of(build, value, 1), size_of(build, value, 0), axis=0)
        value = build.op(
            "Relu",
            build.op("Reshape", build.op("Reshape", value, swapped), build.op("Shape", value)),
        )
    build.output("y", value)
    graph = build.finish()
    before = run_at(graph, (3, 5))
    rules = rewrite(graph, FoldShapes())
    assert rules[TWIN] > 0
    assert operators(graph).count("Concat") == 1
    assert set(buried(graph).values()) <= {Reason.CSE, Reason.ABSORBED}
    np.testing.assert_array_equal(run_at(graph, (3, 5))[0], before[0])


def test_one_walk_settles_what_depends_on_what_it_finds() -> None:
    """A size that goes through real numbers, into Resize, and is asked for again after it."""
    build = GraphBuilder()
    value = build.input("x", DType.F32, [1, 1, 4, 4])
    for _ in range(3):
        shape = build.op("Slice", build.op("Shape", value), ints(build, 2), ints(build, 4))
        doubled = build.op(
            "Cast",
            build.op(
                "Floor",
                build.op("Mul", build.op("Cast", shape, to=1), build.const(np.float32(1.5))),
            ),
            to=7,
        )
        value = build.op(
            "Resize",
            value,
            None,
            None,
            build.op("Concat", ints(build, 1, 1), doubled, axis=0),
            mode="nearest",
        )
    build.output("y", value)
    graph = build.finish()
    rewrite(graph, FoldShapes())
    assert operators(graph) == ["Resize"] * 3
    assert graph[max(node.id for node in graph if node.op == "Resize")].type == TensorType(
        DType.F32, (1, 1, 13, 13)
    )


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
