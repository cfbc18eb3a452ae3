"""Transposes move through operators to where they meet, and only where that makes them fewer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.passes.rewriting import carried, is_left_alone, only, operators, rewrite
from whence.graph import Graph
from whence.graph.builder import GraphBuilder, Symbol
from whence.graph.structure import structure
from whence.passes.layout import sink_transposes
from whence.passes.layout.sink_transposes import SinkTransposes
from whence.passes.layout.transposed_op import rewritten
from whence.passes.manager import run_passes
from whence.passes.simplify.remove_dead_nodes import RemoveDeadNodes
from whence.provenance import Reason
from whence.types import DType

LAST, FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
"""Channels last, and channels first again."""
SHAPE = (2, 3, 4, 5)


def turn(build: GraphBuilder, x: Symbol, perm: tuple[int, ...], name: str = "") -> Symbol:
    return build.op("Transpose", x, name=name, perm=perm)


def ints(build: GraphBuilder, *values: int) -> Symbol:
    return build.const(np.array(values, np.int64))


def floats(build: GraphBuilder, *shape: int) -> Symbol:
    return build.const(
        (np.arange(np.prod(shape, dtype=int)) % 7 + 1).reshape(shape).astype(np.float32)
    )


def finished(build: GraphBuilder, *results: Symbol) -> Graph:
    for index, y in enumerate(results):
        build.output(f"y{index}", y)
    return build.finish()


def test_through_elementwise_operators() -> None:
    build = GraphBuilder()
    x = turn(build, build.input("x", DType.F32, SHAPE), LAST, name="there")
    y = build.op(
        "Clip",
        build.op("Relu", x, name="relu"),
        build.const(np.float32(0)),
        build.const(np.float32(6)),
        name="clip",
    )
    graph = finished(build, turn(build, y, FIRST, name="back"))

    expected = GraphBuilder()
    y = expected.op("Relu", expected.input("x", DType.F32, SHAPE))
    y = expected.op("Clip", y, expected.const(np.float32(0)), expected.const(np.float32(6)))
    assert rewrite(graph, SinkTransposes()) == {
        "f(transpose(x)) = transpose(f(x))": 2,
        "transpose(transpose(x)) = x": 1,
    }
    assert structure(graph) == structure(finished(expected, y))
    assert carried(graph, only(graph, "Relu")) == (["relu"], [])
    stones = {
        graph.ledger.source(source).name: stone.reason
        for stone in graph.ledger.tombstones
        for source in stone.origin
    }
    assert stones == {"there": Reason.CANCELLED, "back": Reason.CANCELLED}


def test_through_operators_that_only_look_as_if_they_broadcast() -> None:
    """BitCast has one operand, SwiGLU two of one shape: both work element by element, whatever the
    order of axes.
    """
    build = GraphBuilder()
    gate = turn(build, build.input("gate", DType.F32, SHAPE), LAST)
    linear = turn(build, build.input("linear", DType.F32, SHAPE), LAST)
    bits = build.op("BitCast", build.op("SwiGLU", gate, linear), to=int(DType.I32))
    graph = finished(build, turn(build, bits, FIRST))
    assert rewrite(graph, SinkTransposes())["f(transpose(x)) = transpose(f(x))"] == 2
    assert operators(graph) == ["SwiGLU", "BitCast"]


def test_not_through_an_operator_with_an_operand_that_is_no_data() -> None:
    """The transpose of a shape, of axes or of a type is not that of the result."""
    for op, other in (("Expand", (2, 4, 5, 3)), ("Unsqueeze", (4,))):
        build = GraphBuilder()
        x = turn(build, build.input("x", DType.F32, SHAPE), LAST)
        graph = finished(
            build,
            turn(
                build,
                build.op("Relu", build.op(op, x, ints(build, *other))),
                FIRST + (4,) * (op == "Unsqueeze"),
            ),
        )
        assert is_left_alone(graph, SinkTransposes())


def through(op: str, *more: Any, outputs: int = 1, **attrs: Any) -> Graph:
    """Channels last, the operator, channels first again."""
    build = GraphBuilder()
    x = turn(build, build.input("x", DType.F32, SHAPE), LAST)
    y = build.op(
        op,
        x,
        *(None if value is None else build.const(value) for value in more),
        n_outputs=outputs,
        **attrs,
    )
    return finished(build, *(turn(build, y[index], FIRST) for index in range(outputs)))


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


CASES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("Softmax", (), {"axis": -1}),
    ("LogSoftmax", (), {"axis": 1}),
    ("ReduceMean", (i64(1, 2),), {"keepdims": 1}),
    ("ReduceMax", (i64(-1),), {}),
    ("ReduceSum", (), {}),
    ("ArgMax", (), {"axis": 3}),
    ("Pad", (i64(0, 1, 2, 3, 0, 4, 5, 6),), {}),
    ("Pad", (i64(1, 2, 3, 4), None, i64(3, -3)), {"mode": "edge"}),
    ("Slice", (i64(1, 0), i64(3, 2), i64(1, -1), i64(1, 1)), {}),
    ("Slice", (i64(0, 1), i64(2, 3)), {}),
    ("Split", (i64(1, 2),), {"axis": 3, "outputs": 2}),
    ("Split", (), {"axis": 1, "num_outputs": 2, "outputs": 2}),
    ("Mul", (np.float32(3),), {}),
    ("Mul", (np.arange(3, dtype=np.float32),), {}),
    ("Add", (np.arange(15, dtype=np.float32).reshape(5, 3),), {}),
    ("PRelu", (np.arange(60, dtype=np.float32).reshape(4, 5, 3),), {}),
    ("Greater", (np.arange(5, dtype=np.float32).reshape(1, 1, 5, 1),), {}),
    ("Cast", (), {"to": int(DType.F16)}),
    ("QuantizeLinear", (np.float32(0.1), np.uint8(3)), {}),
    (
        "QuantizeLinear",
        (np.array([0.1, 0.2, 0.3], np.float32), np.array([1, 2, 3], np.uint8)),
        {"axis": -1},
    ),
    ("Concat", (np.ones((2, 1, 5, 3), np.float32),), {"axis": 1}),
    ("LeakyRelu", (), {"alpha": 0.2}),
]


@pytest.mark.parametrize(("op", "more", "attrs"), CASES)
def test_through_each_operator(op: str, more: tuple[Any, ...], attrs: dict[str, Any]) -> None:
    graph = through(op, *more, **attrs)
    rewrite(graph, SinkTransposes())
    assert operators(graph) == [op]


def test_where_with_all_kinds_of_operands() -> None:
    build = GraphBuilder()
    x, y = (turn(build, build.input(name, DType.F32, SHAPE), LAST) for name in "xy")
    chosen = build.op(
        "Where",
        build.op("Less", x, y),
        build.op("Mul", x, build.input("s", DType.F32, [1])),
        floats(build, 5, 3),
    )
    graph = finished(build, turn(build, chosen, FIRST))
    rewrite(graph, SinkTransposes())
    assert operators(graph) == ["Less", "Mul", "Where"]


def test_a_reduction_may_make_the_order_right() -> None:
    build = GraphBuilder()
    x = turn(build, build.input("x", DType.F32, SHAPE), LAST, name="turn")
    y = build.op("ReduceMean", x, ints(build, 1, 2), name="mean", keepdims=0)
    graph = finished(build, build.op("MatMul", y, floats(build, 3, 2)))
    rewrite(graph, SinkTransposes())
    assert operators(graph) == ["ReduceMean", "MatMul"]
    assert carried(graph, only(graph, "ReduceMean")) == (["mean"], [])
    (stone,) = graph.ledger.tombstones
    assert (stone.reason, stone.into) == (Reason.CANCELLED, only(graph, "ReduceMean").id)


def test_a_reduction_that_leaves_another_order() -> None:
    build = GraphBuilder()
    x = turn(build, build.input("x", DType.F32, SHAPE), (3, 1, 2, 0))
    y = build.op("ReduceSum", x, ints(build, 1), keepdims=0)
    graph = finished(build, turn(build, y, (2, 1, 0)))
    rewrite(graph, SinkTransposes())
    assert operators(graph) == ["ReduceSum"]


def test_two_transposes_join_into_one() -> None:
    build = GraphBuilder()
    x, y = (
        turn(build, build.input(name, DType.F32, SHAPE), LAST, name=f"turn_{name}") for name in "xy"
    )
    graph = finished(
        build, build.op("MatMul", build.op("Concat", x, y, axis=3), floats(build, 6, 2))
    )
    rewrite(graph, SinkTransposes())
    assert operators(graph) == ["Concat", "Transpose", "MatMul"]
    assert only(graph, "Concat").attrs == {"axis": 1}
    assert carried(graph, only(graph, "Transpose")) == (["turn_x", "turn_y"], [])


def residual(build: GraphBuilder) -> Symbol:
    """Blocks as TensorFlow exports them: convolutions between transposes, the rest channels
    last.
    """
    x = turn(
        build,
        build.op("Conv", build.input("x", DType.F32, [1, 2, 4, 4]), floats(build, 2, 2, 1, 1)),
        LAST,
    )
    for _ in range(2):
        x = build.op("Relu", x)
        inner = build.op("Conv", turn(build, x, FIRST), floats(build, 2, 2, 1, 1))
        x = build.op("Add", x, build.op("Mul", turn(build, inner, LAST), floats(build, 2)))
    return build.op("ReduceMean", x, ints(build, 1, 2), keepdims=0)


def test_residual_blocks_lose_all_their_transposes() -> None:
    build = GraphBuilder()
    graph = finished(build, residual(build))
    rewrite(graph, SinkTransposes())
    assert "Transpose" not in operators(graph)


def test_where_it_saves_nothing_all_stays() -> None:
    build = GraphBuilder()
    x = turn(build, build.input("x", DType.F32, SHAPE), LAST)
    one = build.op("MatMul", build.op("Relu", x), floats(build, 3, 2))
    two = build.op("MatMul", build.op("Exp", x), floats(build, 3, 2))
    assert is_left_alone(finished(build, one, two), SinkTransposes())


def test_only_the_branch_that_gains_is_turned() -> None:
    build = GraphBuilder()
    x = turn(build, build.input("x", DType.F32, SHAPE), LAST)
    y = build.op("Neg", x)
    back = turn(build, build.op("Relu", y), FIRST)
    one = build.op("MatMul", build.op("Exp", y), floats(build, 3, 2))
    two = build.op("MatMul", build.op("Tanh", y), floats(build, 3, 2))
    graph = finished(build, back, one, two)
    rewrite(graph, SinkTransposes())
    assert operators(graph).count("Transpose") == 1
    assert len(operators(graph)) == 7


def test_operators_that_mind_the_order_of_axes() -> None:
    def reshaped(build: GraphBuilder, x: Symbol) -> Symbol:
        return build.op("Reshape", x, ints(build, 2, 4, 5, 3))

    def with_stranger(build: GraphBuilder, x: Symbol) -> Symbol:
        return build.op("Add", x, build.input("z", DType.F32, [2, 4, 5, 3]))

    def of_higher_rank(build: GraphBuilder, x: Symbol) -> Symbol:
        return build.op(
            "ReduceSum",
            build.op("Add", x, floats(build, 2, 1, 1, 1, 1)),
            ints(build, 0),
            keepdims=0,
        )

    def with_open_axes(build: GraphBuilder, x: Symbol) -> Symbol:
        return build.op("ReduceSum", x, build.input("axes", DType.I64, [1]))

    for form in (reshaped, with_stranger, of_higher_rank, with_open_axes):
        build = GraphBuilder()
        x = turn(build, build.input("x", DType.F32, SHAPE), LAST)
        assert is_left_alone(finished(build, turn(build, form(build, x), FIRST)), SinkTransposes())


def test_an_output_wants_the_value_as_it_is() -> None:
    build = GraphBuilder()
    x = turn(build, build.input("x", DType.F32, SHAPE), LAST)
    assert is_left_alone(finished(build, build.op("Relu", x)), SinkTransposes())


def test_transposes_meet_over_any_distance() -> None:
    build = GraphBuilder()
    y = turn(build, build.input("x", DType.F32, SHAPE), LAST)
    for _ in range(500):
        y = build.op("Abs", y)
    graph = finished(build, turn(build, y, FIRST))
    rewrite(graph, SinkTransposes())
    assert set(operators(graph)) == {"Abs"}


def test_branches_that_meet_again_move_together() -> None:
    """Neither transpose alone gets past the addition, whose other operand is no transpose."""
    build = GraphBuilder()
    a, b = (
        build.op(op, turn(build, build.input(name, DType.F32, SHAPE), LAST))
        for op, name in (("Relu", "a"), ("Abs", "b"))
    )
    graph = finished(build, turn(build, build.op("Add", a, b), FIRST))
    rewrite(graph, SinkTransposes())
    assert sorted(operators(graph)) == ["Abs", "Add", "Relu"]


def test_regions_are_judged_one_by_one() -> None:
    """What one region saves does not pay for another that saves nothing."""
    build = GraphBuilder()
    x = turn(build, build.input("x", DType.F32, SHAPE), LAST)
    build.output("kept", build.op("Relu", x))
    y = turn(build, build.op("Neg", turn(build, build.input("y", DType.F32, SHAPE), LAST)), FIRST)
    graph = finished(build, y)
    rewrite(graph, SinkTransposes())
    assert operators(graph) == ["Transpose", "Relu", "Neg"]


@pytest.mark.parametrize("named", [False, True])
def test_through_resize(named: bool) -> None:
    build = GraphBuilder()
    x = turn(build, build.input("x", DType.F32, SHAPE), LAST)
    scales = [1.0, 2.0, 3.0, 1.0]
    extra: dict[str, Any] = {"axes": (1, 2)} if named else {}
    factors = build.const(np.array(scales[1:3] if named else scales, np.float32))
    graph = finished(
        build, turn(build, build.op("Resize", x, None, factors, mode="nearest", **extra), FIRST)
    )
    rewrite(graph, SinkTransposes())
    assert operators(graph) == ["Resize"]


def test_through_tables_and_scales() -> None:
    build = GraphBuilder()
    x = turn(build, build.input("x", DType.I8, SHAPE), LAST)
    y = build.op("LookUp", x, build.const(np.arange(256, dtype=np.int32)))
    y = build.op("FixedPointScale", y, build.const(np.int32(1 << 30)), build.const(np.int32(-2)))
    graph = finished(build, turn(build, y, FIRST))
    rewrite(graph, SinkTransposes())
    assert operators(graph) == ["LookUp", "FixedPointScale"]


def test_a_scale_for_each_channel_keeps_channels_last() -> None:
    build = GraphBuilder()
    x = turn(build, build.input("x", DType.I32, SHAPE), LAST)
    channels = SHAPE[1]
    y = build.op(
        "FixedPointScale",
        x,
        build.const(np.full(channels, 1 << 30, np.int32)),
        build.const(np.zeros(channels, np.int32)),
    )
    assert is_left_alone(finished(build, turn(build, y, FIRST)), SinkTransposes())


UNARY = ("Relu", "Neg", "Tanh")


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Random graphs of transposes, elementwise operators, sums, concatenations and reductions over
    values of one shape and two orders.
    """
    build = GraphBuilder()
    values: dict[tuple[int, ...], list[Symbol]] = {
        (2, 3, 4): [build.input("x", DType.F32, [2, 3, 4]), build.input("y", DType.F32, [2, 3, 4])]
    }
    for _ in range(draw(st.integers(1, 14))):
        shape = draw(st.sampled_from(sorted(values)))
        value = draw(st.sampled_from(values[shape]))
        kind = draw(
            st.sampled_from(
                ["turn", "turn", "turn", "unary", "unary", "join", "const", "softmax", "reduce"]
            )
        )
        if kind == "turn":
            perm = draw(st.sampled_from([(1, 2, 0), (2, 0, 1), (0, 2, 1), (1, 0, 2)]))
            value, shape = turn(build, value, perm), tuple(shape[axis] for axis in perm)
        elif kind == "unary":
            value = build.op(draw(st.sampled_from(UNARY)), value)
        elif kind == "join":
            value = build.op("Add", value, draw(st.sampled_from(values[shape])))
        elif kind == "const":
            value = build.op("Mul", value, floats(build, shape[2]))
        elif kind == "softmax":
            value = build.op("Softmax", value, axis=draw(st.integers(-3, 2)))
        else:
            axis = draw(st.integers(0, 2))
            value = build.op(
                "Add", value, build.op("ReduceMax", value, ints(build, axis), keepdims=1)
            )
        values.setdefault(shape, []).append(value)
    build.output("last", value)
    build.output("other", draw(st.sampled_from(values[draw(st.sampled_from(sorted(values)))])))
    return build.finish()


