"""Inductor, what `torch.compile` uses: a program of torch.export, compiled, with torch.profiler and
the compiler's provenance mappings.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

TRACE, MAPPINGS = "trace.json", "mappings.json"


class InductorSession:
    def __init__(
        self, model: Path, threads: int, inputs: dict[str, np.ndarray], folder: Path
    ) -> None:
        # Before torch is imported: it reads them then.
        os.environ["TORCH_COMPILE_DEBUG"] = "1"
        os.environ["TORCH_COMPILE_DEBUG_DIR"] = str(folder / "debug")
        import torch
        import torch._inductor.config as settings

        self.version: str = str(torch.__version__)
        torch.set_num_threads(threads)
        settings.cpp.enable_kernel_profile = True
        settings.trace.provenance_tracking_level = 1
        settings.force_disable_caches = True  # a cached kernel would write no mappings
        self._torch: Any = torch
        program = torch.export.load(model)
        self._inputs = [torch.from_numpy(np.ascontiguousarray(each)) for each in inputs.values()]
        self._run = torch.compile(program.module())
        self._events: list[Any] = []
        with torch.no_grad():
            self._run(*self._inputs)
        found = sorted(folder.glob("debug/**/inductor_provenance_tracking_node_mappings.json"))
        if len(found) != 1:
            raise RuntimeError(
                f"Inductor compiled {len(found)} graphs with provenance mappings, not 1"
            )
        shutil.copyfile(found[0], folder / MAPPINGS)

    def run(self, *, counts: bool) -> None:
        with self._torch.no_grad():
            self._run(*self._inputs)

    def run_profiled(self, *, counts: bool) -> None:
        from torch.profiler import ProfilerActivity, profile

        profiler = profile(activities=[ProfilerActivity.CPU])
        profiler.start()
        self.run(counts=counts)
        profiler.stop()
        self._profiler = profiler

    def note(self) -> None:
        self._events.append(
            [
                {
                    "ph": "X",
                    "name": event.name,
                    "ts": event.time_range.start,
                    "dur": event.time_range.end - event.time_range.start,
                }
                for event in self._profiler.events()
            ]
        )

    def finish(self, folder: Path, warmup: int) -> None:
        # Each run has a clock of its own: they are put one after the other.
        rows, at = [], 0.0
        for events in self._events[warmup:]:
            first = min((row["ts"] for row in events), default=0.0)
            rows += [{**row, "ts": row["ts"] - first + at} for row in events]
            at = max((row["ts"] + row["dur"] for row in rows), default=at) + 1.0
        (folder / TRACE).write_text(json.dumps({"traceEvents": rows}), encoding="utf-8")


load = InductorSession
