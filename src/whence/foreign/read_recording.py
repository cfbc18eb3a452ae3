"""Reading what a process that ran an engine left in its folder."""

from __future__ import annotations

import json
from pathlib import Path

from whence.foreign.recording import Recording
from whence.foreign.source import SourceGraph


def read_recording(source: SourceGraph, folder: Path) -> Recording:
    told = json.loads((folder / "recording.json").read_text(encoding="utf-8"))
    version, threads = str(told["version"]), int(told["threads"])
    walls = [int(each) for each in told["runs_ns"]]
    match told["engine"]:
        case "onnxruntime":
            from whence.foreign.onnxruntime_reader import read_onnxruntime

            return read_onnxruntime(
                source,
                folder / "trace.json",
                folder / "optimised.onnx",
                version=version,
                threads=threads,
                walls=walls,
                skip=int(told["warmup"]),
            )
        case "openvino":
            from whence.foreign.openvino_reader import read_openvino

            return read_openvino(
                source, folder / "openvino.json", walls, version=version, threads=threads
            )
        case "inductor":
            from whence.foreign.inductor_reader import read_inductor

            return read_inductor(
                source,
                folder / "trace.json",
                folder / "mappings.json",
                version=version,
                threads=threads,
                runs_wanted=len(walls),
            )
        case "litert":
            from whence.foreign.litert_reader import read_litert

            return read_litert(
                source, folder / "litert.json", walls, version=version, threads=threads
            )
    raise AssertionError(f"no reader for {told['engine']}")
