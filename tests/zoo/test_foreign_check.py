"""Verdicts on the attribution of other engines' kernels."""

from __future__ import annotations

from pathlib import Path

from zoo.foreign_check import Found, _in_a_process, line


def test_a_model_without_an_answer_in_time_is_not_refused_by_the_engine() -> None:
    found = _in_a_process(Path("model.onnx"), "onnxruntime", 1, 0.0)
    assert found.status == "unfinished"
    assert line(found).endswith("unfinished: no answer in 0 s")


def test_a_line_lists_causes_of_missing_edges() -> None:
    found = Found(
        "net", "openvino", "ok", attributed=1.0, edges=10, edges_missing=1, causes={"moved": 1}
    )
    assert "edges 9/10 (1 moved)" in line(found)
