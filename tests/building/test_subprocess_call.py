"""Models compiled by another process: the one that runs them holds no more than if it had found
them compiled.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.runtime.models import assert_same, outputs
from whence import api
from whence.api.compile_file import compile_file
from whence.api.open_sizes import CompileOptions
from whence.building.subprocess_call import Answer, Subprocess, call_in_subprocess
from whence.codegen.cache import Cache
from whence.codegen.digest import FileDigest, _OpenFile
from whence.codegen.toolchain import Toolchain
from whence.graph import Graph
from whence.graph.builder import GraphBuilder
from whence.runtime.engine import Engine
from whence.types import Dim, DType

X = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
# A program as people write them: it would compile twice if the other process began by running it
# again.
_PROGRAM = """
import json, os, sys
import numpy as np
import whence
from whence.errors import WhenceError

options = {"progress": lambda *_: None} if "--progress" in sys.argv else {}
try:
    model = whence.compile(sys.argv[1], threads=1, **options)
    found = {"y": model(np.load(sys.argv[2])).tolist()}
except WhenceError as error:
    found = {"error": f"{type(error).__name__}: {error}"}
found["compiler"] = [name for name in ("onnx", "whence.graph", "whence.building.build") if name in sys.modules]
if sys.platform == "linux":
    found["held"] = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmRSS:"))
