"""ONNX Runtime's trace: runs, nested graphs, and what is in no node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whence.errors import ModelError
from whence.foreign.onnxruntime_reader import UNKNOWN_NODE, read_trace
from whence.foreign.recording import EngineNode

NODES = (EngineNode(0, "a", "Conv"), EngineNode(1, "if", "If"), EngineNode(2, "b", "Relu"))


def event(name: str, begin: int, length: int, **more: object) -> dict[str, object]:
    return {"cat": "Session", "name": name, "ts": begin, "dur": length, "args": {}, **more}


def node(name: str, begin: int, length: int, op: str) -> dict[str, object]:
    return event(f"{name}_kernel_time", begin, length, cat="Node", args={"op_name": op})


RUN = [
    event("model_run", 100, 50),
    event("SequentialExecutor::Execute", 105, 40),
    node("a", 110, 10, "Conv"),
    node("if", 120, 15, "If"),
    event("SequentialExecutor::Execute", 121, 13),
    node("b", 122, 6, "Relu"),
]


def written(folder: Path, events: object) -> Path:
    path = folder / "trace.json"
    path.write_text(json.dumps(events))
    return path


def test_a_nested_graph_runs_within_its_holder(tmp_path: Path) -> None:
    found = read_trace(written(tmp_path, RUN), NODES)
    assert found.runs_ns == (50_000,)
    assert found.node_ns.tolist() == [[10_000, 9_000, 6_000]]
    assert found.residual_ns == {"dispatch": 15_000, "executor": 10_000, "session": 0}
    assert [each.kernel for each in found.timeline] == [0, 1, 2]


def test_the_caller_waits_longer_than_the_engine_says(tmp_path: Path) -> None:
    found = read_trace(written(tmp_path, RUN), NODES, [60_123])
    assert found.runs_ns == (60_123,)
    assert found.residual_ns["session"] == 10_123
    assert sum(found.residual_ns.values()) + int(found.node_ns.sum()) == 60_123


def test_nodes_that_the_graph_does_not_have_are_a_residual(tmp_path: Path) -> None:
    found = read_trace(written(tmp_path, [*RUN, node("c", 136, 4, "Neg")]), NODES)
    assert found.residual_ns[UNKNOWN_NODE] == 4_000
    assert sum(found.residual_ns.values()) + int(found.node_ns.sum()) == 50_000


def test_first_runs_are_skipped(tmp_path: Path) -> None:
    later = [{**each, "ts": each["ts"] + 1000} for each in RUN]  # type: ignore[operator]
    assert len(read_trace(written(tmp_path, [*RUN, *later]), NODES).runs_ns) == 2
    assert len(read_trace(written(tmp_path, [*RUN, *later]), NODES, skip=1).runs_ns) == 1


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "not JSON"),
        ("{}", "list of events"),
        ('[{"name": "x"}]', "list of events"),
        ("[]", "0 runs"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(content)
    with pytest.raises(ModelError, match=reason):
        read_trace(path, NODES)
