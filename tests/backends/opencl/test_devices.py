"""Finding devices, and what is said when there is none."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from typer.testing import CliRunner

import whence
from whence.backends.opencl import devices
from whence.cli.main import app
from whence.graph.builder import GraphBuilder
from whence.interop.opencl import get_device
from whence.runtime.engine import Engine
from whence.types import DType


def test_what_is_found_can_be_used(engine: Engine) -> None:
    found = devices.find_devices()
    assert found[engine.index] == get_device(engine)
    assert [row.name for row in type(engine.backend).devices()] == [
        each.name.strip() for each in found
    ]
    shown = CliRunner().invoke(app, ["devices"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    assert "cpu" in shown.output
    assert f"opencl:{engine.index}" in shown.output


def test_a_number_that_no_device_has() -> None:
    with pytest.raises(whence.InputError, match="whence devices"):
        whence.Engine("opencl", 99)


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whence.backends.opencl.devices.find_devices", list)
    with pytest.raises(whence.UnsupportedError, match="pip install pocl-binary-distribution"):
        whence.Engine("opencl", 0)


def test_a_driver_that_is_older_than_the_processor(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    cl = devices.require_pyopencl()

    def build(*_: Any, **__: Any) -> None:
        raise cl.RuntimeError("clBuildProgram failed\n\nerror: unknown target CPU 'generic'\n")

    monkeypatch.setattr(cl.Program, "build", build)
    graph = GraphBuilder()
    graph.output("y", graph.op("Neg", graph.input("x", DType.F32, [12345])))
    with pytest.raises(whence.UnsupportedError, match=r"'generic'; .*apt install pocl-opencl-icd"):
        whence.compile(graph.finish(), engine=engine)


def test_without_pyopencl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    with pytest.raises(whence.UnsupportedError, match=r"pip install 'whence\[opencl\]'"):
        whence.Engine("opencl", 0)
    shown = CliRunner().invoke(app, ["devices"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    assert "no OpenCL device" in shown.output
    assert "whence[opencl]" in shown.output
    # Everything else works.
    assert whence.Engine(threads=1).threads == 1
