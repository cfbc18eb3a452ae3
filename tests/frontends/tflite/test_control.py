"""Branches, loops, calls and variables, against LiteRT."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontends.tflite.making import Model, Subgraph, check, read
from whence.api import prepare
from whence.errors import ModelError, UnsupportedError, WhenceError
from whence.graph.check import Check, check_graph
from whence.graph.outcomes import outcomes
from whence.provenance import Outcome

X = np.array([1, 2, 3], np.float32)


def branch(model: Model, name: str, op: str, number: float) -> int:
    index, graph = model.subgraph(name)
    graph.output(graph.op(op, [graph.input((3,)), graph.const(number)], (3,)))
    return index


@pytest.mark.parametrize("condition", [True, False])
def test_if(condition):
    model = Model()
    flag, x = model.input((), np.bool_), model.input((3,))
    then, otherwise = branch(model, "then", "ADD", 10.0), branch(model, "else", "MUL", 2.0)
    model.output(
        model.op("IF", [flag, x], (3,), then_subgraph_index=then, else_subgraph_index=otherwise)
    )
    check(model, [np.array(condition), X])


def test_all_operators_of_both_branches_are_sources():
    model = Model()
    flag, x = model.input((), np.bool_), model.input((3,))
    then, otherwise = branch(model, "then", "ADD", 10.0), branch(model, "else", "MUL", 2.0)
    model.output(
        model.op("IF", [flag, x], (3,), then_subgraph_index=then, else_subgraph_index=otherwise)
    )
    graph = read(model.bytes())
    assert sorted(source.op for source in graph.ledger.sources) == ["ADD", "IF", "MUL"]
    assert graph.ledger.lost() == []


def less_than(graph: Subgraph, limit: int, extra: tuple[int, ...] = (3,)) -> None:
    number = graph.input((), np.int32)
    graph.input(extra)
    graph.output(graph.op("LESS", [number, graph.const(limit, np.int32)], (), np.bool_))


def loop(limit: int) -> Model:
    model = Model()
    condition, asking = model.subgraph("cond")
    less_than(asking, limit)
    body, iteration = model.subgraph("body")
    number, value = iteration.input((), np.int32), iteration.input((3,))
    iteration.output(iteration.op("ADD", [number, iteration.const(1, np.int32)], (), np.int32))
    iteration.output(iteration.op("MUL", [value, iteration.const(2.0)], (3,)))
    state = [model.input((), np.int32), model.input((3,))]
    outputs = [model.tensor((), np.int32), model.tensor((3,))]
    model.op(
        "WHILE", state, outputs=outputs, cond_subgraph_index=condition, body_subgraph_index=body
    )
    model.output(*outputs)
    return model


@pytest.mark.parametrize("start", [0, 3, 7])
def test_while(start):
    count, value = check(loop(5), [np.array(start, np.int32), X])
    assert int(count) == max(start, 5)
    assert value.tolist() == (X * 2 ** max(0, 5 - start)).tolist()


def growing() -> Model:
    """A loop whose value is longer after each iteration."""
    model = Model()
    condition, asking = model.subgraph("cond")
    number = asking.input((), np.int32)
    asking.input((1,), signature=(-1,))
    asking.output(asking.op("LESS", [number, asking.const(3, np.int32)], (), np.bool_))
    body, iteration = model.subgraph("body")
    number, value = iteration.input((), np.int32), iteration.input((1,), signature=(-1,))
    iteration.output(iteration.op("ADD", [number, iteration.const(1, np.int32)], (), np.int32))
    iteration.output(iteration.op("CONCATENATION", [value, value], (2,), axis=0))
    state = [model.input((), np.int32), model.input((1,))]
    outputs = [model.tensor((), np.int32), model.tensor((1,), signature=(-1,))]
    model.op(
        "WHILE", state, outputs=outputs, cond_subgraph_index=condition, body_subgraph_index=body
    )
    model.output(*outputs)
    return model


def test_a_value_may_grow_from_iteration_to_iteration():
    _, value = check(growing(), [np.array(0, np.int32), np.ones(1, np.float32)])
    assert value.shape == (8,)


def _add_growing_loop(model: Model, place: Subgraph, depth: int) -> int:
    """A loop whose value grows, and in it another one on a value of its own; what it makes."""
    condition, asking = model.subgraph("cond")
    asking.input((1,))
    asking.output(asking.const(np.array(False)))
    body, iteration = model.subgraph("body")
    value = iteration.input((1,))
    iteration.output(iteration.op("CONCATENATION", [value, value], (2,), axis=0))
    if depth:
        _add_growing_loop(model, iteration, depth - 1)
    start = place.op("RELU", [place.const(np.ones(1, np.float32))], (1,))
    return place.op(
        "WHILE",
        [start],
        outputs=[place.tensor((1,))],
        cond_subgraph_index=condition,
        body_subgraph_index=body,
    )


def test_loops_in_loops_are_not_tried_without_end():
    """Each is read twice, since its value grows, and with it all that it holds."""
    for depth in (3, 24):
        model = Model()
        model.output(_add_growing_loop(model, model, depth))
        if depth == 3:
            check_graph(read(model), Check.ORIGIN)
        else:
            with pytest.raises(UnsupportedError, match="loops inside loops"):
                read(model)


def stateful() -> Model:
    """y = x + v, then v = y; v starts at 5."""
    model = Model()
    once, preparing = model.subgraph("init")
    handle = preparing.op(
        "VAR_HANDLE",
        [],
        (),
        options="VarHandleOptions",
        shared_name="v",
        outputs=[preparing.tensor((), type_name="RESOURCE")],
    )
    preparing.op("ASSIGN_VARIABLE", [handle, preparing.const([5.0, 5.0])], outputs=[])
    x = model.input((2,))
    model.op("CALL_ONCE", [], outputs=[], init_subgraph_index=once)
    handle = model.op(
        "VAR_HANDLE",
        [],
        (),
        options="VarHandleOptions",
        shared_name="v",
        outputs=[model.tensor((), type_name="RESOURCE")],
    )
    before = model.op("READ_VARIABLE", [handle], (2,))
    after = model.op("ADD", [x, before], (2,))
    model.op("ASSIGN_VARIABLE", [handle, after], outputs=[])
    model.output(model.op("READ_VARIABLE", [handle], (2,)))
    return model


def test_a_variable_has_the_value_last_assigned():
    (value,) = check(stateful(), [np.array([1, 2], np.float32)], reference=False)
    assert value.tolist() == [6, 7]


def test_what_is_assigned_is_computed_though_this_run_does_not_read_it():
    model = stateful()
    doubled = model.op("MUL", [model.input((2,)), model.const(2.0)], (2,))
    handle = model.op(
        "VAR_HANDLE",
        [],
        (),
        options="VarHandleOptions",
        shared_name="v",
        outputs=[model.tensor((), type_name="RESOURCE")],
    )
    model.op("ASSIGN_VARIABLE", [handle, doubled], outputs=[])
    graph = prepare(read(model.bytes()))
    found = [
        (source.op, fate)
        for source, fate in zip(graph.ledger.sources, outcomes(graph), strict=True)
    ]
    assert ("MUL", Outcome.LIVE) in found
    # The second assigns to the same variable after the first, so that no run sees what that did;
    # the third gives it its initial value, which is done before the first run.
    assert [fate for op, fate in found if op == "ASSIGN_VARIABLE"] == [
        Outcome.DEAD,
        Outcome.LIVE,
        Outcome.FOLDED,
    ]


def test_a_variable_that_nothing_assigned():
    model = Model()
    handle = model.op(
        "VAR_HANDLE",
        [],
        (),
        options="VarHandleOptions",
        shared_name="v",
        outputs=[model.tensor((), type_name="RESOURCE")],
    )
    model.output(model.op("READ_VARIABLE", [handle], (2,)))
    with pytest.raises(ModelError, match="before it has a value"):
        read(model.bytes())


def test_initial_values_are_not_computed_by_a_loop_that_may_never_end():
    model = Model()
    once, preparing = model.subgraph("init")
    made = _add_growing_loop(model, preparing, 0)
    handle: dict[str, Any] = {"options": "VarHandleOptions", "shared_name": "v"}
    for place in (preparing, model):
        if place is model:
            model.op("CALL_ONCE", [], outputs=[], init_subgraph_index=once)
        resource = place.tensor((), type_name="RESOURCE")
        place.op("VAR_HANDLE", [], outputs=[resource], **handle)
        if place is model:
            model.output(model.op("READ_VARIABLE", [resource], (1,)))
        else:
            place.op("ASSIGN_VARIABLE", [resource, made], outputs=[])
    with pytest.raises(UnsupportedError, match="computed in a loop"):
        read(model)


def test_a_subgraph_that_calls_itself_does_not_hang():
    model = Model()
    index, graph = model.subgraph("again")
    inner = graph.input((3,))
    graph.output(
        graph.op(
            "IF",
            [graph.const(True), inner],
            (3,),
            then_subgraph_index=index,
            else_subgraph_index=index,
        )
    )
    x = model.input((3,))
    model.output(
        model.op(
            "IF", [model.const(True), x], (3,), then_subgraph_index=index, else_subgraph_index=index
        )
    )
    with pytest.raises(WhenceError, match="calls itself"):
        read(model.bytes())


@pytest.mark.parametrize("wrong", [-1, 9])
def test_a_subgraph_that_is_not_there(wrong):
    model = Model()
    x = model.input((3,))
    model.output(
        model.op(
            "IF", [model.const(True), x], (3,), then_subgraph_index=wrong, else_subgraph_index=wrong
        )
    )
    with pytest.raises(WhenceError, match="does not exist"):
        read(model.bytes())


def test_a_condition_that_is_no_truth_value():
    model = Model()
    condition, asking = model.subgraph("cond")
    asking.output(asking.op("ADD", [asking.input((3,)), asking.const(1.0)], (3,)))
    body, iteration = model.subgraph("body")
    iteration.output(iteration.op("ADD", [iteration.input((3,)), iteration.const(1.0)], (3,)))
    model.output(
        model.op(
            "WHILE",
            [model.input((3,))],
            (3,),
            cond_subgraph_index=condition,
            body_subgraph_index=body,
        )
    )
    with pytest.raises(ModelError, match="truth value"):
        read(model.bytes())


def test_a_condition_without_elements_does_not_go_on():
    """As in onert: LiteRT does not take such a file."""
    model = Model()
    condition, asking = model.subgraph("cond")
    asking.output(asking.op("LESS", [asking.input((0, 3)), asking.const(1.0)], (0, 3), np.bool_))
    body, iteration = model.subgraph("body")
    iteration.output(iteration.op("ADD", [iteration.input((0, 3)), iteration.const(1.0)], (0, 3)))
    model.output(
        model.op(
            "WHILE",
            [model.input((0, 3))],
            (0, 3),
            cond_subgraph_index=condition,
            body_subgraph_index=body,
        )
    )
    (found,) = read(model.bytes()).run([np.zeros((0, 3), np.float32)])
    assert found.shape == (0, 3)
