"""What a start from the cache imports: it takes as long as its imports do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from whence.frontends.onnx.writer import write_onnx
from whence.graph.builder import GraphBuilder
from whence.types import DType

_SCRIPT = """
import sys, whence, numpy
model = whence.compile(sys.argv[1], threads=1)
model(numpy.ones((2, 3), numpy.float32))
print(*sys.modules)
"""
_NOT_NEEDED = (
    "whence.graph",
    "whence.passes",
    "whence.fusion",
    "whence.kernels",
    "whence.frontends",
    "whence.ops.definition",
    "whence.ops.registry",
    "whence.building.allocate",
    "whence.building.memory_layout",
    "whence.building.subprocess_call",
    "concurrent.futures",
    "importlib.resources",
    "ml_dtypes",
    # macOS is asked for the processor's features by a program.
    *(() if sys.platform == "darwin" else ("subprocess",)),
)


def test_numpy_is_imported_after_the_process_that_compiles_is_started() -> None:
    """What `whence.compile` needs for that is imported without it, so that the two take place at
    the same time.
    """
    script = """
import sys, whence.api, whence.building.subprocess_call, whence.codegen.cache, whence.codegen.digest
import whence.runtime.hot_shapes
print("numpy" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_a_start_from_the_cache_imports_neither_compiler_nor_operators(tmp_path: Path) -> None:
    build = GraphBuilder()
    x = build.input("x", DType.F32, [2, 3])
    build.output("y", build.op("Add", x, build.const(np.ones(3, np.float32))))
    path = tmp_path / "add.onnx"
    write_onnx(build.finish(), path)
    environment = {**os.environ, "WHENCE_CACHE": str(tmp_path / "cache")}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", _SCRIPT, str(path)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
    loaded = [
        name
        for name in done.stdout.split()
        if any(name == each or name.startswith(f"{each}.") for each in _NOT_NEEDED)
    ]
    assert loaded == []