@settings(max_examples=200)
@given(graphs())
def test_transposes_never_grow_in_number(graph: Graph) -> None:
    run_passes(graph, (RemoveDeadNodes(),))
    before = graph.op_counts.get("Transpose", 0)
    rewrite(graph, SinkTransposes())
    assert graph.op_counts.get("Transpose", 0) <= before


def test_through_a_quantisation_that_finds_its_own_scale() -> None:
    """The scale and the zero point have no axes to turn."""
    build = GraphBuilder()
    made = build.op(
        "DynamicQuantizeLinear", turn(build, build.input("x", DType.F32, SHAPE), LAST), n_outputs=3
    )
    graph = finished(build, turn(build, made, FIRST), made[1], made[2])
    rewrite(graph, SinkTransposes())
    assert operators(graph) == ["DynamicQuantizeLinear"]


def test_a_vector_that_is_not_constant_is_reshaped() -> None:
    build = GraphBuilder()
    x = turn(build, build.input("x", DType.F32, SHAPE), FIRST)
    bias = build.input("bias", DType.F32, (5, 1, 1))
    graph = finished(build, turn(build, build.op("Add", x, bias), LAST))
    rewrite(graph, SinkTransposes())
    assert operators(graph) == ["Reshape", "Add"]
    assert str(graph.type_of(only(graph, "Reshape").ref())) == "f32[1,1,1,5]"


