"""Recorded figures: rows survive the file, ratios point the same way whatever the unit, and the
newest row of the same kind of machine counts.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from benchmarks.record import (
    Kind,
    Row,
    Stamp,
    append_rows,
    instruction_level,
    measured,
    newest,
    ratio,
    read_rows,
    stamp_now,
)
from whence.codegen.target import Target

STAMP = Stamp("2026-01-02", "a processor", "AVX2", 2, "abc", {"whence": "1", "onnxruntime": "2"})
ELSEWHERE = dataclasses.replace(STAMP, level="AMX", cores=16)


def _row(stamp: Stamp = STAMP, **figures: float) -> Row:
    return measured(stamp, "latency", "m", 1, "ms", figures)


def test_rows_are_appended_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    first = measured(STAMP, "latency", "m", 1, "ms", {"whence": 2.0, "litert": 3.0}, {"MB": 7})
    second = dataclasses.replace(first, note="quiet – at night", ratio=None, figures={})
    append_rows([first], path)
    before = path.read_text(encoding="utf-8")
    append_rows([second], path)
    assert path.read_text(encoding="utf-8").startswith(before)
    assert read_rows(path) == [first, second]


def test_above_one_is_ahead_for_times_and_for_rates() -> None:
    assert ratio({"whence": 2.0, "onnxruntime": 6.0, "openvino": 3.0}, "ms") == 1.5
    assert ratio({"whence": 30.0, "onnxruntime": 10.0, "openvino": 20.0}, "runs/s") == 1.5
    assert ratio({"whence": 2.0}, "ms") is None
    assert ratio({"onnxruntime": 2.0}, "ms") is None


def test_the_newest_row_of_a_kind_counts() -> None:
    rows = [_row(whence=1, onnxruntime=each) for each in (1, 2)]
    rows.append(_row(ELSEWHERE, whence=1, onnxruntime=3))
    key = rows[0].key
    assert newest(rows, key, Kind("AVX2", 2)) is rows[1]
    assert newest(rows, key) is rows[2]
    assert newest(rows, key, Kind("NEON", 2)) is None


def test_a_stamp_names_this_machine() -> None:
    stamp = stamp_now()
    assert stamp.cores >= 1
    assert stamp.cpu
    assert stamp.versions["whence"]
    assert instruction_level(Target.named("x86-64-v3")) == "AVX2"
    assert instruction_level(Target.named("x86-64-v4")) == "AVX-512"
