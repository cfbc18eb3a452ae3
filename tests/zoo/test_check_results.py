"""A run over many models, stopped and taken up again."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import TensorProto, helper, save

from zoo.check_results import CheckResult, Record, check_all


def relu(folder: Path, name: str) -> Path:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        name,
        [value("x", TensorProto.FLOAT, [3])],
        [value("y", TensorProto.FLOAT, [3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    save(model, folder / f"{name}.onnx")
    return folder / f"{name}.onnx"


def test_what_has_a_verdict_is_not_checked_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [relu(tmp_path, "one"), relu(tmp_path, "two"), tmp_path / "broken.onnx"]
    files[2].write_bytes(b"\x00nothing")
    at = tmp_path / "verdicts.jsonl"
    record = Record(at, "")
    record.add(files[0], CheckResult("one", "differs", "as it was"))
    with at.open("a") as file:
        file.write('{"file": "cut o')
    record = Record(at, "")
    assert record.missing(files) == files[1:]
    check_all(record.missing(files), record, 1, 300, [])
    again = Record(at, "")
    assert [again.found[file].status for file in files] == ["differs", "ok", "peer"]
    assert "2/2 in " in capsys.readouterr().err
    # Another engine, or another content, is another question.
    assert Record(at, "opencl").missing(files) == files
    files[1].write_bytes(files[1].read_bytes() + b"\x00")
    assert Record(at, "").missing(files) == files[1:2]


def test_a_crash_and_silence_are_verdicts_on_one_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [relu(tmp_path, name) for name in ("abort", "sleep", "right")]
    program = tmp_path / "process"
    program.write_text(
        "#!/usr/bin/env python3\n"
        "import json, os, sys, time\n"
        "for name in sys.argv[sys.argv.index('--here') + 1:]:\n"
        "    'abort' in name and os._exit(3)\n"
        "    'sleep' in name and time.sleep(60)\n"
        "    print(json.dumps({'name': name, 'status': 'ok'}), flush=True)\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(program))
    record = Record(None, "")
    check_all(files, record, 1, 2, [])
    details = [record.found[file].detail for file in files]
    assert details[0].startswith("exit code 3")
    assert details[1:] == ["no answer in 2 s", ""]
