"""What a process holds once a model is compiled: its weights once, and not what compiling
needed.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.runtime.models import compiled, relu
from whence.runtime.engine import Engine

# Of a size that malloc takes from its heap, as the weights of most models are.
SIDE, LAYERS = 1024, 48
_HELD = """
import sys
def held():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmRSS:"))
"""
_COMPILES = """
import numpy as np, onnx, whence
before = held()
# Who wants to see progress has the model compiled by this process.
model = whence.compile(sys.argv[1], threads=2, progress=lambda *_: None)
model(np.ones((1, int(sys.argv[2])), np.float32))
print(held() - before)
"""
_FREES = """
import numpy as np
from whence.runtime.freed_memory import return_freed_memory
# What stays between them keeps the C library from giving back what is freed.
arrays = [np.ones(size, np.uint8) for _ in range(1000) for size in (100_000, 2_000)]
del arrays[::2]
before = held()
return_freed_memory()
print(before - held(), all(array.all() for array in arrays))
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 200 MB: layers of one width, each with weights of its own."""
    draw = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(draw.standard_normal((SIDE, SIDE), np.float32), f"w{layer}")
        for layer in range(LAYERS)
    ]
    nodes = [
        helper.make_node("MatMul", [f"x{layer}", f"w{layer}"], [f"x{layer + 1}"])
        for layer in range(LAYERS)
    ]
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, SIDE])
        for name in ("x0", f"x{LAYERS}")
    ]
    graph = helper.make_graph(nodes, "large", ends[:1], ends[1:], weights)
    path = tmp_path_factory.mktemp("large") / "large.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path
    )
    return path


def run(text: str, *arguments: str, cache: Path) -> str:
    command = [sys.executable, "-c", _HELD + text, *arguments]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "WHENCE_CACHE": str(cache)},
    ).stdout


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_holds_the_weights_once_whether_it_compiled_them_or_found_them(
    large: Path, tmp_path: Path
) -> None:
    for _ in ("compiled here", "found in the cache"):
        # A quarter more, and the modules that compile.
        assert (
            int(run(_COMPILES, str(large), str(SIDE), cache=tmp_path))
            < 4 * SIDE * SIDE * LAYERS * 1.25 + 40e6
        )


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="only glibc can be told to give memory back"
)
def test_freed_memory_goes_back_and_what_is_in_use_stays(tmp_path: Path) -> None:
    returned, intact = run(_FREES, cache=tmp_path).split()
    assert int(returned) > 80e6
    assert intact == "True"


def test_a_compiled_graph_has_its_constants_packed_only(engine: Engine) -> None:
    model = compiled(relu(), engine)
    assert all(node.value is None for node in model.programs[0].graph if node.is_const)
