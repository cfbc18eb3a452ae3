"""XML in both of Vela's forms: to the byte, with any text, and from hands one should not trust."""

from __future__ import annotations

import csv
import io
import tracemalloc
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given

from tests.debugdb.making import (
    CMDSTREAM,
    DATA,
    OPTIMISED,
    QUEUE,
    REGOR,
    SOURCE,
    databases,
    document,
    table,
    texts,
)
from whence.debugdb import DebugDatabase, Extra, parse_xml, read_xml, write_xml, xml_text
from whence.debugdb.escaping import escape, unescape
from whence.debugdb.rows import (
    CmdstreamRow,
    OptimisedRow,
    OriginRow,
    QueueRow,
    SourceOperatorRow,
)
from whence.debugdb.tables import TABLES
from whence.errors import ModelError

SMALL = DebugDatabase(
    "in.tflite",
    "out.tflite",
    source=[
        SourceOperatorRow(0, "Conv2DBias", 3, 3, 32, 32, 16, 0),
        SourceOperatorRow(1, "Relu", 1, 1, 32, 32, 16, 1),
    ],
    optimised=[
        OptimisedRow(0, 0, "Conv2DBias", 3, 3, 32, 32, 16),
        OptimisedRow(1, -1, "Memcpy", 1, 1, 8, 8, 4),
    ],
    queue=[QueueRow(328, 0, 0)],
    cmdstream=[CmdstreamRow(0, 5136)],
)


# ---- writing ----


def test_the_legacy_form_is_written_to_the_byte() -> None:
    assert xml_text(SMALL).encode() == document(SOURCE, OPTIMISED, QUEUE, CMDSTREAM)


def test_a_file_of_vela_itself_comes_back_to_the_byte(tmp_path: Path) -> None:
    write_xml(read_xml(DATA / "legacy_u55.xml"), tmp_path / "again.xml")
    assert (tmp_path / "again.xml").read_bytes() == (DATA / "legacy_u55.xml").read_bytes()


def test_own_tables_follow_the_four() -> None:
    db = parse_xml(document(SOURCE, OPTIMISED, QUEUE, CMDSTREAM))
    db.origin.append(OriginRow(0, 0, 0.75))
    names = [element.get("name") for element in ElementTree.fromstring(xml_text(db))]
    assert names == ["source", "optimised", "queue", "cmdstream", "origin", "whence_format"]
    assert (
        "<table"
        ' name=\'origin\'><![CDATA["optimised_id","source_id","weight"\r\n0,0,0.75\r\n]]></table>\n'
        in xml_text(db)
    )


def test_a_hostile_name_in_full() -> None:
    db = DebugDatabase("a&b'\"<c>.onnx", "")
    db.source.append(SourceOperatorRow(1, ']]>&"\n\x01', None, None, None, None, None, 0))
    text = xml_text(db)
    assert '<debug source="a&amp;b&apos;&quot;&lt;c&gt;.onnx" optimised="">' in text
    assert '1,"]]]]><![CDATA[>&""\n_x0001_","","","","","",0\r\n' in text
    assert parse_xml(text.encode()) == db


@given(databases())
def test_any_text_survives(db: DebugDatabase) -> None:
    again = parse_xml(xml_text(db).encode("utf-8"))
    assert again == db
    assert all("is not known" in note for note in again.notes)


@given(databases())
def test_any_parser_reads_the_same_tables(db: DebugDatabase) -> None:
    root = ElementTree.fromstring(xml_text(db).encode("utf-8"))
    assert unescape(root.attrib["source"]) == db.source_path
    assert unescape(root.attrib["optimised"]) == db.optimised_path
    found = {}
    for element in root:
        header, *rows = csv.reader(io.StringIO(element.text or "", newline=""))
        found[unescape(element.attrib["name"])] = (
            [unescape(cell) for cell in header],
            [[unescape(cell) for cell in row] for row in rows],
        )
    for each in TABLES:
        expected = [["" if cell is None else str(cell) for cell in row] for row in db.rows(each)]
        assert found.get(each.name, ([], []))[1] == expected
    for extra in db.extras:
        assert found[extra.name] == (list(extra.columns), [list(row) for row in extra.rows])


@given(texts)
def test_escaping_is_reversible_and_leaves_plain_text_alone(text: str) -> None:
    escaped = escape(text)
    assert unescape(escaped) == text
    escaped.encode("utf-8")
    if text.isascii() and text.isprintable() and "_x" not in text:
        assert escaped == text


def test_long_cells_have_no_limit() -> None:
    db = DebugDatabase(extras=[Extra("e", ("a",), (("x" * 300_000 + '"',), ("",)))])
    assert parse_xml(xml_text(db).encode()) == db


# ---- reading ----


def test_legacy_files_are_read() -> None:
    db = parse_xml(document(SOURCE, OPTIMISED, QUEUE, CMDSTREAM))
    assert db == SMALL
    assert db.notes == []


def test_regor_files_are_read_into_the_same_tables() -> None:
    db = parse_xml(REGOR)
    assert db.notes == []
    assert (db.source_path, db.optimised_path) == ("out/tiny", "")
    assert db.source == [SourceOperatorRow(1, "Conv2D", 1, 1, None, None, None, 0)]
    assert [row.source_id for row in db.optimised] == [1, -1, 1]
    assert db.queue == [QueueRow(328, 1, 3), QueueRow(456, 1, -1)]
    assert db.cmdstream == [CmdstreamRow(1, None)]
    assert db.extra("queue_extra") == Extra(
        "queue_extra", ("row", "scheduled_id"), (("0", "108"), ("1", "109"))
    )
    assert db.extra("group") == Extra("group", ("id", "group_id"), (("113", "108"),))
    assert db.extra("perf_debug_conn") == Extra(
        "perf_debug_conn",
        ("id", "input_op_id", "input_index"),
        (("108", "-1", "0"), ("-2", "108", "")),
    )
    again = parse_xml(xml_text(db).encode())
    assert again == db
    assert again.notes == []


