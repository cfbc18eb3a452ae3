"""ONNX Runtime with its own profiler: a trace of every node, and the graph that it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

TRACE, OPTIMISED = "trace.json", "optimised.onnx"


class OnnxRuntimeSession:
    version: str = onnxruntime.__version__

    def __init__(
        self, model: Path, threads: int, inputs: dict[str, np.ndarray], folder: Path
    ) -> None:
        profiled = _options(threads)
        profiled.enable_profiling = True
        profiled.profile_file_prefix = str(folder / "onnxruntime")
        profiled.optimized_model_filepath = str(folder / OPTIMISED)
        self._profiled = _session(model, profiled)
        self._plain = _session(model, _options(threads))
        wanted = {each.name for each in self._plain.get_inputs()}
        self._inputs = {name: value for name, value in inputs.items() if name in wanted}

    def run(self, *, counts: bool) -> object:
        return self._plain.run(None, self._inputs)

    def run_profiled(self, *, counts: bool) -> object:
        return self._profiled.run(None, self._inputs)

    def note(self) -> None:
        """The trace has it."""

    def finish(self, folder: Path, warmup: int) -> None:
        Path(self._profiled.end_profiling()).replace(folder / TRACE)


load = OnnxRuntimeSession


def _options(threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    return options


def _session(model: Path, options: Any) -> Any:
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
