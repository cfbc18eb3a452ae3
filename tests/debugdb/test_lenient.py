"""Odd tables are read, noted, and lose nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.debugdb.making import CMDSTREAM, OPTIMISED, QUEUE, SOURCE, document, table, texts
from whence.debugdb import DebugDatabase, Extra, parse_xml, xml_text
from whence.debugdb.lenient import TableReader
from whence.debugdb.rows import CmdstreamRow, QueueRow, SourceOperatorRow
from whence.debugdb.tables import TABLES

HEADER = '"id","operator","kernel_w","kernel_h","ofm_w","ofm_h","ofm_d","ext_key"'


def read(*tables: str) -> DebugDatabase:
    return parse_xml(document(*tables))


def test_missing_tables_are_noted() -> None:
    db = read(SOURCE)
    assert len(db.source) == 2
    assert db.notes == [
        "there is no table 'optimised'",
        "there is no table 'queue'",
        "there is no table 'cmdstream'",
    ]


def test_a_table_that_is_there_twice_is_read_as_one() -> None:
    db = read(SOURCE, table("source", HEADER, '2,"Add",1,1,1,1,1,2'), OPTIMISED, QUEUE, CMDSTREAM)
    assert [row.id for row in db.source] == [0, 1, 2]
    assert db.notes == ["table 'source' is there more than once; its rows are read as one table"]


def test_an_unknown_table_that_is_there_twice_is_numbered() -> None:
    db = read(
        SOURCE, OPTIMISED, QUEUE, CMDSTREAM, table("mine", '"a"', "1"), table("mine", '"b"', "2")
    )
    assert [(extra.name, extra.columns) for extra in db.extras] == [
        ("mine", ("a",)),
        ("mine_2", ("b",)),
    ]
    assert any("kept as 'mine_2'" in note for note in db.notes)


def test_unknown_columns_are_kept_beside_their_rows() -> None:
    db = read(
        SOURCE,
        OPTIMISED,
        table(
            "queue",
            '"offset","colour","cmdstream_id","optimised_id"',
            '4,"red",0,0',
            '8,"",0,1',
            "12,7,0,0",
        ),
        CMDSTREAM,
    )
    assert db.queue == [QueueRow(4, 0, 0), QueueRow(8, 0, 1), QueueRow(12, 0, 0)]
    assert db.extras == [Extra("queue_extra", ("row", "colour"), (("0", "red"), ("2", "7")))]
    assert db.notes == [
        "table 'queue' has columns it is not known for, kept in 'queue_extra': 'colour'"
    ]


def test_ragged_rows_are_filled_and_surplus_cells_kept() -> None:
    db = read(
        table("source", HEADER, '0,"Conv",3', '1,"Relu",1,1,2,2,2,1,"more",9'),
        OPTIMISED,
        QUEUE,
        CMDSTREAM,
    )
    assert db.source == [
        SourceOperatorRow(0, "Conv", 3, None, None, None, None, None),
        SourceOperatorRow(1, "Relu", 1, 1, 2, 2, 2, 1),
    ]
    assert db.extras == [
        Extra("source_extra", ("row", "column_9", "column_10"), (("1", "more", "9"),))
    ]
    assert db.notes[0] == "2 rows of table 'source' do not have 8 cells; the first is row 1, with 3"


def test_text_where_a_number_belongs_is_kept_beside() -> None:
    db = read(
        table("source", HEADER, '0,"Conv","three",3,1e3,99999999999999999999,1,0'),
        OPTIMISED,
        QUEUE,
        CMDSTREAM,
    )
    assert db.source == [SourceOperatorRow(0, "Conv", None, 3, None, None, 1, 0)]
    assert db.extras == [
        Extra(
            "source_extra",
            ("row", "kernel_w", "ofm_w", "ofm_h"),
            (("0", "three", "1e3", "99999999999999999999"),),
        )
    ]
    assert db.notes == [
        "3 cells of table 'source' are not numbers, kept in 'source_extra'; the first is 'three' in"
        " kernel_w"
    ]


def test_rows_without_ids_are_kept_as_they_stand() -> None:
    db = read(
        SOURCE,
        OPTIMISED,
        table("queue", '"offset","cmdstream_id","optimised_id"', "4,0,0", '"?",0,1', "8,0"),
        CMDSTREAM,
    )
    assert db.queue == [QueueRow(4, 0, 0)]
    assert db.extras == [
        Extra(
            "queue_rejected",
            ("offset", "cmdstream_id", "optimised_id"),
            (("?", "0", "1"), ("8", "0", "")),
        )
    ]
    assert any("no usable id" in note for note in db.notes)


def test_old_versions_have_fewer_columns() -> None:
    short = table("source", HEADER.replace(',"ext_key"', ""), '0,"Conv",1,1,1,1,1')
    db = read(short, OPTIMISED, QUEUE, table("cmdstream", '"id"', "0"))
    assert db.source == [SourceOperatorRow(0, "Conv", 1, 1, 1, 1, 1, None)]
    assert db.cmdstream == [CmdstreamRow(0, None)]
    assert db.notes == []


def test_missing_columns_and_repeated_ones_are_noted() -> None:
    db = read(table("source", '"id","operator","id"', '3,"Conv",4'), OPTIMISED, QUEUE, CMDSTREAM)
    assert db.source == [SourceOperatorRow(3, "Conv", None, None, None, None, None, None)]
    assert db.extras == [Extra("source_extra", ("row", "id_2"), (("0", "4"),))]
    assert "same name" in db.notes[0]
    assert db.notes[1] == "table 'source' has no column kernel_w, kernel_h, ofm_w, ofm_h, ofm_d"


@pytest.mark.parametrize("name", ["source", "whatever"])
def test_an_empty_table_has_no_rows(name: str) -> None:
    tables = [each for each in (SOURCE, OPTIMISED, QUEUE, CMDSTREAM) if f"'{name}'" not in each]
    db = read(*tables, f"<table name='{name}'/>")
    assert db.extras == []
    assert not (name == "source" and db.source)


@given(
    st.sampled_from(["source", "queue", "origin", "sample", "mine"]),
    st.lists(st.lists(texts, max_size=5), max_size=4),
)
def test_no_cell_is_ever_lost(name: str, rows: list[list[str]]) -> None:
    db = DebugDatabase()
    reader = TableReader(db)
    header, *body = rows or [[]]
    reader.add(name, header, body)
    reader.finish(regor=False)
    kept = [str(cell) for each in TABLES for row in db.rows(each) for cell in row] + [
        cell for extra in db.extras for row in extra.rows for cell in row
    ]
    numbers = {float(cell) for cell in kept if _is_number(cell)}
    for cell in (cell for row in body for cell in row):
        # A number may be written otherwise than it was, and blanks around nothing are nothing.
        assert cell in kept or not cell.strip() or (_is_number(cell) and float(cell) in numbers)
    assert parse_xml(xml_text(db).encode()) == db


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
