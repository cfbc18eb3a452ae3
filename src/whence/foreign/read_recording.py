"""Reading what a process that ran an engine left in its folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from whence.attribution.measure import overhead
from whence.errors import ModelError
from whence.foreign.inductor_reader import read_inductor
from whence.foreign.litert_reader import read_litert
from whence.foreign.onnxruntime_reader import read_onnxruntime
from whence.foreign.openvino_reader import read_openvino
from whence.foreign.reading import read_json
from whence.foreign.recording import Recording
from whence.foreign.source import SourceGraph


def read_recording(source: SourceGraph, folder: Path) -> Recording:
    told = read_json(folder / "recording.json")
    walls = [int(each) for each in told["runs_ns"]]
    trace = folder / "trace.json"
    match told["engine"]:
        case "onnxruntime":
            optimised, skip = folder / "optimised.onnx", int(told["warmup"])
            found = read_onnxruntime(source, trace, optimised, walls, skip=skip)
        case "openvino":
            found = read_openvino(source, folder / "openvino.json", walls)
        case "inductor":
            found = read_inductor(source, trace, folder / "mappings.json")
        case "litert":
            found = read_litert(source, folder / "litert.json", walls)
        case other:
            raise AssertionError(f"no reader for {other}")
    if len(found.runs_ns) != len(walls):
        raise ModelError(f"'{folder}' has {len(found.runs_ns)} runs, {len(walls)} expected")
    return replace(
        found,
        version=str(told["version"]),
        threads=int(told["threads"]),
        overhead_ratio=overhead(told["runs_ns"], told["plain_ns"]),
    )