def test_a_real_regor_file() -> None:
    db = read_xml(DATA / "regor_u55.xml")
    assert db.notes == []
    counts = db.counts()
    assert {
        name: counts[name]
        for name in ("source", "optimised", "queue", "cmdstream", "group", "perf")
    } == {
        "source": 9,
        "optimised": 113,
        "queue": 36,
        "cmdstream": 1,
        "group": 4,
        "perf": 40,
    }
    perf = db.extra("perf")
    assert perf is not None
    assert perf.columns[:4] == ("id", "source_id", "optimised_id", "operator")


def test_escapes_in_a_file_of_others_are_plain_text() -> None:
    db = parse_xml(document(SOURCE.replace("Relu", "a_x0041_b"), OPTIMISED, QUEUE, CMDSTREAM))
    assert db.source[1].operator == "a_x0041_b"
    assert parse_xml(xml_text(db).encode()) == db


def test_lxml_quotes_and_utf16_are_read() -> None:
    db = parse_xml(
        document(SOURCE.replace("name='source'", 'name="source"'), OPTIMISED, QUEUE, CMDSTREAM)
    )
    assert db == SMALL
    assert (
        parse_xml(
            document(SOURCE, OPTIMISED, QUEUE, CMDSTREAM)
            .decode()
            .replace("UTF-8", "UTF-16")
            .encode("utf-16")
        )
        == SMALL
    )


@pytest.mark.parametrize(
    ("path", "other"),
    [("a&b.tflite", "out<1>.tflite"), ('say "hi".tflite', "a.tflite"), ("x&amp;y.tflite", "&")],
)
def test_file_names_that_vela_does_not_escape_are_read_as_they_stand(path: str, other: str) -> None:
    db = parse_xml(
        document(
            SOURCE, OPTIMISED, QUEUE, CMDSTREAM, root=f'<debug source="{path}" optimised="{other}">'
        )
    )
    assert (db.source_path, db.optimised_path) == (path, other)
    assert len(db.source) == 2
    assert "not escaped" in db.notes[0]


# ---- bad files ----

BILLION_LAUGHS = (
    b'<?xml version="1.0"?><!DOCTYPE debug [<!ENTITY a "ha">'
    + b"".join(
        b'<!ENTITY %c "%s">' % (98 + level, b"&%c;" % (97 + level) * 10) for level in range(9)
    )
    + b"]><debug source='&j;'><table name='source'>&j;</table></debug>"
)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (BILLION_LAUGHS, "document type"),
        (b"<!DOCTYPE debug SYSTEM 'file:///etc/passwd'><debug/>", "document type"),
        (
            b"<!DOCTYPE debug [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><debug>&x;</debug>",
            "document type",
        ),
        (b"<debug>&x;</debug>", "not well-formed"),
        (b"", "not well-formed"),
        (b"<debug", "not well-formed"),
        (b"<debug><table name='source'><![CDATA[", "not well-formed"),
        (b"\x00\x01\x02", "not well-formed"),
        (b"<debug>\xff</debug>", "not well-formed"),
        (b"<?xml version='1.0' encoding='martian'?><debug/>", "not well-formed"),
        (b"<?xml version='1.0' encoding='utf-7'?><debug/>", "not well-formed"),
        (b"<?xml version='1.0' encoding='zlib'?><debug/>", "not well-formed"),
        (b"<html><body/></html>", "its root is <html>"),
        (b"<debug>" + b"<a>" * 100, "deep"),
        (b"<debug>" + b"<table name='t'/>" * 1001 + b"</debug>", "tables"),
        (document(table("whence_format", '"key","value"', '"version","99"')), "newer"),
    ],
)
def test_a_file_of_which_nothing_can_be_made_is_one_line(data: bytes, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        parse_xml(data, "bad.xml")
    assert str(caught.value).startswith("'bad.xml'")
    assert "\n" not in str(caught.value)


def test_entities_are_refused_before_they_grow() -> None:
    tracemalloc.start()
    with pytest.raises(ModelError):
        parse_xml(BILLION_LAUGHS)
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


def test_missing_files_and_folders_are_one_line(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.xml", tmp_path):
        with pytest.raises(ModelError, match="no such file"):
            read_xml(path)


def test_strange_elements_and_text_are_noted() -> None:
    db = parse_xml(
        document(
            SOURCE,
            OPTIMISED,
            QUEUE,
            CMDSTREAM,
            "<b/><b><c/></b>",
            "stray",
            root='<debug source="i" optimised="o" version="7">',
        )
    )
    assert len(db.source) == 2
    assert db.notes == [
        "an element that no debug database has: passed over 3 times",
        "text outside of a table that no debug database has: passed over 1 times",
        "attributes of <debug> that are not known: version='7'",
    ]


def test_quotes_that_nothing_closes_are_kept() -> None:
    db = parse_xml(document(table("t", '"a"', *['"""' for _ in range(100_000)])))
    extra = db.extra("t")
    assert extra is not None
    assert sum(cell.count('"') for row in extra.rows for cell in row) >= 100_000
