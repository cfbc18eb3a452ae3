"""Budgets in other people's tests."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

from tests.fleet.models import tiny_model
from whence.fleet.process import CellLimits
from whence.fleet.spec import Spec
from whence.fleet.sweep import run_here, sweep, tasks_of
from whence.fleet.table import Table

TESTS = """
def test_within(whence_budget):
    whence_budget("tiny.onnx", "layer0", max_share=1.0)

def test_beyond(whence_budget):
    whence_budget("tiny.onnx", "layer0", max_share=1e-6)

def test_unknown(whence_budget):
    whence_budget("tiny.onnx", "layer9", max_share=1.0)

def test_ratio_within(whence_budget):
    whence_budget("tiny.onnx", "layer1", max_ms_ratio=1e6)

def test_ratio_beyond(whence_budget):
    whence_budget("tiny.onnx", max_ms_ratio=1e-6)
"""


def run(folder, *options):
    """An environment in which whence is installed has the plugin by its entry point."""
    found = {each.value for each in entry_points(group="pytest11")}
    named = [] if "whence.pytest_plugin" in found else ["-p", "whence.pytest_plugin"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *named, "-q", "-rA", *options],
        check=False, cwd=folder, capture_output=True, text=True,
    ).stdout  # fmt: skip


def test_budgets_hold_or_fail_with_reasons(tmp_path):
    model = tiny_model(tmp_path / "tiny.onnx")
    (tmp_path / "test_budget.py").write_text(TESTS)
    table = Table(tmp_path / "table", create=True)
    limits = CellLimits(seconds=0.1, error=0.9, warmup=0)
    sweep(tasks_of(Spec((model,)), "n", table.folder), table, limits, run_here)
    said = run(tmp_path, "--whence-baseline", "table")
    assert "2 passed" in said
    assert "3 failed" in said
    assert "PASSED test_budget.py::test_within" in said
    assert "PASSED test_budget.py::test_ratio_within" in said
    assert "layer0 takes" in said
    assert "and may take 0.0%; most in '/layer0/" in said
    assert "no operator and no module 'layer9'" in said
    assert "of the baseline; it may take 1e-06 times as long" in said


def test_a_ratio_needs_a_baseline(tmp_path):
    tiny_model(tmp_path / "tiny.onnx")
    (tmp_path / "test_budget.py").write_text(TESTS)
    said = run(tmp_path, "-k", "ratio_within")
    assert "max_ms_ratio needs a baseline: pytest --whence-baseline TABLE" in said
