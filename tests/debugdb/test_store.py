"""DuckDB and Parquet hold the rows of the XML, and the saved views answer."""

from __future__ import annotations

import tempfile
from pathlib import Path

import duckdb
import pytest
from hypothesis import given, settings

from tests.debugdb.making import DATA, REGOR, databases
from whence.debugdb import DebugDatabase, Extra, parse_xml, read_xml, xml_text
from whence.debugdb.locate import read_database
from whence.debugdb.rows import (
    MemberRow,
    OperatorRow,
    OptimisedRow,
    OriginRow,
    QueueRow,
    SampleRow,
    SourceOperatorRow,
    StepRow,
    TombstoneRow,
)
from whence.debugdb.store import ask, read_duckdb, read_parquet, write_duckdb, write_parquet
from whence.debugdb.views import VIEWS
from whence.errors import ModelError


@settings(max_examples=20)
@given(databases())
def test_every_form_holds_the_same_rows(db: DebugDatabase) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_duckdb(db, folder / "db.duckdb")
        write_parquet(db, folder / "tables [*]")
        for again in (
            read_duckdb(folder / "db.duckdb"),
            read_parquet(folder / "tables [*]"),
            parse_xml(xml_text(db).encode()),
        ):
            assert again == db


@pytest.mark.parametrize("name", ["legacy_u55.xml", "regor_u55.xml"])
def test_files_of_vela_survive_all_forms(name: str, tmp_path: Path) -> None:
    db = read_xml(DATA / name)
    write_parquet(db, tmp_path / "p")
    write_duckdb(read_parquet(tmp_path / "p"), tmp_path / "d.duckdb")
    again = read_duckdb(tmp_path / "d.duckdb")
    assert again == db
    assert again.notes == []


def test_numbers_of_other_writers_are_numbers_in_sql() -> None:
    db = parse_xml(REGOR)
    assert ask(db, "SELECT op_cycles + 1 FROM perf").rows == [(14753,)]
    assert ask(db, 'SELECT g.group_id FROM "group" g').rows == [(108,)]
    assert ask(
        db, "SELECT input_op_id, input_index FROM perf_debug_conn ORDER BY id DESC"
    ).rows == [(-1, 0), (108, None)]


def small() -> DebugDatabase:
    """Conv and Relu in one kernel, a Softmax in another that also repeats the Relu, an Identity
    that was removed, a layout change of nobody's.
    """
    db = DebugDatabase("m.onnx")
    db.source += [
        SourceOperatorRow(number, op, 1, 1, 1, 1, 1, number - 1)
        for number, op in enumerate(("Conv", "Relu", "Softmax", "Identity"), 1)
    ]
    fates = ("live", "live", "live", "removed")
    db.operator += [
        OperatorRow(row.id, f"n{row.id}", "", "", "", "", fate)
        for row, fate in zip(db.source, fates, strict=True)
    ]
    db.optimised += [
        OptimisedRow(10, 1, "FusedConv", 1, 1, 1, 1, 1),
        OptimisedRow(11, 3, "Softmax", 1, 1, 1, 1, 1),
        OptimisedRow(12, -1, "Copy", 1, 1, 1, 1, 1),
    ]
    db.queue += [QueueRow(0, 0, 10), QueueRow(4, 0, 11), QueueRow(4, 0, 12)]
    db.origin += [OriginRow(10, 1, 0.75), OriginRow(10, 2, 0.25), OriginRow(11, 3, 1.0)]
    db.kernel += [
        StepRow(0, "k_conv", "k0", 100, 10, ""),
        StepRow(1, "k_softmax", "k1", 10, 10, ""),
    ]
    db.member += [
        MemberRow(0, 10, 100, 10, 1.0),
        MemberRow(1, 11, 10, 10, 0.5),
        MemberRow(1, 12, 0, 10, 0.5),
    ]
    db.sample += [
        SampleRow(0, 0, 100, 180),
        SampleRow(0, 1, 180, 200),
        SampleRow(1, 0, 300, 380),
        SampleRow(1, 1, 380, 400),
    ]
    db.tombstone += [
        TombstoneRow(0, 4, 4, "identity", "remove_no_ops", "older", None),
        TombstoneRow(1, 4, 4, "identity", "remove_no_ops", "x = x", 3),
    ]
    return db


def test_time_by_source_adds_up() -> None:
    answer = ask(small(), "SELECT source_id, name, time_ns, share, kernels FROM time_by_source")
    assert answer.rows == [
        (1, "n1", 120.0, 0.6, 1),
        (2, "n2", 40.0, 0.2, 1),
        (3, "n3", 20.0, 0.1, 1),
        (None, None, 20.0, 0.1, 1),
        (4, "n4", 0.0, 0.0, 0),
    ]


