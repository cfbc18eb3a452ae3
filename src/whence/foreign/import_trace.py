"""Traces that were made elsewhere, by the engines' own tools, as profiles."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from whence.attribution.profile import TRACE, Profile
from whence.calibration.record import rates_for
from whence.codegen.toolchain import Toolchain
from whence.errors import InputError, ModelError
from whence.foreign.recording import Recording
from whence.foreign.run import attribute, prepare
from whence.foreign.source import SourceGraph
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
    if graph is None and kind not in ("openvino", "vela"):
        raise InputError(f"a trace of {kind} needs a second file: --graph {FORMATS[kind]}")
    subject = prepare(model, shapes=shapes)
    # Where it was made, nobody knows: functions cost what they cost whence here.
    recording = _read(kind, subject.source, trace, graph)
    made_with = {TRACE: trace.name, "whence": version_of("whence")}
    return attribute(subject, recording, rates=rates_for(Toolchain()), made_with=made_with)[0]


def _read(kind: str, source: SourceGraph, trace: Path, graph: Path | None) -> Recording:
    if kind == "onnxruntime":
        from whence.foreign.onnxruntime_reader import read_onnxruntime

        assert graph is not None
        return read_onnxruntime(source, trace, graph)
    if kind == "openvino":
        from whence.foreign.openvino_xml import read_openvino_xml

        return read_openvino_xml(source, trace, graph)
    assert graph is not None
    if kind == "inductor":
        from whence.foreign.inductor_reader import read_inductor

        return read_inductor(source, trace, graph)
    if kind == "executorch":
        from whence.foreign.executorch_reader import read_executorch

        return read_executorch(source, trace, graph)
    from whence.foreign.tensorrt_reader import read_tensorrt

    return read_tensorrt(source, trace, graph)


def _vela(trace: Path, model: Path) -> Profile:
    from whence.attribution.vela import vela_profile
    from whence.debugdb.cycles import estimated_cycles
    from whence.debugdb.join import join_model
    from whence.debugdb.model_operators import model_operators
    from whence.debugdb.vela_xml import read_xml
    from whence.report.files import WRITERS

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
    if b"ED00" in (start[4:8], start[8:12]):
        return "executorch"
    if b"<net" in start:
        return "openvino"
    if b"<debug" in start:
        return "vela"
    if b'"traceEvents"' in start:
        return "inductor"
    if b'"averageMs"' in start:
        return "tensorrt"
    if b'"model_run"' in start or b'"session_initialization"' in start or b"_kernel_time" in start:
        return "onnxruntime"
    if start.lstrip()[:1] in (b"{", b"[") and _names(trace) & {"model_run"}:
        return "onnxruntime"
    raise ModelError(
        f"'{trace}' is no trace that is known here; there is {', '.join(FORMATS)}, and --format"
        " names one"
    )


def _names(trace: Path) -> set[str]:
    try:
        content = json.loads(trace.read_text(encoding="utf-8", errors="replace"))
    except (ValueError, RecursionError):
        return set()
    rows = content if isinstance(content, list) else []
    return {str(row.get("name")) for row in rows if isinstance(row, dict)}
