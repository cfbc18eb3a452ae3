"""Engines and their threads."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from tests.runtime.models import compiled, relu
from whence.codegen.target import usable_cores
from whence.errors import InputError, UnsupportedError
from whence.runtime.engine import Engine


def _workers() -> int:
    """The threads of all pools in this process. Any thread may end while we look."""
    found = 0
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            found += (task / "comm").read_text(encoding="ascii") == "whence-worker\n"
    return found


def _settles(count: int) -> None:
    # A thread has its name a moment after it began, and leaves the list a moment after it ended.
    for _ in range(200):
        if _workers() == count:
            return
        time.sleep(0.05)
    assert _workers() == count


def test_what_an_engine_can_be() -> None:
    assert Engine().threads == usable_cores()
    assert Engine("cpu", 0, 3).threads == 3
    with pytest.raises(
        UnsupportedError, match="there is no engine 'gpu'; there are cpu and opencl"
    ):
        Engine("gpu")
    with pytest.raises(InputError, match="index 0 only"):
        Engine(index=1)
    with pytest.raises(InputError, match="threads make no sense"):
        Engine(threads=-1)


def test_an_engine_that_is_dropped_ends_its_threads() -> None:
    gc.collect()
    before = _workers()
    engine = Engine(threads=4)
    _settles(before + 3)
    del engine
    _settles(before)


def test_a_model_keeps_its_engine() -> None:
    gc.collect()
    before = _workers()
    model = compiled(relu(), Engine(threads=3))
    _settles(before + 2)
    assert model(np.zeros(4, np.float32)).tolist() == [1, 1, 1, 1]
    del model
    _settles(before)


def test_work_is_shared_among_threads_and_every_item_is_done_once() -> None:
    rng = np.random.default_rng(0)
    for threads in (1, 2, 3, 7):
        engine = Engine(threads=threads)
        model = compiled(relu(1000, 97), engine)
        x = rng.standard_normal((1000, 97)).astype(np.float32)
        for _ in range(20):
            np.testing.assert_array_equal(model(x), np.maximum(x + 1, 0))


def _python(text: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


_MODEL = """
    import os, sys, numpy as np, whence
    from whence.graph.builder import GraphBuilder
    from whence.types import DType

    build = GraphBuilder("m")
    build.output("y", build.op("Softmax", build.op("MatMul", build.input("x", DType.F32, [300, 300]), build.const(np.eye(300, dtype=np.float32)))))
    model = whence.compile(build.finish(), threads=3)
    x = np.ones((300, 300), np.float32)
"""


def test_a_forked_process_can_run_a_model() -> None:
    # It has a copy of the pool, but none of its threads.
    text = _python(
        _MODEL
        + """
    expected = model(x)
    child = os.fork()
    if child == 0:
        good = all(np.array_equal(model(x), expected) for _ in range(3))
        del model
        sys.exit(0 if good else 3)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), np.array_equal(model(x), expected))
    """
    )
    assert text.split() == ["0", "True"]


def test_a_process_may_end_in_the_middle_of_a_run() -> None:
    text = _python(
        _MODEL
        + """
    stream = whence.Stream(model.engine, whence.StreamFlags.PROFILING)
    for _ in range(500):
        model.execute(stream, x)
    print("leaving", flush=True)
    """
    )
    assert text.split() == ["leaving"]
