"""Sweeps on this machine: each cell in a process of its own, and nothing measured twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.fleet.models import tiny_model
from whence.fleet import worker
from whence.fleet.cell import Cell
from whence.fleet.cell_result import CellResult, Status
from whence.fleet.model_files import ModelFiles
from whence.fleet.process import CellLimits, measure
from whence.fleet.spec import Spec
from whence.fleet.sweep import Finished, run_here, sweep, tasks_of
from whence.fleet.table import Table
from whence.fleet.versions import Checkout, current, find_version

QUICK = CellLimits(seconds=0.2, error=0.5, warmup=1)
WHENCE = [sys.executable, "-c", "from whence.cli.main import main; main()"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return tuple(tiny_model(folder / f"tiny_{n}.onnx", n) for n in range(3))


def broken(path: Path) -> Path:
    path.write_bytes(b"not a model")
    return path


def cells(table: Table) -> list[tuple[object, ...]]:
    with table.connected() as connection:
        return connection.execute(
            "SELECT model, threads, status, runs FROM cell ORDER BY model, threads"
        ).fetchall()


def test_a_sweep_measures_what_is_missing_and_goes_on_after_a_failure(models, tmp_path):
    spec = Spec((models[0], broken(tmp_path / "broken.onnx"), models[1]), threads=(1,))
    table = Table(tmp_path / "table", create=True)
    tasks = tasks_of(spec, "night", table.folder)
    summary = sweep(tasks, table, QUICK, run_here)
    assert summary.by_status == {Status.DONE: 2, Status.FAILED: 1}
    assert [row[:3] for row in cells(table)] == [
        ("broken", 1, "failed"),
        ("tiny_0", 1, "done"),
        ("tiny_1", 1, "done"),
    ]
    with table.connected() as connection:
        found = connection.execute(
            "SELECT DISTINCT name FROM operator WHERE model = 'tiny_0'"
        ).fetchall()
        facts = dict(connection.execute("SELECT name, fact FROM environment").fetchall())
    assert {row[0] for row in found} == {
        f"/layer{layer}/{op}" for layer in range(2) for op in ("MatMul", "Relu")
    }
    assert {"cpu", "cores", "whence", "date"} <= set(facts)

    def nobody(tasks, limits):
        for task in tasks:
            yield Finished(task, CellResult(Status.CRASHED, error="should not be asked"))

    assert sweep(tasks, table, QUICK, nobody).skipped == 3
    assert sweep(tasks, table, QUICK, nobody, retry=True).by_status == {Status.CRASHED: 1}


def test_a_sweep_killed_goes_on_where_it_was(models, tmp_path):
    table = tmp_path / "table"
    command = [
        *WHENCE, "sweep", *map(str, models[:2]), "--threads", "1,2", "-o", str(table), "--seconds",
        "0.2", "--error", "0.5", "--night", "n",
    ]  # fmt: skip
    with subprocess.Popen(command, start_new_session=True) as first:
        end = time.monotonic() + 120
        while len(list(table.rglob("*.parquet"))) < 2:
            assert first.poll() is None
            assert time.monotonic() < end
            time.sleep(0.05)
        os.killpg(first.pid, signal.SIGKILL)
    before = {path: path.stat().st_mtime_ns for path in table.rglob("*.parquet")}
    assert 2 <= len(before) < 4
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert f"{4 - len(before)} done, {len(before)} in the table before" in done.stdout
    assert [(row[0], row[1], row[2]) for row in cells(Table(table))] == [
        (f"tiny_{model}", threads, "done") for model in range(2) for threads in (1, 2)
    ]
    assert all(path.stat().st_mtime_ns == then for path, then in before.items())


def stub(folder: Path, body: str) -> Checkout:
    """A version of whence that does what `body` says when a model is compiled."""
    package = folder / "src" / "whence"
    package.mkdir(parents=True)
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    (package / "__init__.py").touch()
    text = f"def compile_model(*args, **options):\n{lines}\nprofile_model = compile_model\n"
    (package / "api.py").write_text(text)
    return find_version(str(folder), folder)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ("import time\ntime.sleep(60)", Status.TIMEOUT, "not done after 1 s"),
        ("import os\nos.abort()", Status.CRASHED, "SIGABRT"),
        ("import os\nprint('last words')\nos._exit(3)", Status.CRASHED, "exit code 3"),
        ("x = bytearray(1 << 31)", Status.MEMORY, "out of memory"),
        ("raise RuntimeError('two\\nlines')", Status.FAILED, "RuntimeError: two lines"),
    ],
)
def test_whatever_happens_to_a_cell_is_its_outcome(models, tmp_path, body, status, words):
    limits = CellLimits(timeout=1.0 if "sleep" in body else 60.0, memory=1 << 30)
    outcome = measure(Cell("tiny", ""), models[0], limits, stub(tmp_path / "version", body))
    assert outcome.status is status
    assert words in outcome.error


def test_runs_are_repeated_until_the_error_is_small(monkeypatch):
    rng = np.random.default_rng(0)
    asked = []

    def profile(runs):
        asked.append(runs)
        return {"runs_ns": [int(time) for time in rng.normal(1e6, 1e5, runs)]}

    monkeypatch.setattr(worker, "_of_whence", lambda _: profile)
    request = {"engine": "whence", "seconds": 1000.0, "error": 0.01}
    found = worker.measure(request)
    assert found["relative_error"] <= 0.01
    assert asked[0] == 20
    assert asked == sorted(set(asked))
    assert len(asked) > 1
    asked.clear()
    worker.measure({**request, "seconds": 0.0})
    assert asked == [20]


def test_external_weights_are_part_of_a_model(tmp_path):
    path = tiny_model(tmp_path / "model.onnx")
    whole = ModelFiles(path).sha256
    proto = onnx.load(str(path))
    onnx.save(
        proto, str(path), save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    files = ModelFiles(path)
    assert [other.name for other in files.others] == ["weights.bin"]
    assert set(files.contents()) == {"model.onnx", "weights.bin"}
    split = files.sha256
    changed = bytearray((tmp_path / "weights.bin").read_bytes())
    changed[0] ^= 1
    (tmp_path / "weights.bin").write_bytes(changed)
    assert len({whole, split, ModelFiles(path).sha256}) == 3


def test_the_dry_run_lists_and_measures_nothing(models, tmp_path):
    table = tmp_path / "table"
    done = subprocess.run(
        [*WHENCE, "sweep", str(models[0]), "--threads", "1,2", "-o", str(table), "--dry-run"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.count("tiny_0") == 2
    assert not table.exists()


def test_the_command_fails_when_a_cell_does(tmp_path):
    done = subprocess.run(
        [*WHENCE, "sweep", str(broken(tmp_path / "b.onnx")), "-o", str(tmp_path / "t")],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert "1 failed" in done.stdout
    assert "b · whence" in done.stderr


def test_without_ray_an_error_says_what_to_install(models, tmp_path):
    (tmp_path / "ray.py").write_text("raise ImportError\n")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(
        [*WHENCE, "sweep", str(models[0]), "-o", str(tmp_path / "t"), "--on", "ray"],
        check=False, capture_output=True, text=True, env=environment,
    )  # fmt: skip
    assert done.returncode == 1
    assert "pip install 'whence[fleet]'" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_profiles_of_a_sweep_are_json(models):
    outcome = measure(Cell("tiny", "", threads=1), models[0], QUICK, current())
    assert json.loads(json.dumps(outcome.profile))["sources"]
