"""`passes`, `convert`, help, and what bad input gets."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from tests.cli.conftest import Whence, conv_bn_relu
from whence.cli.main import COMMANDS, docstring


def test_as_a_module() -> None:
    """In a checkout that is only on the path, there is no command."""
    command = [sys.executable, "-m", "whence", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("whence ")


def test_passes_lists_the_pipeline(whence: Whence) -> None:
    done = whence("passes")
    assert done.code == 0
    assert "fold_batch_norm" in done.out
    assert done.out.index("fold_constants") < done.out.index("fuse_activations")


def test_passes_reports_time_changes_and_skips(whence: Whence, tiny: Path) -> None:
    done = whence("passes", tiny, "--rules")
    assert done.code == 0
    assert "skipped: no Softmax" in done.out
    assert "BN(conv(x, w, b))" in done.out
    assert "4 source operators: 2 live, 1 folded, 1 removed, 0 lost" in " ".join(done.out.split())


def test_convert_writes_a_model_that_computes_the_same(
    whence: Whence, tiny: Path, tmp_path: Path
) -> None:
    small = tmp_path / "small.onnx"
    done = whence("convert", tiny, "-o", small)
    assert done.code == 0
    onnx.checker.check_model(onnx.load(small))
    assert [node.op_type for node in onnx.load(small).graph.node] == ["Conv", "Relu"]
    x = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)
    results = [
        onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(
            None, {"x": x}
        )[0]
        for path in (tiny, small)
    ]
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4, atol=1e-5)


def test_the_list_of_commands_fills_its_lines(
    whence: Whence, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    lines = whence("--help").out.splitlines()
    for command, place in COMMANDS.items():
        first, *_ = docstring(*place).split("\n\n")
        assert any(command in line and " ".join(first.split()) in line for line in lines)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_teaches(
    whence: Whence, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = whence(command, "--help")
    assert done.code == 0
    assert "Usage: whence" in done.out
    module, function = COMMANDS[command]
    text = getattr(importlib.import_module(f"whence.cli.{module}"), function).__doc__
    for example in re.findall(r"^ *(\[dim\].*)$", text, re.MULTILINE):
        shown = example.replace("[dim]", "").replace("[/dim]", "")
        assert f" {shown} " in done.out, "an example is one line, also in a narrow terminal"


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["why"], ["convert", "m.onnx"], ["why", "m.onnx", "--shape", "x:1,2"]],
)
def test_bad_usage_is_exit_code_2(whence: Whence, arguments: list[str]) -> None:
    assert whence(*arguments).code == 2


def _truncated(tmp_path: Path) -> Path:
    path = tmp_path / "truncated.onnx"
    path.write_bytes(conv_bn_relu().SerializeToString()[:200])
    return path


def _missing(tmp_path: Path) -> Path:
    return tmp_path / "missing.onnx"


def _folder(tmp_path: Path) -> Path:
    return tmp_path


def _cyclic(tmp_path: Path) -> Path:
    model = conv_bn_relu()
    model.graph.node[0].input[0] = "r"
    path = tmp_path / "cyclic.onnx"
    onnx.save(model, path)
    return path


def _unknown_operator(tmp_path: Path) -> Path:
    model = conv_bn_relu()
    model.graph.node[2].op_type = "Relux"
    path = tmp_path / "unknown.onnx"
    onnx.save(model, path)
    return path


def _external(tmp_path: Path, location: str) -> Path:
    model = conv_bn_relu()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.append(onnx.StringStringEntryProto(key="location", value=location))
    path = tmp_path / "external.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def _missing_data(tmp_path: Path) -> Path:
    return _external(tmp_path, "weights.bin")


def _climbing_data(tmp_path: Path) -> Path:
    outside = tmp_path.parent / "secret.bin"
    outside.write_bytes(bytes(4 * 3 * 3 * 3 * 4))
    return _external(tmp_path, "../secret.bin")


def _huge_tensor(tmp_path: Path) -> Path:
    model = conv_bn_relu()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.raw_data = b"1234"
    del tensor.dims[:]
    tensor.dims.extend([50_000, 50_000])
    path = tmp_path / "huge.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (_truncated, "truncated.onnx"),
        (_missing, "missing.onnx"),
        (_folder, "folder"),
        (_cyclic, "conv1"),
        (_unknown_operator, "relu1"),
        (_missing_data, "weights.bin"),
        (_climbing_data, "secret.bin"),
        (_huge_tensor, "'w'"),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_1(
    whence: Whence, tmp_path: Path, make: object, named: str
) -> None:
    assert callable(make)
    done = whence("passes", make(tmp_path))
    assert done.code == 1
    assert done.out == ""
    assert len(done.err.strip().splitlines()) == 1
    assert named in done.err
    assert "Traceback" not in done.err
    assert "internal error" not in done.err


def test_a_model_that_outputs_its_input_survives(whence: Whence, tmp_path: Path) -> None:
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
    model = helper.make_model(
        helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", value[:1], value[1:])
    )
    model.ir_version, model.opset_import[0].version = 9, 17
    path, small = tmp_path / "same.onnx", tmp_path / "small.onnx"
    onnx.save(model, path)
    assert whence("convert", path, "-o", small).code == 0
    onnx.checker.check_model(onnx.load(small))


def test_what_the_list_says_of_a_command_is_what_the_command_says(whence: Whence) -> None:
    """Commands are imported when they are used; the list reads what they say about themselves from
    their text.
    """
    for name, (module, function) in COMMANDS.items():
        found = getattr(importlib.import_module(f"whence.cli.{module}"), function)
        assert docstring(module, function) == inspect.getdoc(found), name
    listed = whence("--help").out
    assert all(name in listed for name in COMMANDS)


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import whence", "numpy onnx typer whence.api"),
        ("from whence.cli.main import app", "numpy onnx duckdb whence.api whence.graph"),
        (
            "import whence; whence.compile; whence.Engine",
            "onnx duckdb typer whence.graph whence.passes.pipeline whence.kernels.lower",
        ),
    ],
)
def test_imports_are_light(code: str, heavy: str) -> None:
    script = (
        f"{code}\nimport sys\nprint(*[name for name in {heavy.split()!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_version(whence: Whence) -> None:
    done = whence("--version")
    assert (done.code, done.out.strip().startswith("whence 0.")) == (0, True)


def test_a_model_is_no_database_and_a_file_no_folder(whence: Whence, tiny: Path) -> None:
    done = whence("db", tiny)
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "is a model, not a debug database" in done.err
    for command in ("profile", "compile", "run"):
        done = whence(command, tiny, "-o", tiny)
        assert (done.code, done.err) == (1, f"whence: '{tiny}' is a file; -o names a folder\n")


def test_a_tflite_model_named_onnx(whence: Whence, tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(b"\x1c\0\0\0TFL3" + bytes(40))
    done = whence("why", model)
    assert (done.code, "is a TFLite model, not ONNX" in done.err) == (1, True)


def test_usage_names_arguments_as_the_help_does(whence: Whence) -> None:
    """Texts speak of MODEL and OPERATOR: so must the line that says what to type."""
    for command, arguments in {
        "profile": "MODEL",
        "why": "MODEL OPERATOR",
        "passes": "MODEL",
        "cache": "ACTION",
        "import": "TRACE",
    }.items():
        done = whence(command, "--help")
        usage = next(line for line in done.out.splitlines() if "Usage:" in line)
        # Brackets around them are a matter of the library's version.
        assert re.findall(r"\w+", usage.split("[OPTIONS]")[1]) == arguments.split()