print(json.dumps(found))
"""


def _net(*, batch: Dim = 1, seed: int = 0) -> Graph:
    build = GraphBuilder("net")
    weights = build.const(
        np.random.default_rng(seed).standard_normal((16, 3, 3, 3)).astype(np.float32)
    )
    x = build.input("x", DType.F32, [batch, 3, 8, 8])
    build.output(
        "y", build.op("Relu", build.op("Conv", x, weights, kernel_shape=(3, 3)), name="relu")
    )
    return build.finish()


def _saved(graph: Graph, path: Path) -> Path:
    api.save(graph, path)
    return path


def _run(folder: Path, model: Path, *options: str, **environment: str) -> dict[str, Any]:
    """What the program finds out, in a process of its own that says nothing else."""
    np.save(folder / "x.npy", X)
    (folder / "program.py").write_text(_PROGRAM, encoding="utf-8")
    command = [
        sys.executable,
        str(folder / "program.py"),
        str(model),
        str(folder / "x.npy"),
        *options,
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "WHENCE_CACHE": str(folder / "cache"),
        **environment,
    }
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert ended.stderr == ""
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


@pytest.mark.parametrize("batch", [1, "N"])
def test_a_process_that_compiles_holds_no_more_than_one_that_finds_the_model(
    batch: Dim, tmp_path: Path
) -> None:
    graph = _net(batch=batch)
    api.save(graph, tmp_path / "m.onnx")
    cold, warm = (_run(tmp_path, tmp_path / "m.onnx") for _ in range(2))
    assert cold["compiler"] == warm["compiler"] == []
    assert_same([np.array(cold["y"], np.float32)], outputs(api.compile_model(graph, threads=1)(X)))
    assert cold["y"] == warm["y"]
    if sys.platform == "linux":
        # The compiler, loaded, takes 27 MB.
        assert cold["held"] < warm["held"] + 8e6


def test_errors_are_those_of_compiling_here(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"no model")
    apart, here = (
        _run(tmp_path, tmp_path / "m.onnx", *options) for options in ((), ("--progress",))
    )
    assert apart["error"].startswith("ModelError: ")
    assert apart["error"] == here["error"]


def test_who_wants_to_see_it_compiles_here(tmp_path: Path) -> None:
    api.save(_net(), tmp_path / "m.onnx")
    # Nothing is kept when every pass is checked: there is nothing that another process could leave.
    for options, environment in (((), {"WHENCE_CHECK": "1"}), (("--progress",), {})):
        assert (
            "whence.building.build"
            in _run(tmp_path, tmp_path / "m.onnx", *options, **environment)["compiler"]
        )


def test_a_model_too_large_to_be_kept_is_not_compiled_twice_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def forget(call: Any, *given: Any) -> Answer:
        calls.append(given)
        return Answer(call(*given))

    monkeypatch.setattr("whence.building.subprocess_call.call_in_subprocess", forget)
    monkeypatch.setattr("whence.building.model_cache._LARGEST", 0)
    api.save(_net(), tmp_path / "m.onnx")
    for _ in range(2):
        engine = Engine(threads=1, toolchain=Toolchain(cache=Cache(tmp_path / "cache")))
        identity = engine.backend.cache_identity()
        assert identity is not None
        model = compile_file(
            FileDigest(tmp_path / "m.onnx"),
            engine,
            identity,
            CompileOptions({}),
            in_subprocess=True,
        )
        assert model(X).shape == (1, 16, 6, 6)
    assert len(calls) == 1


@pytest.mark.parametrize("changed", [False, True])
def test_external_data_is_hashed_by_one_of_the_two(
    changed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proto = onnx.load(_saved(_net(), tmp_path / "whole.onnx"))
    path, weights = tmp_path / "m.onnx", tmp_path / "data.bin"
    onnx.save(proto, path, save_as_external_data=True, location=weights.name, size_threshold=0)
    other = weights.read_bytes()[::-1]
    hashed: list[str] = []
    digest = _OpenFile.digest

    def noted(content: _OpenFile) -> str:
        hashed.append(content._path.name)
        return digest(content)

    def call(call: Any, *given: Any) -> Answer:
        answer = call(*pickle.loads(pickle.dumps(given)))
        if changed:
            weights.write_bytes(other)
        return Answer(pickle.loads(pickle.dumps(answer)))

    monkeypatch.setattr(_OpenFile, "digest", noted)
    monkeypatch.setattr("whence.codegen.digest._SETTLED_NS", 0)
    monkeypatch.setattr("whence.building.subprocess_call.call_in_subprocess", call)
    engine = Engine(threads=1, toolchain=Toolchain(cache=Cache(tmp_path / "cache")))
    identity = engine.backend.cache_identity()
    assert identity is not None
    model = compile_file(FileDigest(path), engine, identity, CompileOptions({}), in_subprocess=True)
    if not changed:
        assert hashed.count(weights.name) == 1
    assert_same(outputs(model(X)), api.load(path).run([X]))


# ---- the call itself ----


def _write(path: Path, text: str) -> None:
    path.write_text(f"{text} {os.getpid()}", encoding="utf-8")


def _warn() -> None:
    warnings.warn("the disk is full", RuntimeWarning, stacklevel=1)


def test_a_call_is_made_in_another_process(tmp_path: Path) -> None:
    assert call_in_subprocess(_write, tmp_path / "a", "done by")
    text, process = (tmp_path / "a").read_text(encoding="utf-8").rsplit(" ", 1)
    assert (text, int(process) != os.getpid()) == ("done by", True)


def _loud(number: int) -> int:
    print("said while it works")
    subprocess.run(["echo", "said by another"], check=True)
    return number + 1


def test_an_answer_is_what_the_call_returns(capfd: pytest.CaptureFixture[str]) -> None:
    assert call_in_subprocess(_loud, 41) == Answer(42)
    assert call_in_subprocess(_loud, "no number") is None
    assert capfd.readouterr() == ("", "")


def test_a_call_that_fails_or_warns_is_to_be_made_here(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert not call_in_subprocess(_write, tmp_path / "no folder" / "a", "")
    assert not call_in_subprocess(_warn)
    assert not call_in_subprocess(lambda: None)
    assert not call_in_subprocess(os._exit, 3)
    assert not call_in_subprocess(os._exit, 0)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("executable", ["", None, "/usr/bin/pythonic", "/no/such/folder/python3"])
def test_no_other_program_is_started(
    executable: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    assert not call_in_subprocess(_write, tmp_path / "a", "")
    assert not (tmp_path / "a").exists()


def test_a_frozen_program_is_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert not call_in_subprocess(_write, tmp_path / "a", "")
    assert not (tmp_path / "a").exists()


def test_a_process_that_was_started_before_makes_one_call(tmp_path: Path) -> None:
    with Subprocess(["json", "whence.errors"]) as process:
        assert process.call(_write, tmp_path / "a", "done by")
        assert not process.call(_write, tmp_path / "b", "done by")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_process_that_is_not_needed_ends() -> None:
    with Subprocess() as process:
        started = process._process
        assert started is not None
        assert started.poll() is None
    assert started.poll() is not None


def test_a_module_that_cannot_be_imported_leaves_the_call_to_this_process(tmp_path: Path) -> None:
    with Subprocess(["no.such.module"]) as process:
        assert not process.call(_write, tmp_path / "a", "")
    assert not (tmp_path / "a").exists()
