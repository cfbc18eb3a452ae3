"""`whence db`: every form to every form, and SQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Whence
from tests.debugdb.making import CMDSTREAM, DATA, OPTIMISED, QUEUE, SOURCE, document
from tests.debugdb.test_store import small
from whence.debugdb import read_xml, write_xml
from whence.debugdb.locate import read_database


@pytest.fixture
def xml(tmp_path: Path) -> Path:
    path = tmp_path / "small_debug.xml"
    write_xml(small(), path)
    return path


def test_summary_lists_tables_and_questions(whence: Whence, xml: Path) -> None:
    done = whence("db", xml)
    assert done.code == 0
    assert "m.onnx" in done.out
    assert "time_by_source" in done.out
    assert ["source", "4"] in [line.split() for line in done.out.splitlines()]


def test_sql_is_answered_with_a_table(whence: Whence, xml: Path) -> None:
    done = whence("db", xml, "--sql", "SELECT name, time_ns, share FROM time_by_source LIMIT 2")
    assert done.code == 0
    assert [line.split() for line in done.out.splitlines()] == [
        ["name", "time_ns", "share"],
        ["n1", "120", "0.6"],
        ["n2", "40", "0.2"],
    ]


def test_all_forms_lead_to_all_forms(whence: Whence, tmp_path: Path) -> None:
    given = DATA / "regor_u55.xml"
    assert whence("db", given, "--parquet", tmp_path / "p").code == 0
    assert whence("db", tmp_path / "p", "--duckdb", tmp_path / "d.duckdb").code == 0
    done = whence(
        "db",
        tmp_path / "d.duckdb",
        "--xml",
        tmp_path / "again.xml",
        "--sql",
        "SELECT count(*) AS n FROM optimised",
    )
    assert done.code == 0
    assert done.out.split() == ["n", "113"]
    assert "again.xml" in done.err
    assert read_database(tmp_path / "again.xml") == read_xml(given)


def test_names_from_a_model_are_only_text(whence: Whence, tmp_path: Path) -> None:
    db = small()
    db.operator[0] = db.operator[0]._replace(name="[red]evil\x1b[31m\n'; DROP TABLE source; --")
    write_xml(db, tmp_path / "h.xml")
    done = whence("db", tmp_path / "h.xml", "--sql", "SELECT name FROM source_name")
    assert done.code == 0
    assert "[red]evil" in done.out
    assert "\x1b" not in done.out
    assert "n2" in done.out


def test_notes_go_to_stderr(whence: Whence, tmp_path: Path) -> None:
    path = tmp_path / "odd.xml"
    path.write_bytes(document(SOURCE, OPTIMISED, QUEUE))
    done = whence("db", path, "--sql", "SELECT count(*) AS n FROM source")
    assert done.code == 0
    assert "note: there is no table 'cmdstream'" in done.err
    assert done.out.split() == ["n", "2"]


def test_long_answers_are_cut_and_say_so(whence: Whence, xml: Path) -> None:
    done = whence("db", xml, "--sql", "SELECT * FROM range(50)", "--limit", 5)
    assert len(done.out.splitlines()) == 6
    assert "--limit" in done.err


@pytest.mark.parametrize(
    "sql", ["SELEC", "SELECT * FROM read_csv('/etc/passwd')", "SELECT * FROM nowhere"]
)
def test_a_bad_query_is_one_line(whence: Whence, xml: Path, sql: str) -> None:
    done = whence("db", xml, "--sql", sql)
    assert done.code == 1
    assert done.err.startswith("whence: the query failed: ")
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    "content", [b"", b"<!DOCTYPE d [<!ENTITY a 'b'>]><debug>&a;</debug>", b"<html/>", b"\0" * 100]
)
def test_a_bad_file_is_one_line(whence: Whence, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.xml").write_bytes(content)
    done = whence("db", tmp_path / "bad.xml")
    assert done.code == 1
    assert len(done.err.splitlines()) == 1
    assert "bad.xml" in done.err


def test_usage(whence: Whence, tmp_path: Path) -> None:
    assert whence("db").code == 2
    assert whence("db", tmp_path / "absent").code == 1
    done = whence("db", "--help")
    assert done.code == 0
    assert "--parquet" in done.out
    assert "time_by_source" in done.out


def test_a_legacy_file_passes_through_unchanged(whence: Whence, tmp_path: Path) -> None:
    path = tmp_path / "v.xml"
    path.write_bytes(document(SOURCE, OPTIMISED, QUEUE, CMDSTREAM))
    assert whence("db", path, "--xml", tmp_path / "w.xml").code == 0
    assert (tmp_path / "w.xml").read_bytes() == path.read_bytes()
