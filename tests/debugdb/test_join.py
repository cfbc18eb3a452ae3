"""Vela's databases joined to the model they are of: the real files, and small ones that are made to
be difficult.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from tests.cli.conftest import Whence
from tests.cli.conftest import whence as whence  # noqa: PLC0414  (the fixture)
from tests.debugdb.making import DATA
from whence.attribution.vela import named_database, vela_profile
from whence.debugdb import DebugDatabase, Extra, read_xml
from whence.debugdb.cycles import Cycles, estimated_cycles, read_cycles
from whence.debugdb.join import Join, ModelOperator, VelaPlace, join_model
from whence.debugdb.model_operators import model_operators
from whence.debugdb.rows import OptimisedRow, QueueRow, SourceOperatorRow
from whence.debugdb.store import ask
from whence.errors import ModelError

MODEL = DATA / "tinycnn.tflite"
REAL = ("legacy_u55", "regor_u55", "regor_u85")
NAMES = ["conv1/Relu", "dw2/Relu", "pw3", "add4", "leaky5", "avgpool6", "mean7", "fc8", "softmax9"]


def joined(name: str) -> tuple[DebugDatabase, Join]:
    db = read_xml(DATA / f"{name}.xml")
    return db, join_model(db, model_operators(MODEL))


@pytest.mark.parametrize("name", REAL)
def test_every_command_has_its_operator(name: str) -> None:
    db, join = joined(name)
    assert [operator.name for operator in join.operators] == NAMES
    assert len(join.commands) == len(db.queue) > 30
    assert not join.notes
    assert all(command.operator is not None for command in join.commands)
    assert sorted(
        position
        for each in join.placements.values()
        if each.place is VelaPlace.COMMAND
        for position in each.commands
    ) == list(range(len(db.queue)))


@pytest.mark.parametrize(
    ("name", "holder", "inferred"),
    [("legacy_u55", "add4", True), ("regor_u55", "add4", False), ("regor_u85", "pw3", False)],
)
def test_an_absorbed_operator_is_listed_with_what_absorbed_it(
    name: str, holder: str, inferred: bool
) -> None:
    _, join = joined(name)
    leaky = join.placements[NAMES.index("leaky5") + 1]
    assert leaky.place is VelaPlace.ABSORBED
    assert leaky.into == NAMES.index(holder) + 1
    assert leaky.inferred is inferred
    assert [join.commands[position].operator for position in leaky.commands] == [leaky.into]


def test_cycles_of_the_perf_table_are_all_attributed() -> None:
    db, join = joined("regor_u55")
    perf = db.extra("perf")
    assert perf is not None
    expected = sum(int(row[perf.columns.index("op_cycles")]) for row in perf.rows)
    cycles = estimated_cycles(db, join)
    profile = vela_profile(db, join, cycles, model="tinycnn.tflite")
    assert sum(cycles.per_command) == expected == profile.wall_ns == profile.attributed_ns == 73622
    assert {row.name: row.time_ns for row in profile.sources}["softmax9"] == 985
    assert (
        sum(row.time_ns for row in profile.sources) + sum(profile.residual_ns.values())
        == profile.wall_ns
    )


def test_velas_own_report_gives_the_older_core_its_cycles() -> None:
    db, join = joined("legacy_u55")
    assert sum(estimated_cycles(db, join).per_command) == 0
    cycles = read_cycles(DATA / "legacy_u55_per-layer.csv", db, join)
    profile = vela_profile(db, join, cycles, model="tinycnn.tflite", clock_mhz=500)
    assert {row.name: row.time_ns for row in profile.sources}["add4"] == 24576 * 2
    assert len(cycles.per_command) == 39
    with pytest.raises(ModelError, match="same compilation"):
        read_cycles(DATA / "legacy_u55_per-layer.csv", *joined("regor_u85"))


def test_measured_cycles_are_joined_by_offset(tmp_path: Path) -> None:
    db, join = joined("legacy_u55")
    file = tmp_path / "cycles.csv"
    file.write_text(
        "\n".join(
            ["offset,cycles", *(f"{row.offset},{10 + index}" for index, row in enumerate(db.queue))]
        )
    )
    assert read_cycles(file, db, join).per_command == tuple(range(10, 49))
    file.write_text("328,7\n328,5\n")
    found = read_cycles(file, db, join)
    assert sum(found.per_command) == found.per_command[0] == 12
    assert "38 of 39" in found.notes[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("329,7\n", "no command at offset 329"),
        ("328,-1\n", "line 1: cycles"),
        ("offset,cycles\n328,x", "line 2"),
    ],
)
def test_wrong_measurements_are_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "cycles.csv"
    file.write_text(text)
    with pytest.raises(ModelError, match=message):
        read_cycles(file, *joined("legacy_u55"))


def source(number: int, operator: str, key: int | None, *shape: int) -> SourceOperatorRow:
    width, height, depth = shape or (None, None, None)
    return SourceOperatorRow(number, operator, 1, 1, width, height, depth, key)


def test_subgraphs_with_the_same_positions_are_told_apart() -> None:
    operators = [
        ModelOperator(1, "a", "CONV_2D", 0, 0, (1, 8, 8, 4)),
        ModelOperator(2, "b", "ADD", 0, 1, (1, 8, 8, 4), (1,)),
        ModelOperator(3, "c", "ADD", 1, 0, (1, 2, 2, 4)),
        ModelOperator(4, "d", "ADD", 1, 1, (1, 8, 8, 4), (3,)),
    ]
    # The inner subgraph comes first; its second operator looks just like one of the outer one.
    rows = [
        source(1, "Add", 0, 2, 2, 4),
        source(2, "Add", 1, 8, 8, 4),
        source(3, "Add", 1, 8, 8, 4),
        source(4, "Conv2D", 0, 8, 8, 4),
    ]
    assert join_model(DebugDatabase(source=rows), operators).source_ids == {1: 3, 2: 4, 3: 2, 4: 1}


def test_without_positions_types_and_shapes_decide() -> None:
    operators = [
        ModelOperator(1, "a", "ADD", 0, 0, (1, 8)),
        ModelOperator(2, "b", "FULLY_CONNECTED", 0, 1, (1, 4)),
        ModelOperator(3, "c", "ADD", 0, 2, (1, 4)),
    ]
    rows = [
        source(0, "Add", None, 1, 1, 4),
        source(1, "FullyConnected", None, 1, 1, 4),
        source(2, "Add", None, 1, 1, 8),
    ]
    assert join_model(DebugDatabase(source=rows), operators).source_ids == {0: 3, 1: 2, 2: 1}


def test_operators_on_the_cpu_removed_and_unknown() -> None:
    operators = [
        ModelOperator(1, "conv", "CONV_2D", 0, 0),
        ModelOperator(2, "view", "RESHAPE", 0, 1, None, (1,)),
        ModelOperator(3, "cpu", "TOPK_V2", 0, 2, None, (2,)),
        ModelOperator(4, "dead", "ADD", 0, 3),
    ]
    rows = [source(0, "Conv2DBias", 0), source(1, "Reshape", 1), source(2, "TopKV2", 2)]
    none = (None,) * 5
    optimised = [
        OptimisedRow(0, 0, "Conv2DBias", *none),
        OptimisedRow(1, 1, "Memcpy", *none),
        OptimisedRow(2, 2, "TopKV2", *none),
    ]
    db = DebugDatabase(
        source=rows, optimised=optimised, queue=[QueueRow(0, 0, 0), QueueRow(8, 0, 9)]
    )
    join = join_model(db, operators)
    assert [join.placements[number].place for number in (1, 2, 3, 4)] == [
        VelaPlace.COMMAND,
        VelaPlace.ABSORBED,
        VelaPlace.CPU,
        VelaPlace.UNKNOWN,
    ]
    assert join.commands[1].operator is None
    assert "1 of 2 commands" in join.notes[0]
    profile = vela_profile(db, join, Cycles((5, 3), "measured"), model="m")
    assert profile.residual_ns == {"unattributed: ?": 3}
    assert profile.attributed_ns == 5
    assert profile.coverage.lost == 0
    assert [row.became for row in profile.sources][1:] == [
        "absorbed by conv, which made its input, → command 0",
        "runs on the CPU, outside the command stream",
        "not in Vela's database",
    ]


def test_another_models_database_is_refused() -> None:
    with pytest.raises(ModelError, match="not of this model"):
        join_model(read_xml(DATA / "regor_u55.xml"), [ModelOperator(1, "a", "CONV_2D", 0, 0)])
    with pytest.raises(ModelError, match="of another type"):
        join_model(
            read_xml(DATA / "regor_u55.xml"),
            [ModelOperator(i + 1, "a", "PAD", 0, i) for i in range(9)],
        )


def test_garbage_in_the_other_tables_is_survived() -> None:
    db = read_xml(DATA / "regor_u55.xml")
    db.extras = [
        Extra(
            "perf",
            ("id", "op_cycles", "optimised_id"),
            (("x", "1", "2"), ("108", "99", "²"), ("113", "1", "-"), ("--7", "9" * 5000, "2")),
        ),
        Extra("group", ("id", "group_id"), (("113", "108"), ("", "7"), ("9", "x"))),
        Extra(
            "queue_extra",
            ("row", "scheduled_id"),
            (("0", "108"), ("1", "115"), ("z", "3"), ("2", "9" * 5000)),
        ),
    ]
    join = join_model(db, model_operators(MODEL))
    assert estimated_cycles(db, join).per_command[0] == 100


def test_the_saved_questions_have_answers() -> None:
    db, join = joined("regor_u55")
    named = named_database(db, join, vela_profile(db, join, estimated_cycles(db, join), model="m"))
    answer = ask(
        named, "SELECT name, time_ns::BIGINT FROM time_by_source ORDER BY source_id", most=20
    )
    assert [row[0] for row in answer.rows] == NAMES
    assert sum(row[1] for row in answer.rows if isinstance(row[1], int)) == 73622
    fused = ask(named, "SELECT names FROM fused_groups", most=20)
    assert [sorted(row[0]) for row in fused.rows if isinstance(row[0], list)] == [
        ["add4", "leaky5"]
    ]


def test_what_is_nobodys_has_a_name_and_the_rest_adds_up() -> None:
    db, join = joined("regor_u55")
    first, *others = join.commands
    join = dataclasses.replace(join, commands=(first._replace(operator=None), *others))
    profile = vela_profile(db, join, estimated_cycles(db, join), model="m")
    (name,) = profile.residual_ns
    answer = ask(
        named_database(db, join, profile),
        "SELECT name, time_ns::BIGINT FROM time_by_source",
        most=20,
    )
    assert (name, profile.residual_ns[name]) in answer.rows
    assert sum(row[1] for row in answer.rows if isinstance(row[1], int)) == profile.wall_ns == 73622
    assert None not in [row[0] for row in answer.rows]


def test_command_line(whence: Whence, tmp_path: Path) -> None:
    done = whence("db", DATA / "regor_u85.xml", "--model", MODEL, "-o", tmp_path)
    assert done.code == 0
    assert "leaky5" in done.out
    assert "absorbed by pw3" in done.out
    saved = json.loads((tmp_path / "profile.json").read_text())
    assert saved["wall_ns"] == sum(row["time_ns"] for row in saved["sources"]) > 30000
    assert [row["name"] for row in saved["sources"]] == NAMES
    assert (tmp_path / "trace.pftrace").stat().st_size > 1000
    again = whence("db", tmp_path, "--sql", "SELECT name FROM time_by_source LIMIT 1")
    assert "conv1/Relu" in again.out
    assert whence("db", DATA / "regor_u85.xml", "--cycles", "x.csv").code == 2
    assert whence("db", DATA / "regor_u85.xml", "--model", tmp_path / "none.tflite").code == 1
