"""Reading what a process that ran an engine left in its folder."""

from __future__ import annotations

import json
from pathlib import Path

from whence.foreign.recording import Recording
from whence.foreign.source import SourceGraph


def read_recording(source: SourceGraph, folder: Path) -> Recording:
    told = json.loads((folder / "recording.json").read_text(encoding="utf-8"))
    facts = {
        "version": str(told["version"]),
        "threads": int(told["threads"]),
    }
    walls, skip = [int(each) for each in told["runs_ns"]], int(told["warmup"])
    match told["engine"]:
        case "onnxruntime":
            from whence.foreign.onnxruntime_reader import read_onnxruntime

            return read_onnxruntime(
                source,
                folder / "trace.json",
                folder / "optimised.onnx",
                version=str(told["version"]),
                threads=int(told["threads"]),
                walls=walls,
                skip=skip,
            )
    raise AssertionError(f"no reader for {told['engine']} {facts}")
