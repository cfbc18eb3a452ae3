"""A compiled model and ONNX Runtime in turns, on the same input and as many threads."""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from whence.runtime.executable import Executable

_ROUNDS = 9
_WARMUP = 2


@dataclass(frozen=True, slots=True)
class Timing:
    """Median times of a run, in nanoseconds."""

    version: str
    own_ns: float
    other_ns: float
    rounds: int
    output: np.ndarray
    """ONNX Runtime's first."""


def time_onnxruntime(
    path: Path, executable: Executable, inputs: Mapping[str, np.ndarray]
) -> Timing | None:
    """None where ONNX Runtime is not installed."""
    try:
        onnxruntime = importlib.import_module("onnxruntime")
    except ImportError:
        return None
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    settings.intra_op_num_threads = executable.engine.threads
    settings.inter_op_num_threads = 1
    # Its threads spin while it runs, as always, but not while it is the other one's turn.
    settings.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    given = dict(inputs)
    output = np.asarray(session.run(None, given)[0])
    own, other = [], []
    for number in range(_WARMUP + _ROUNDS):
        ours = _second_run(lambda: executable(**inputs))
        theirs = _second_run(lambda: session.run(None, given))
        if number >= _WARMUP:
            own.append(ours)
            other.append(theirs)
    return Timing(
        str(onnxruntime.__version__),
        statistics.median(own),
        statistics.median(other),
        _ROUNDS,
        output,
    )


def _second_run(run: Callable[[], object]) -> int:
    """Nanoseconds of a run right behind another one, as those of a profile are: the one before
    wakes the threads, and finds the caches full of what the other engine used.
    """
    run()
    began = time.perf_counter_ns()
    run()
    return time.perf_counter_ns() - began
