"""Models compiled for aarch64 and run by an emulator: NEON code against the reference. For RISC-V,
they are compiled.

Needs Debian's packages qemu-user and libc6-arm64-cross, or their like.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.kernels.families import every_family
from tests.kernels.harness import Cases
from tests.kernels.whole_models import WHOLE_MODELS
from tests.runtime.zig import zig_cc
from whence.api import prepare
from whence.backends.cpu.generator import build_program
from whence.building.export import export
from whence.codegen.target import Target
from whence.codegen.toolchain import Toolchain
from whence.graph import Graph

REQUIRED = "WHENCE_REQUIRE_QEMU"
_ROOT = Path("/usr/aarch64-linux-gnu")
_SECONDS = 600


def _emulator() -> list[str]:
    """The command that runs a program for aarch64. Without one the test is skipped, or fails where
    it is required.
    """
    if platform.machine() == "aarch64":
        return []
    found = shutil.which("qemu-aarch64")
    if found is None or not _ROOT.exists():
        missing = f"qemu-aarch64 (Debian: qemu-user) and {_ROOT} (libc6-arm64-cross) are needed"
        if os.environ.get(REQUIRED):
            pytest.fail(f"{missing}; {REQUIRED} is set")
        pytest.skip(missing)
    return [found, "-cpu", "max", "-L", str(_ROOT)]


@dataclass(frozen=True, slots=True)
class _Exported:
    """A model as files, and what it should compute."""

    cases: Cases
    graph: Graph
    """As it was before it was prepared."""
    arguments: list[str]
    made: Path

    def check(self, target: str) -> None:
        data, place, results = self.made.read_bytes(), 0, []
        expected = self.graph.run(self.cases.feeds)
        for value in expected:
            assert isinstance(value, np.ndarray)
            part = data[place : place + value.nbytes]
            results.append(np.frombuffer(part, value.dtype).reshape(value.shape))
            place += value.nbytes
        assert place == len(data)
        self.cases.compare(f"the reference on {target}", expected, results)


def _exported(
    cases: Cases, toolchain: Toolchain, folder: Path, name: str, *, prepared: bool
) -> _Exported:
    graph = cases.build.finish()
    made = prepare(graph.copy()) if prepared else graph
    program = build_program(made, toolchain, load=False)
    library, header, _, weights, _ = export(program, toolchain, folder / name, name)
    given = folder / name / "inputs"
    given.write_bytes(
        b"".join(np.ascontiguousarray(cases.feeds[node.name]).tobytes() for node in made.inputs)
    )
    outputs = folder / name / "outputs"
    arguments = [library, f"{header.stem}_description", weights, given, outputs]
    return _Exported(cases, graph, [str(each) for each in arguments], outputs)


@pytest.mark.parametrize("target", ["aarch64", "aarch64-dotprod"])
def test_kernels_and_whole_models(target: str, tmp_path: Path) -> None:
    """One program runs them all: every family of kernels, and ten models by themselves."""
    emulator = _emulator()
    toolchain = Toolchain(Target.named(target))
    models = [_exported(every_family(), toolchain, tmp_path, "families", prepared=False)]
    if target == "aarch64":
        for number, (name, add) in enumerate(WHOLE_MODELS.items()):
            cases = Cases(number)
            add(cases)
            models.append(_exported(cases, toolchain, tmp_path, name, prepared=True))
    shutil.copyfile(Path(__file__).with_name("run_models.c"), tmp_path / "run_models.c")
    source = ["run_models.c", "-Ifamilies", "-ldl", "-o", "run_models"]
    zig_cc(toolchain, tmp_path, *source)
    done = subprocess.run(
        [*emulator, "./run_models", *(each for model in models for each in model.arguments)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for model in models:
        model.check(target)


def test_every_family_compiles_for_riscv(tmp_path: Path) -> None:
    toolchain = Toolchain(Target.named("riscv64"))
    program = build_program(every_family().build.finish(), toolchain, load=False)
    library, *_ = export(program, toolchain, tmp_path, "families")
    # The machine's number in an ELF header.
    assert library.read_bytes()[18:20] == (243).to_bytes(2, "little")
