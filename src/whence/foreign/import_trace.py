"""Traces that were made elsewhere, by the engines' own tools, as profiles."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from whence.attribution.profile import TRACE, Profile
from whence.attribution.vela import vela_profile
from whence.calibration import rates_for
from whence.codegen.toolchain import Toolchain
from whence.debugdb.cycles import estimated_cycles
from whence.debugdb.join import join_model
from whence.debugdb.model_operators import model_operators
from whence.debugdb.vela_xml import read_xml
from whence.errors import InputError, ModelError
from whence.foreign.executorch_reader import read_executorch, root_at
from whence.foreign.inductor_reader import read_inductor
from whence.foreign.onnxruntime_reader import read_onnxruntime
from whence.foreign.openvino_xml import read_openvino_xml
from whence.foreign.reading import reading
from whence.foreign.recording import Recording
from whence.foreign.run import attribute, prepare
from whence.foreign.source import SourceGraph
from whence.foreign.tensorrt_reader import read_tensorrt
from whence.report.files import WRITERS
from whence.runtime.environment import version_of
from whence.types import Dim

FORMATS = {
    "onnxruntime": "the model that optimized_model_filepath wrote",
    "openvino": "a detailed counters report, if there is one",
    "tensorrt": "what trtexec --exportLayerInfo wrote",
    "inductor": "Inductor's provenance node mappings",
    "executorch": "the ETRecord that was generated with the program",
    "vela": "",
}
"""What goes with a trace of each, as --graph."""
_READERS: Mapping[str, Callable[[SourceGraph, Path, Path], Recording]] = {
    "onnxruntime": read_onnxruntime,
    "tensorrt": read_tensorrt,
    "inductor": read_inductor,
    "executorch": read_executorch,
}
_MARKS = (
    (b"<net", "openvino"),
    (b"<debug", "vela"),
    (b'"traceEvents"', "inductor"),
    (b'"averageMs"', "tensorrt"),
    (b'"model_run"', "onnxruntime"),
    (b'"session_initialization"', "onnxruntime"),
    (b"_kernel_time", "onnxruntime"),
)
_START = 1 << 16


def import_trace(
    trace: Path,
    model: Path,
    *,
    graph: Path | None = None,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    format_name: str = "",
) -> Profile:
    """The profile in a trace. `graph` is the file that goes with it; which format it is is seen by
    its content unless named.
    """
    kind = format_name or detect(trace)
    if kind not in FORMATS:
        raise InputError(f"there is no format '{kind}'; there is {', '.join(FORMATS)}")
    if kind == "vela":
        return _vela(trace, model)
    if graph is None and kind != "openvino":
        raise InputError(f"a trace of {kind} needs a second file: --graph {FORMATS[kind]}")
    subject = prepare(model, shapes=shapes)
    # Where it was made, nobody knows: functions cost what they cost whence here.
    with reading(trace, f"has times that are none in a trace of {kind}"):
        if kind == "openvino":
            recording = read_openvino_xml(subject.source, trace, graph)
        else:
            assert graph is not None
            recording = _READERS[kind](subject.source, trace, graph)
    made_with = {TRACE: trace.name, "whence": version_of("whence")}
    return attribute(subject, recording, rates=rates_for(Toolchain()), made_with=made_with)[0]


def _vela(trace: Path, model: Path) -> Profile:
    found = read_xml(trace)
    join = join_model(found, model_operators(model))
    return vela_profile(
        found, join, estimated_cycles(found, join), model=str(model), writers=WRITERS
    )


def detect(trace: Path) -> str:
    """Which engine a trace is of, by what is in it."""
    try:
        with trace.open("rb") as file:
            start = file.read(_START)
    except OSError as error:
        raise ModelError(f"cannot read '{trace}': {error.strerror}") from None
    if root_at(start) is not None:
        return "executorch"
    if found := next((kind for mark, kind in _MARKS if mark in start), ""):
        return found
    if start.lstrip().startswith(b"[") and _has_runs(trace):
        return "onnxruntime"
    raise ModelError(
        f"'{trace}' is no trace that is known here; there is {', '.join(FORMATS)}, and --format"
        " names one"
    )


def _has_runs(trace: Path) -> bool:
    """Does a list have a run of ONNX Runtime, however far behind its start?"""
    try:
        rows = json.loads(trace.read_text(encoding="utf-8", errors="replace"))
    except (ValueError, RecursionError):
        return False
    return any(isinstance(row, dict) and row.get("name") == "model_run" for row in rows)
