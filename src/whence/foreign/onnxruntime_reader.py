"""A recording of ONNX Runtime, from the files that it writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from whence.errors import ModelError
from whence.foreign.onnxruntime_graph import read_graph
from whence.foreign.onnxruntime_trace import MICROSECONDS, read_trace
from whence.foreign.recording import Recording
from whence.foreign.source import SourceGraph


def read_onnxruntime(
    source: SourceGraph,
    trace: Path,
    optimised: Path,
    *,
    version: str = "",
    threads: int = 1,
    walls: Sequence[int] = (),
    skip: int = 0,
    overhead_ratio: float = 0.0,
) -> Recording:
    """`trace` is what `enable_profiling` wrote, `optimised` what `optimized_model_filepath` did."""
    try:
        model = onnx.load(optimised, load_external_data=False)
    except FileNotFoundError:
        raise ModelError(f"'{optimised}': no such file") from None
    except (DecodeError, ValueError) as error:
        raise ModelError(f"'{optimised}' is not an ONNX model: {error}") from error
    nodes = read_graph(source, model)
    found = read_trace(trace, nodes, walls, skip=skip)
    return Recording(
        engine="onnxruntime",
        version=version,
        threads=threads,
        nodes=tuple(replace(node, shape=found.shapes.get(node.number, "")) for node in nodes),
        runs_ns=found.runs_ns,
        node_ns=found.node_ns,
        node_calls=found.node_calls,
        residual_ns=found.residual_ns,
        timeline=found.timeline,
        timeline_ns=found.timeline_ns,
        overhead_ratio=overhead_ratio,
        notes=(MICROSECONDS,),
    )
