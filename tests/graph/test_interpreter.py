"""Running a graph: binding of inputs, control flow, and errors that name the operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.graph.making import F32X4, X, chain, split_graph, with_branches
from whence.errors import InputError, UnsupportedError, WhenceError
from whence.graph import Graph, Node, Ref
from whence.ops.definition import Attr
from whence.types import DType, SequenceType, TensorType, ValueType

SCALAR_I64 = TensorType(DType.I64, ())
SCALAR_BOOL = TensorType(DType.BOOL, ())
SCALAR = TensorType(DType.F32, ())


class Body:
    """A nested graph in the making."""

    def __init__(self, graph: Graph) -> None:
        self.graph = Graph("body", graph.ledger, graph.inference)

    def input(self, kind: ValueType) -> Ref:
        return self.graph.append(
            Node(self.graph.new_id(), "Input", (), (kind,), name=f"in{len(self.graph.inputs)}")
        ).ref()

    def op(self, op: str, *inputs: Ref, kind: ValueType = SCALAR) -> Ref:
        return self.graph.append(Node(self.graph.new_id(), op, inputs, (kind,))).ref()

    def const(self, value: Any) -> Ref:
        array = np.asarray(value)
        return self.graph.append(
            Node(self.graph.new_id(), "Const", (), (TensorType.of(array),), value=array)
        ).ref()

    def outputs(self, *refs: Ref) -> Graph:
        for ref in refs:
            self.graph.append(
                Node(
                    self.graph.new_id(), "Output", (ref,), (), name=f"out{len(self.graph.outputs)}"
                )
            )
        return self.graph


def holder(
    op: str,
    body: Graph,
    main: Graph,
    inputs: Sequence[Ref | None],
    outputs: Sequence[ValueType],
    **attrs: Attr,
) -> Graph:
    node = main.append(
        Node(main.new_id(), op, inputs, outputs, attrs, name="the loop", bodies={"body": body})
    )
    for index in range(len(outputs)):
        main.append(Node(main.new_id(), "Output", (node.ref(index),), (), name=f"y{index}"))
    return main


def inputs_of(main: Graph, *kinds: ValueType) -> list[Ref]:
    return [
        main.append(Node(main.new_id(), "Input", (), (kind,), name=f"x{index}")).ref()
        for index, kind in enumerate(kinds)
    ]


class TestInputs:
    def test_by_name_or_in_order(self) -> None:
        graph = chain("Neg")
        assert graph.run({"x": X})[0].tolist() == graph.run([X])[0].tolist() == (-X).tolist()

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"z": X}, "unknown input 'z'; the model takes x"),
            ({}, "input 'x' is missing; the model takes x"),
            ([], "0 inputs given; the model takes 1: x"),
            ([X, X], "2 inputs given"),
            ([X.astype(np.float64)], r"input 'x' is f64, the model takes f32\[4\]"),
            ([X[:2]], r"input 'x' has shape \[2\], the model takes f32\[4\]"),
            ([X.reshape(1, 4)], r"input 'x' has shape \[1, 4\]"),
        ],
    )
    def test_mistakes_are_told(self, given: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            chain("Neg").run(given)

    def test_named_dimensions_take_any_size(self) -> None:
        graph = chain("Neg")
        graph.set_types(graph.inputs[0], (TensorType(DType.F32, ("n",)),))
        assert graph.run([X[:3]])[0].shape == (3,)


class TestPlain:
    def test_several_outputs_of_a_node(self) -> None:
        first, second = split_graph(0, 1).run([X])
        assert (first.tolist(), second.tolist()) == ([0, 0], [1, 3])

    def test_every_result_is_observed(self) -> None:
        seen: list[tuple[str, list[float]]] = []
        chain("Relu", "Neg").run(
            [X], observe=lambda node, values: seen.append((node.name, values[0].tolist()))
        )
        assert seen == [("node1", [0, 0, 1, 3]), ("node2", [0, 0, -1, -3])]

    def test_values_nobody_needs_any_more_are_let_go(self) -> None:
        import weakref

        alive: list[weakref.ref[np.ndarray]] = []
        peak = 0

        def observe(node: Node, values: Sequence[Any]) -> None:
            nonlocal peak
            alive.append(weakref.ref(values[0]))
            peak = max(peak, sum(each() is not None for each in alive))

        chain(*["Neg", "Exp"] * 20).run([X], observe=observe)
        assert len(alive) == 40
        assert peak <= 3

    def test_an_error_names_the_operator(self) -> None:
        graph = chain("Relu", "Neg")
        graph[2].op, graph[2].name = "Unknown", "bad\nname"
        with pytest.raises(WhenceError, match=r"operator 'bad\\nname' \(Unknown\)") as caught:
            graph.run([X])
        assert "\n" not in str(caught.value)


class TestIf:
    @pytest.mark.parametrize("condition", [np.array(True), np.array([True])])
    def test_branches(self, condition: np.ndarray) -> None:
        graph = with_branches()
        graph.set_types(graph.inputs[0], (TensorType(DType.BOOL, None),))
        assert graph.run([condition, X])[0].tolist() == [0, 0, 1, 3]
        assert graph.run([~condition, X])[0].tolist() == np.abs(X).tolist()

    def test_an_error_inside_names_both(self) -> None:
        graph = with_branches()
        graph[1].bodies["then_branch"][2].op = "Unknown"
        with pytest.raises(
            WhenceError,
            match=(
                r"operator 'If_1' \(If\): operator 'Relu_2' \(Relu\): operator 'Unknown' is not"
                r" known"
            ),
        ):
            graph.run([np.array(True), X])


def counting_loop(inputs: Sequence[int | None], *, limit: float = 1e9) -> Graph:
    """carried -> carried + step, going on while carried < limit; gives the last value and all
    values.
    """
    main = Graph()
    refs = inputs_of(main, SCALAR_I64, SCALAR_BOOL, SCALAR, SCALAR)
    body = Body(main)
    body.input(SCALAR_I64)
    body.input(SCALAR_BOOL)
    value, step = body.input(SCALAR), body.input(SCALAR)
    total = body.op("Add", value, step)
    going = body.op("Less", total, body.const(np.float32(limit)), kind=SCALAR_BOOL)
    graph = body.outputs(going, total, total)
    chosen = [None if index is None else refs[index] for index in inputs]
    return holder("Loop", graph, main, chosen, (SCALAR, TensorType(DType.F32, (None,))), captures=1)


class TestLoop:
    def run(
        self, graph: Graph, trips: int = 3, going: bool = True, start: float = 10, step: float = 2
    ) -> tuple[float, list[float]]:
        last, every = graph.run(
            [np.int64(trips), np.bool_(going), np.float32(start), np.float32(step)]
        )
        return float(last), every.tolist()

    def test_trip_count(self) -> None:
        assert self.run(counting_loop([0, 1, 2, 3])) == (16, [12, 14, 16])

    def test_condition(self) -> None:
        assert self.run(counting_loop([0, 1, 2, 3], limit=13)) == (14, [12, 14])
        assert self.run(counting_loop([None, None, 2, 3], limit=15)) == (16, [12, 14, 16])
        assert self.run(counting_loop([None, 1, 2, 3], limit=15)) == (16, [12, 14, 16])

    @pytest.mark.parametrize(("trips", "going"), [(0, True), (3, False)])
    def test_no_iteration_at_all(self, trips: int, going: bool) -> None:
        graph = counting_loop([0, 1, 2, 3])
        assert self.run(graph, trips, going) == (10, [])

    def test_nothing_but_scan_outputs(self) -> None:
        # No trip count, no condition, nothing carried, nothing captured: the inputs are trimmed
        # away.
        main = Graph()
        body = Body(main)
        iteration = body.input(SCALAR_I64)
        body.input(SCALAR_BOOL)
        going = body.op("Less", iteration, body.const(np.int64(4)), kind=SCALAR_BOOL)
        graph = holder(
            "Loop", body.outputs(going, iteration), main, (), (TensorType(DType.I64, (None,)),)
        )
        assert graph.run([])[0].tolist() == [0, 1, 2, 3, 4]

    def test_a_scan_output_of_unknown_type_needs_an_iteration(self) -> None:
        main = Graph()
        refs = inputs_of(main, SCALAR_I64)
        body = Body(main)
        body.input(SCALAR_I64)
        going = body.input(SCALAR_BOOL)
        row = body.op("Identity", going, kind=TensorType(DType.UNDEFINED))
        graph = holder("Loop", body.outputs(going, row), main, refs, (TensorType(DType.UNDEFINED),))
        assert graph.run([np.int64(1)])[0].tolist() == [True]
        with pytest.raises(UnsupportedError, match="'the loop'"):
            graph.run([np.int64(0)])


def summing_scan(**attrs: Attr) -> Graph:
    """state -> state + row; gives the last state and every state."""
    main = Graph()
    refs = inputs_of(main, TensorType(DType.F32, (2,)), TensorType(DType.F32, (None, None)))
    body = Body(main)
    state, row = body.input(TensorType(DType.F32, (2,))), body.input(TensorType(DType.F32, (2,)))
    total = body.op("Add", state, row, kind=TensorType(DType.F32, (2,)))
    return holder(
        "Scan",
        body.outputs(total, total),
        main,
        refs,
        (TensorType(DType.F32, (2,)), TensorType(DType.F32, None)),
        num_scan_inputs=1,
        **attrs,
    )


class TestScan:
    ROWS = np.arange(6, dtype=np.float32).reshape(3, 2)

    def test_forwards(self) -> None:
        last, every = summing_scan().run([np.zeros(2, np.float32), self.ROWS])
        assert last.tolist() == [6, 9]
        assert every.tolist() == [[0, 1], [2, 4], [6, 9]]

    def test_axes_and_directions(self) -> None:
        graph = summing_scan(
            scan_input_axes=(1,),
            scan_input_directions=(1,),
            scan_output_axes=(-1,),
            scan_output_directions=(1,),
        )
        last, every = graph.run([np.zeros(2, np.float32), self.ROWS.T])
        assert last.tolist() == [6, 9]
        assert every.tolist() == [[6, 6, 4], [9, 8, 5]]

    def test_no_rows(self) -> None:
        last, every = summing_scan().run([np.ones(2, np.float32), np.zeros((0, 2), np.float32)])
        assert last.tolist() == [1, 1]
        assert every.shape == (0, 2)


class TestSequenceMap:
    def test_each_item_with_a_captured_value(self) -> None:
        main = Graph()
        refs = inputs_of(main, SequenceType(F32X4), F32X4)
        body = Body(main)
        item, captured = body.input(F32X4), body.input(F32X4)
        graph = holder(
            "SequenceMap",
            body.outputs(body.op("Add", item, captured, kind=F32X4)),
            main,
            refs,
            (SequenceType(F32X4),),
            captures=1,
        )
        (result,) = graph.run([[X, 2 * X], X])
        assert [each.tolist() for each in result] == [(2 * X).tolist(), (3 * X).tolist()]
        assert graph.run([[], X]) == [[]]
