"""docs/performance.md has the tables that the recorded figures make, and the generator touches
nothing else.
"""

from __future__ import annotations

import dataclasses
import re

import pytest

from benchmarks.record import Stamp, measured, read_rows
from benchmarks.tables import DOCUMENT, TABLES, generate, update

STAMP = Stamp("2026-01-02", "a processor", "AVX2", 2, "abc", {"whence": "1", "onnxruntime": "2"})
ROW = measured(STAMP, "latency", "t_net", 1, "ms", {"whence": 2.0, "onnxruntime": 3.0})


def test_the_document_is_up_to_date() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert update(text, read_rows()) == text, "python -m benchmarks.tables brings it up to date"


def test_the_document_shows_every_table() -> None:
    marked = re.findall("<!-- table: (.+) -->", DOCUMENT.read_text(encoding="utf-8"))
    assert sorted(marked) == sorted(TABLES)


def test_every_recorded_figure_has_a_table() -> None:
    shown = {benchmark for benchmark, _, _ in TABLES.values()}
    assert {row.benchmark for row in read_rows()} <= shown


def test_prose_stays_and_tables_are_made_anew() -> None:
    text = "before\n<!-- table: latency -->\nold\n<!-- end of table -->\nafter\n"
    made = update(text, [ROW])
    assert made.startswith("before\n<!-- table: latency -->\n")
    assert made.endswith("<!-- end of table -->\nafter\n")
    assert "old" not in made
    assert "| net | 1 | 2 | 3 | – | 1.50 |" in made
    assert update(made, [ROW]) == made


def test_the_newest_ratio_counts_and_the_one_before_stands_beside_it() -> None:
    faster = measured(STAMP, "latency", "t_net", 1, "ms", {"whence": 1.0, "onnxruntime": 3.0})
    made = generate("latency", [ROW, faster])
    assert "| 3.00 | 1.50 |" in made
    assert made.count("| net |") == 1
    assert "3.00 on 1 (before: 1.50)" in made


def test_each_kind_of_machine_has_its_own_table() -> None:
    other = dataclasses.replace(ROW, stamp=dataclasses.replace(STAMP, level="AMX"))
    many = dataclasses.replace(ROW, stamp=dataclasses.replace(STAMP, cores=16))
    made = generate("latency", [ROW, other, many])
    assert "2 cores with AVX2" in made
    assert "2 cores with AMX" in made
    assert "16 cores" not in made
    assert "16 cores with AVX2" in generate("latency on more cores", [ROW, other, many])


def test_models_that_differ_have_different_names() -> None:
    light = dataclasses.replace(ROW, model="light_net")
    made = generate("latency", [ROW, light])
    assert made.count("| net |") == made.count("| light_net |") == 1


def test_a_note_stands_as_long_as_its_row_counts() -> None:
    noted = dataclasses.replace(ROW, note="before lunch")
    assert "before lunch" in generate("latency", [noted])
    assert "before lunch" not in generate("latency", [noted, ROW])


def test_an_unknown_table_is_named() -> None:
    with pytest.raises(SystemExit, match="no table is called 'speed'"):
        update("<!-- table: speed -->\n<!-- end of table -->", [ROW])