def _chain(cycle: tuple[str, ...], length: int) -> Graph:
    """Operators in a row: "there" and "back" are transposes that undo each other."""
    build = GraphBuilder()
    x: Symbol = build.input("x", DType.F32, [3, 4, 5])
    table = floats(build, 3, 4, 5)
    for number in range(length):
        op = cycle[number % len(cycle)]
        if op in ("there", "back"):
            x = turn(build, x, (2, 0, 1) if op == "there" else (1, 2, 0))
        else:
            x = build.op(op, x, table) if op == "Add" else build.op(op, x)
    return finished(build, x)


def test_neighbours_cancel_before_anything_moves() -> None:
    """Or whole chains would be turned, constants with them, for transposes that stand together."""
    graph = _chain(("Relu", "Add", "there", "back"), 40)
    (report,) = run_passes(graph, [SinkTransposes()])
    assert report.rules == {"transpose(transpose(x)) = x": 10}
    assert report.added == 0
    assert operators(graph) == ["Relu", "Add"] * 10


@pytest.mark.parametrize(
    "cycle",
    [
        ("Relu", "there", "Exp", "Sigmoid", "back"),
        ("there", "Relu", "Exp"),
        ("there", *("Relu",) * 70),
        ("there", "Relu", "Softplus", "back", "Exp", "back"),
    ],
)
def test_work_grows_as_the_graph_does(
    cycle: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = 0

    def count(*args: Any) -> Any:
        nonlocal looked_at
        looked_at += 1
        return rewritten(*args)

    monkeypatch.setattr(sink_transposes, "rewritten", count)
    work = []
    for length in (420, 1680):
        looked_at = 0
        (report,) = run_passes(_chain(cycle, length), [SinkTransposes()])
        work.append((looked_at, report.changes))
    for small, large in zip(*work, strict=True):
        assert large <= 5 * small
