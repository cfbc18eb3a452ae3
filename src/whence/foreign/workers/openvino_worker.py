"""OpenVINO with its performance counters: the model as it runs, and averages over its runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import openvino

FILE = "openvino.json"


class OpenVinoSession:
    version: str = openvino.__version__.partition("-")[0]

    def __init__(
        self, model: Path, threads: int, inputs: dict[str, np.ndarray], folder: Path
    ) -> None:
        core = openvino.Core()
        read = core.read_model(model)
        wanted = {name for port in read.inputs for name in port.get_names()}
        self._inputs = {name: value for name, value in inputs.items() if name in wanted}
        read.reshape({name: list(value.shape) for name, value in self._inputs.items()})
        settings: dict[str, Any] = {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
            "NUM_STREAMS": 1,
        }
        self._compiled = core.compile_model(read, "CPU", {**settings, "PERF_COUNT": "YES"})
        self._profiled = self._compiled.create_infer_request()
        self._plain = core.compile_model(read, "CPU", settings).create_infer_request()
        self._averages: list[dict[str, int]] = []
        """After each run, by node: microseconds, averaged over all runs up to then."""

    def run(self, *, counts: bool) -> object:
        return self._plain.infer(self._inputs)

    def run_profiled(self, *, counts: bool) -> object:
        return self._profiled.infer(self._inputs)

    def note(self) -> None:
        self._averages.append(
            {
                each.node_name: round(each.real_time.total_seconds() * 1e6)
                for each in self._profiled.profiling_info
                if str(each.status).endswith("EXECUTED")
            }
        )

    def finish(self, folder: Path, warmup: int) -> None:
        content = {
            "nodes": [_node(op) for op in self._compiled.get_runtime_model().get_ordered_ops()],
            "runs": len(self._averages),
            "before": {"runs": warmup, "averages": self._averages[warmup - 1] if warmup else {}},
            "averages": self._averages[-1] if self._averages else {},
        }
        (folder / FILE).write_text(json.dumps(content), encoding="utf-8")


load = OpenVinoSession


def _node(op: Any) -> dict[str, Any]:
    facts = {
        name: value.astype(str) if hasattr(value, "astype") else str(value)
        for name, value in op.get_rt_info().items()
    }
    return {
        "name": op.get_friendly_name(),
        "inputs": [port.get_source_output().get_node().get_friendly_name() for port in op.inputs()],
        "shapes": [str(port.get_partial_shape()) for port in op.outputs()],
        "info": facts,
    }
