"""Verdicts of `make bench-check`: what counts as fallen behind, and beside what it is judged."""

from __future__ import annotations

import dataclasses

from benchmarks.check import BEHIND, judge
from benchmarks.record import Row, Stamp, measured

STAMP = Stamp("2026-01-02", "a processor", "AVX2", 2, "abc", {"whence": "1", "onnxruntime": "2"})
ELSEWHERE = dataclasses.replace(STAMP, level="AMX", cores=16)


def _row(stamp: Stamp = STAMP, **figures: float) -> Row:
    return measured(stamp, "latency", "m", 1, "ms", figures)


def test_a_ratio_within_the_tolerance_is_ok() -> None:
    recorded = [_row(whence=1, onnxruntime=2)]
    assert judge(_row(whence=1, onnxruntime=1.8), recorded) == (2.0, 1.8, "ok")
    old, new, verdict = judge(_row(whence=1, onnxruntime=1.6), recorded)
    assert (old, new) == (2.0, 1.6)
    assert verdict.startswith(BEHIND)


def test_a_record_of_another_machine_is_said_to_be_one() -> None:
    recorded = [_row(ELSEWHERE, whence=1, onnxruntime=2)]
    assert judge(_row(whence=1, onnxruntime=2), recorded)[2] == "ok (recorded on 16 cores with AMX)"
    behind = judge(_row(whence=1, onnxruntime=1), recorded)[2]
    assert behind.startswith(BEHIND)
    assert behind.endswith("(recorded on 16 cores with AMX)")


def test_only_engines_of_both_runs_are_compared() -> None:
    recorded = [_row(whence=1, onnxruntime=3, openvino=1.5)]
    assert judge(_row(whence=1, onnxruntime=3), recorded) == (3.0, 3.0, "ok")
    assert judge(_row(whence=1, litert=3), recorded)[2] == "recorded beside other engines"


def test_what_was_not_measured_is_behind_and_what_was_not_recorded_is_not() -> None:
    assert judge(_row(onnxruntime=3), [])[2].startswith(BEHIND)
    assert judge(_row(whence=1, onnxruntime=3), [])[2] == "not recorded yet"
