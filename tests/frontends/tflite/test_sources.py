"""Where the operators of a file come from: itself, or the tables it carries."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.frontends.tflite.making import Model, read
from whence.cli.why import find_source
from whence.errors import ModelError
from whence.frontends.tflite.records import read_records
from whence.frontends.tflite.serialise import serialise
from whence.frontends.tflite.sources import NO_NAME, SOURCE_IDS, find_sources
from whence.frontends.tflite.writer import to_records
from whence.graph.check import check_graph
from whence.graph.outcomes import coverage, outcomes
from whence.provenance import Outcome, Reason
from whence.provenance.luci_tables import OP_TABLE, SOURCE_TABLE


def chain(*, circle: bool = False, names=("first", "second", "third")) -> Model:
    model = Model(circle=circle)
    value = model.input((2, 3), name="x")
    for op, name in zip(("ABS", "SQRT", "EXP"), names, strict=True):
        made = model.tensor((2, 3), name=name)
        model.made.tensors[made].name = name.encode() or None
        model.op(op, [value], outputs=[made])
        value = made
    model.output(value)
    return model


def with_tables(model: Model, sources, ops) -> Model:
    model.metadata["ONE_source_table"] = SOURCE_TABLE.encode(sources)
    model.metadata["ONE_op_table"] = OP_TABLE.encode(
        {key: frozenset(ids) for key, ids in ops.items()}
    )
    return model


def test_operators_are_numbered_in_file_order_and_named_after_their_outputs():
    graph = read(chain())
    assert [(each.id, each.name, each.op, each.outputs) for each in graph.ledger.sources] == [
        (1, "first", "ABS", ("first",)),
        (2, "second", "SQRT", ("second",)),
        (3, "third", "EXP", ("third",)),
    ]
    assert [(node.id, node.op) for node in graph if node.op not in ("Input", "Output")] == [
        (1, "Abs"),
        (2, "Sqrt"),
        (3, "Exp"),
    ]
    check_graph(graph)


def test_names_that_are_missing_or_given_twice():
    graph = read(chain(names=("", "same", "same")))
    assert [each.name for each in graph.ledger.sources] == [NO_NAME, "same", "same#2"]


def test_an_operator_of_several_nodes_is_one_source():
    model = Model()
    x = model.input((4,))
    model.output(model.op("SQUARED_DIFFERENCE", [x, model.const(np.ones(4, np.float32))], (4,)))
    graph = read(model)
    assert {node.op: set(node.origin) for node in graph if node.origin} == {"Sub": {1}, "Mul": {1}}
    # The node that makes the output bears the number.
    assert graph[1].op == "Mul"
    check_graph(graph)


def test_tables_say_where_operators_come_from():
    graph = read(
        with_tables(
            chain(circle=True), {4: "conv", 7: "bn", 9: "relu"}, {0: [4], 1: [7, 9], 2: [9]}
        )
    )
    assert [(each.id, each.name) for each in graph.ledger.sources] == [
        (1, "conv"),
        (2, "bn"),
        (3, "relu"),
    ]
    assert {node.op: set(node.origin) for node in graph if node.origin} == {
        "Abs": {1},
        "Sqrt": {2, 3},
        "Exp": {3},
    }
    assert json.loads(graph.metadata[SOURCE_IDS]) == [4, 7, 9]
    check_graph(graph)


def test_an_operator_that_the_table_lacks_gets_a_number_of_its_own():
    """Its position, 1, is the id of another source."""
    graph = read(with_tables(chain(circle=True), {0: "a", 1: "b"}, {0: [0], 2: [1]}))
    assert [(each.id, each.name) for each in graph.ledger.sources] == [
        (1, "a"),
        (2, "b"),
        (3, "second"),
    ]
    assert {node.op: set(node.origin) for node in graph if node.origin} == {
        "Abs": {1},
        "Sqrt": {3},
        "Exp": {2},
    }
    check_graph(graph)


def test_upstreams_empty_table_counts_as_none():
    graph = read(with_tables(chain(circle=True), {0: "a", 1: "b", 2: "c"}, {}))
    assert [each.name for each in graph.ledger.sources] == ["first", "second", "third"]
    assert SOURCE_IDS not in graph.metadata


def test_sources_that_no_operator_has_any_more_are_accounted_for():
    graph = read(
        with_tables(chain(circle=True), {0: "a", 1: "b", 2: "gone"}, {0: [0], 1: [1], 2: [1]})
    )
    assert coverage(graph).lost == 0
    (stone,) = graph.ledger.tombstones_of(3)
    assert (stone.reason, stone.pass_name) == (Reason.EARLIER, "an earlier tool")
    assert "no operator of this file" in stone.rule
    assert outcomes(graph)[2] is Outcome.REMOVED


def test_what_the_tables_do_not_say_follows_from_the_operators():
    """Positions in this file, ids of the tables, and types where one operator has one source."""
    graph = read(
        with_tables(
            chain(circle=True),
            {4: "first", 7: "bn", 9: "relu", 12: "gone"},
            {0: [4], 1: [7, 9], 2: [4]},
        )
    )
    # Two operators came from the first: the one with its name is the one it was.
    assert [(each.op, each.positions, each.table_id) for each in graph.ledger.sources] == [
        ("ABS", (0, 2), 4),
        ("?", (1,), 7),
        ("?", (1,), 9),
        ("?", (), 12),
    ]
    plain = read(chain())
    assert [(each.positions, each.table_id) for each in plain.ledger.sources] == [
        ((0,), None),
        ((1,), None),
        ((2,), None),
    ]


def test_a_name_that_the_table_has_twice():
    model = with_tables(
        chain(circle=True), {0: "same", 1: "same", 5: "other"}, {0: [0], 1: [1], 2: [5]}
    )
    graph = read(model)
    assert [each.name for each in graph.ledger.sources] == ["same", "same#2", "other"]
    assert [find_source(graph.ledger, wanted).id for wanted in ("same", "same#2", "2", "id:1")] == [
        1,
        2,
        2,
        2,
    ]
    with pytest.raises(ModelError, match="no source table of the model has the id 3"):
        find_source(graph.ledger, "id:3")
    # In the next file they are what they were.
    record = to_records(graph, "circle")
    assert dict(record.metadata)["ONE_source_table"] == model.metadata["ONE_source_table"]
    again = read(serialise(record))
    assert [(each.name, each.op) for each in again.ledger.sources] == [
        ("same", "ABS"),
        ("same#2", "SQRT"),
        ("other", "EXP"),
    ]


@pytest.mark.parametrize(
    ("sources", "ops"), [({0: "a"}, {0: [5]}), ({0: "a"}, {7: [0]}), ({0: "a"}, {0: []})]
)
def test_tables_that_contradict_the_file_are_refused(sources, ops):
    with pytest.raises(ModelError, match="ONE_op_table"):
        read(with_tables(chain(circle=True), sources, ops))


def test_names_that_are_not_text_can_be_printed():
    graph = read(
        with_tables(chain(circle=True), {0: "a\udcff", 1: "b", 2: "c"}, {0: [0], 1: [1], 2: [2]})
    )
    assert graph.ledger.sources[0].name == "a\\xff"
    graph.ledger.sources[0].name.encode()


def test_numbers_of_different_subgraphs_are_different():
    model = Model()
    x, condition = model.input((2,)), model.input((), np.bool_)
    bodies = []
    for op in ("ABS", "EXP"):
        index, body = model.subgraph(op.lower())
        body.output(body.op(op, [body.input((2,))], (2,)))
        bodies.append(index)
    model.output(
        model.op(
            "IF", [condition, x], (2,), then_subgraph_index=bodies[0], else_subgraph_index=bodies[1]
        )
    )
    graph = read(model)
    assert [(each.id, each.op, each.scope) for each in graph.ledger.sources] == [
        (1, "IF", ""),
        (2, "ABS", "abs"),
        (3, "EXP", "exp"),
    ]
    check_graph(graph)
    assert coverage(graph).lost == 0


def test_positions_in_the_table_run_on_through_subgraphs():
    model = Model(circle=True)
    x, condition = model.input((2,)), model.input((), np.bool_)
    bodies = []
    for op in ("ABS", "EXP"):
        index, body = model.subgraph(op.lower())
        body.output(body.op(op, [body.input((2,))], (2,)))
        bodies.append(index)
    model.output(
        model.op(
            "IF", [condition, x], (2,), then_subgraph_index=bodies[0], else_subgraph_index=bodies[1]
        )
    )
    found = find_sources(
        read_records(
            with_tables(model, {0: "if", 1: "then", 2: "else"}, {0: [0], 1: [1], 2: [2]}).bytes()
        )
    )
    assert [[set(place.origin) for place in row] for row in found.places] == [[{1}], [{2}], [{3}]]


def test_a_subgraph_that_nothing_calls_is_dead():
    model = chain()
    _, body = model.subgraph("unused")
    body.output(body.op("ABS", [body.input((2,))], (2,)))
    graph = read(model)
    assert coverage(graph).lost == 0
    (stone,) = graph.ledger.tombstones_of(4)
    assert stone.reason is Reason.DEAD