def test_the_other_questions() -> None:
    db = small()
    assert ask(db, "SELECT operator, time_ns FROM time_by_type LIMIT 2").rows == [
        ("Conv", 120.0),
        ("Relu", 40.0),
    ]
    assert ask(db, "SELECT kernel_id, weight FROM kernels_of_source WHERE name = 'n2'").rows == [
        (0, 0.25)
    ]
    assert ask(db, "SELECT name, reason, rule, into_id FROM removed").rows == [
        ("n4", "identity", "x = x", 3)
    ]
    db.operator[1] = db.operator[1]._replace(fate="folded")
    db.tombstone.append(
        TombstoneRow(2, 90, 2, "dead", "remove_dead_nodes", "nothing reads it", None)
    )
    assert ask(db, "SELECT name, reason, into_id FROM removed").rows == [
        ("n2", "folded", 10),
        ("n4", "identity", 3),
    ]
    assert ask(db, "SELECT kernel, names FROM fused_groups").rows == [("k_conv", ["n1", "n2"])]
    assert ask(db, "SELECT calls, time_ns, min_ns FROM time_by_kernel").rows == [
        (2, 160, 80),
        (2, 40, 20),
    ]
    assert ask(db, "SELECT source_id, commands FROM commands_of_source").rows == [
        (1, 1),
        (2, 0),
        (3, 1),
        (4, 0),
    ]


def test_every_view_works_on_an_empty_database() -> None:
    for view in VIEWS:
        assert ask(DebugDatabase(), f"SELECT * FROM {view.name}").rows == []


def test_tables_of_others_cannot_take_the_place_of_a_view_or_leave_their_quotes() -> None:
    hostile = Extra('a"; DROP TABLE source; --', ('x"', "X'", "X"), (("1", "b", "c"),))
    db = DebugDatabase(
        extras=[Extra("removed", ("a",), ()), hostile, Extra("TIME_by_source", ("a",), (("1",),))]
    )
    assert ask(db, "SELECT count(*) FROM source").rows == [(0,)]
    assert ask(
        db, "SELECT stored_table, stored_column, table_name FROM whence_extra ORDER BY position"
    ).rows == [
        ("removed_2", "a", "removed"),
        ("a_drop_table_source_", "x_", hostile.name),
        ("a_drop_table_source_", "x__2", hostile.name),
        ("a_drop_table_source_", "x", hostile.name),
        ("time_by_source_2", "a", "TIME_by_source"),
    ]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM glob('/*')",
        "COPY source TO 'leak.csv'",
        "ATTACH 'leak.db'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "EXPORT DATABASE 'leak'",
        "SELECT * FROM db",
        "SELEC",
    ],
)
def test_a_query_reaches_nothing_outside(
    sql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match="the query failed") as caught:
        ask(small(), sql)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_query_changes_only_its_copy_and_long_answers_are_cut() -> None:
    db = small()
    assert ask(db, "DELETE FROM source; SELECT count(*) FROM source").rows == [(0,)]
    assert len(db.source) == 4
    answer = ask(db, "SELECT * FROM range(100)", most=10)
    assert (len(answer.rows), answer.more) == (10, True)
    assert not ask(db, "SELECT * FROM range(10)", most=10).more


def test_writing_again_replaces(tmp_path: Path) -> None:
    for db in (parse_xml(REGOR), small()):
        write_duckdb(db, tmp_path / "d.duckdb")
        write_parquet(db, tmp_path / "p")
        assert read_duckdb(tmp_path / "d.duckdb") == db
        assert read_parquet(tmp_path / "p") == db
    assert not (tmp_path / "p" / "perf.parquet").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.duckdb", "p"]


def test_bad_files_are_one_line(tmp_path: Path) -> None:
    garbage = tmp_path / "g.duckdb"
    garbage.write_bytes(b"\0" * 8 + b"DUCK" + b"\xff" * 5000)
    other = tmp_path / "other.duckdb"
    with duckdb.connect(str(other)) as connection:
        connection.execute("CREATE TABLE t (a INTEGER)")
    wrong = tmp_path / "wrong.duckdb"
    write_duckdb(small(), wrong)
    with duckdb.connect(str(wrong)) as connection:
        connection.execute("ALTER TABLE queue ALTER optimised_id TYPE VARCHAR")
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "whence_format.parquet").write_bytes(b"PAR1nonsense")
    for path in (
        garbage,
        other,
        wrong,
        tmp_path / "p",
        tmp_path / "absent",
        tmp_path / "p" / "whence_format.parquet",
    ):
        with pytest.raises(ModelError) as caught:
            read_database(path)
        assert "\n" not in str(caught.value)


def test_a_view_in_place_of_a_table_is_not_asked(tmp_path: Path) -> None:
    path = tmp_path / "trap.duckdb"
    write_duckdb(small(), path)
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "DROP VIEW commands_of_source; DROP TABLE queue; CREATE VIEW queue AS SELECT * FROM"
            " read_csv('/etc/passwd')"
        )
    again = read_duckdb(path)
    assert again.queue == []
    assert again.notes == ["there is no table 'queue'"]


def test_unwritable_places_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for write in (write_duckdb, write_parquet):
        with pytest.raises(ModelError, match="cannot be written"):
            write(small(), tmp_path / "file" / "below")


def test_a_folder_is_searched(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="holds no debug database"):
        read_database(tmp_path)
    (tmp_path / "a_debug.xml").write_text(xml_text(small()), newline="")
    assert read_database(tmp_path) == small()
    # The same database in another form, as `whence compile` leaves it.
    write_duckdb(small(), tmp_path / "a_debug.duckdb")
    assert read_database(tmp_path) == small()
    (tmp_path / "b_debug.xml").write_text(xml_text(small()), newline="")
    with pytest.raises(ModelError, match="holds 2 debug databases"):
        read_database(tmp_path)
    write_duckdb(DebugDatabase("other"), tmp_path / "profile.duckdb")
    assert read_database(tmp_path).source_path == "other"
