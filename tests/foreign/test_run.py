"""Engines that are installed, run for real: in a process of their own, with their own profiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import onnx
import pytest
from packaging.requirements import Requirement

import whence.foreign
from tests.foreign.models import MODELS, make
from whence.errors import InputError, UnsupportedError
from whence.foreign.engines import ENGINES
from whence.foreign.named_model import with_names
from whence.foreign.process import engine_process
from whence.foreign.recording import Recording
from whence.foreign.run import PreparedModel, attribute, load_source, prepare, record
from whence.report.files import WRITERS

ROOT = Path(__file__).parents[2]
ONNX_ENGINES = [name for name, kind in ENGINES.items() if ".onnx" in kind.suffixes]


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if name not in whence.foreign.available():
        assert not os.environ.get(f"WHENCE_REQUIRE_{name.upper()}"), f"{name} is required"
        pytest.skip(f"{name} is not installed: pip install {ENGINES[name].package}")
    return name


def _record(subject: PreparedModel, engine: str) -> Recording:
    try:
        return record(subject, engine, threads=1, runs=3, warmup=1)
    except UnsupportedError as error:
        # OpenVINO 2026.4.1 ends by SIGILL with quantised models on some processors with AMX.
        if "was killed by signal" in str(error):
            pytest.skip(f"{engine} crashes on this machine: {error}")
        raise


def test_inputs_are_given_by_name_in_order_or_as_the_only_array(tmp_path: Path) -> None:
    path = make("residual", tmp_path)
    ((name, value),) = prepare(path).inputs.items()
    for given in ({name: value}, [value], value):
        assert prepare(path, inputs=given).inputs[name] is value
    with pytest.raises(InputError, match=f"input '{name}' has shape"):
        prepare(path, inputs=value[0])


@pytest.mark.parametrize("name", ["residual", "transformer", "condition", "quantised"])
@pytest.mark.parametrize("engine", ONNX_ENGINES, indirect=True)
def test_all_kernel_time_has_operators(engine: str, name: str, tmp_path: Path) -> None:
    subject = prepare(make(name, tmp_path))
    recording = _record(subject, engine)
    profile, placement = attribute(subject, recording)
    assert profile.attributed_ns + sum(profile.residual_ns.values()) == profile.wall_ns
    assert min(profile.residual_ns.values()) >= 0
    assert profile.attributed_ns >= 0.98 * int(recording.node_ns.sum())
    assert placement.checks.heavy_elsewhere == {}
    assert profile.runs == 3
    assert profile.engine == f"{engine} {whence.foreign.available()[engine]}"


def test_a_profile_is_like_our_own(tmp_path: Path) -> None:
    path = make("unnamed", tmp_path)
    profile = whence.foreign.profile(path, engine="onnxruntime", threads=1, runs=2, warmup=1)
    assert profile.writers == WRITERS
    files = {file.name for file in profile.save(tmp_path / "out")}
    assert {"profile.json", "report.html", "profile.duckdb", "trace.pftrace"} <= files
    assert [row.name for row in profile.sources][:3] == ["stem_out", "stem_bn_out", "stem_relu_out"]
    assert profile.environment["input x"] == "1×16×8×8"


def test_every_operator_gets_a_name(tmp_path: Path) -> None:
    (tmp_path / "named").mkdir()
    for name in MODELS:
        path = make(name, tmp_path)
        named = with_names(path, load_source(path), tmp_path / "named")
        if name != "unnamed":
            assert named == path
            continue
        model = onnx.load(named)
        assert [node.name for node in model.graph.node][:2] == ["stem_out", "stem_bn_out"]


def test_a_copy_with_names_finds_the_weights(tmp_path: Path) -> None:
    """By the names that the model has for their files, links too; beside it, and nowhere else."""
    whole = make("unnamed", tmp_path)
    for folder, location in (("a", "weights"), ("b", "../b/weights")):
        path, copies = tmp_path / folder / "m.onnx", tmp_path / folder / "tmp/copies"
        copies.mkdir(parents=True)
        onnx.save(
            onnx.load(whole),
            path,
            save_as_external_data=True,
            location="data.bin",
            size_threshold=0,
        )
        path.with_name("weights").symlink_to("data.bin")
        changed = onnx.load(path, load_external_data=False)
        for tensor in changed.graph.initializer:
            for entry in tensor.external_data:
                entry.value = location if entry.key == "location" else entry.value
        path.write_bytes(changed.SerializeToString())
        named = with_names(path, load_source(path), copies)
        assert named.parent == copies
        made = [each.name for each in copies.parent.rglob("*") if each.is_file()]
        assert sorted(made) == (["m.onnx", "weights"] if location == "weights" else ["m.onnx"])


def test_bad_requests_are_refused(tmp_path: Path) -> None:
    path = make("residual", tmp_path)
    with pytest.raises(InputError, match="there is no engine 'tvm'"):
        whence.foreign.profile(path, engine="tvm")
    with pytest.raises(InputError, match="at least one run"):
        whence.foreign.profile(path, engine="onnxruntime", runs=0)


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_that_is_missing_is_an_extra(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = ENGINES[name]
    monkeypatch.setitem(ENGINES, name, kind._replace(module="no_such_module"))
    with pytest.raises(UnsupportedError) as caught:
        whence.foreign.profile(make("residual", tmp_path), engine=name)
    expected = f"engine {name} is not installed: pip install 'whence[{kind.extra}]'"
    assert str(caught.value) == expected
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (required,) = settings["project"]["optional-dependencies"][kind.extra]
    assert Requirement(required).name == kind.package


def test_what_an_engine_refuses_is_one_line(tmp_path: Path) -> None:
    path = make("residual", tmp_path)
    subject = prepare(path)
    model = onnx.load(path)
    del model.graph.node[-1]  # what makes the model's output
    onnx.save(model, path)
    with pytest.raises(UnsupportedError, match="onnxruntime does not run this model: ") as caught:
        record(subject, "onnxruntime", runs=1)
    assert "\n" not in str(caught.value)


WORKER = """
import json
from pathlib import Path

class Session:
    version = "1"
    def __init__(self, inputs): self.inputs = inputs
    def run(self, *, counts): pass
    run_profiled = run
    def note(self): pass
    def finish(self, folder, warmup):
        told = {name: [value.dtype.kind, value.tolist()] for name, value in self.inputs.items()}
        (folder / "told.json").write_text(json.dumps(told))

def load(model, threads, inputs, folder): return Session(inputs)
"""


def test_inputs_may_have_any_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as those of the arguments of the function that writes them."""
    (tmp_path / "echo_worker.py").write_text(WORKER)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    inputs = {"file": np.ones(2), "allow_pickle": np.array(["a"], object), "a/b.npy": np.ones(1)}
    with engine_process("echo", tmp_path / "m.onnx", 1, inputs, "echo_worker") as process:
        told = json.loads((process.finish() / "told.json").read_text())
    assert told == {"file": ["f", [1, 1]], "allow_pickle": ["O", ["a"]], "a/b.npy": ["f", [1]]}


def test_importing_whence_loads_no_engine() -> None:
    code = "import sys, whence, whence.foreign; sys.exit(any(m in sys.modules for m in"
    code += " ('onnxruntime', 'openvino', 'torch', 'ai_edge_litert', 'numpy')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
