"""Provenance mappings and a Chrome trace as Inductor and torch.profiler write them (torch 2.13,
CPU), cut down and with the names of the small residual network: keys, names of kernels and the
nesting of events are as recorded there; times are made up.
"""

from __future__ import annotations

import json
from pathlib import Path

MAPPINGS = {
    "preToPost": {"stem": ["convolution"], "stem_bn": ["add", "mul"], "stem_relu": ["relu"]},
    "postToPre": {
        "convolution": ["stem"],
        "add": ["stem_bn"],
        "mul": ["stem_bn"],
        "relu": ["stem_relu"],
        "convolution_1": ["a_conv1"],
        "relu_1": ["a_relu1"],
        "mean": ["pool"],
    },
    "cppCodeToPost": {
        "extern_kernels.convolution:1": ["convolution"],
        "cpp_fused_native_batch_norm_relu_0:2": ["add", "mul", "relu"],
        "extern_kernels.convolution:3": ["convolution_1"],
        "cpp_fused_native_batch_norm_relu_0:4": ["relu_1"],
        "cpp_fused_mean_1:5": ["mean"],
    },
    "postToCppCode": {},
}


def event(name: str, begin: float, length: float) -> dict[str, object]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "ts": begin, "dur": length, "pid": 1}


def run(at: float) -> list[dict[str, object]]:
    return [
        event("Torch-Compiled Region: 0/0", at, 100.0),
        event("## Call CompiledFxGraph fx1 ##", at + 5, 90.0),
        event("aten::convolution", at + 10, 20.5),
        event("aten::_convolution", at + 11, 18.0),
        event("aten::mkldnn_convolution", at + 12, 16.0),
        event("graph_0_cpp_fused_native_batch_norm_relu_0", at + 31, 4.0),
        event("aten::convolution", at + 36, 30.0),
        event("graph_0_cpp_fused_native_batch_norm_relu_0", at + 67, 5.0),
        event("graph_0_cpp_fused_mean_1", at + 73, 2.0),
    ]


def write(folder: Path) -> tuple[Path, Path]:
    trace, mappings = folder / "trace.json", folder / "mappings.json"
    trace.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [*run(0.0), *run(500.0)]}))
    mappings.write_text(json.dumps(MAPPINGS))
    return trace, mappings
