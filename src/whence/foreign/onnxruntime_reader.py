"""A recording of ONNX Runtime, from the files that it writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx

from whence.foreign.onnxruntime_graph import read_graph
from whence.foreign.onnxruntime_trace import read_trace
from whence.foreign.reading import reading
from whence.foreign.recording import Recording
from whence.foreign.source import SourceGraph


def read_onnxruntime(
    source: SourceGraph,
    trace: Path,
    optimised: Path,
    walls: Sequence[int] = (),
    *,
    skip: int = 0,
) -> Recording:
    """`trace` is what `enable_profiling` wrote, `optimised` what `optimized_model_filepath` did."""
    with reading(optimised, "is not an ONNX model"):
        nodes = read_graph(source, onnx.load(optimised, load_external_data=False))
    return read_trace(trace, nodes, walls, skip=skip)
