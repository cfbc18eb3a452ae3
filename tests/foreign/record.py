"""Record what engines say of the small models, for tests that run without them.

    python -m tests.foreign.record ENGINE...
    python -m tests.foreign.record ENGINE MODEL     one model that is new
    python -m tests.foreign.record --placement      after a change of how recordings are read

The graph that the engine ran, without its weights, and its profile of two runs. What is recorded
depends on the engine's version and on the machine (here: x86-64 with AVX2). `placement.txt` is what
the tests expect: read it before committing it, every line says what a kernel is attributed to.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import onnx

from tests.foreign.models import MODELS, make
from whence.attribution.cost_model import CostModel
from whence.building.nominal_rates import nominal_rates
from whence.codegen.target import Target
from whence.foreign.operator_costs import operator_costs
from whence.foreign.placement import place
from whence.foreign.run import load_source, prepare, read_recording, record
from whence.foreign.source import SourceGraph

MODEL = CostModel(nominal_rates(Target.named("x86_64-avx2")))
"""What kernels cost on the machine that the recordings are from."""
FOLDER = Path(__file__).with_name("recorded")
_RUNS, _WARMUP = 2, 1
_FACTS = ("layerType", "originalLayersNames", "primitiveType")
_KEPT = ("op_name", "output_type_shape")


def main() -> None:
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        if sys.argv[1:] != ["--placement"]:
            models = [each for each in sys.argv[1:] if each in MODELS]
            for engine in sys.argv[1:]:
                for name in () if engine in MODELS else models or MODELS:
                    _record(engine, name, folder)
        for path in FOLDER.glob("*/*/recording.json"):
            told = placement_text(path.parent.name, path.parent.parent.name, folder)
            path.with_name("placement.txt").write_text(told, encoding="utf-8")


def _record(engine: str, name: str, folder: Path) -> None:
    subject = prepare(make(name, folder))
    recorded = folder / engine / name
    record(subject, engine, threads=1, runs=_RUNS, warmup=_WARMUP, keep=recorded)
    target = FOLDER / engine / name
    target.mkdir(parents=True, exist_ok=True)
    for file in ("recording.json", "openvino.json"):
        if (recorded / file).exists():
            content = _kept(json.loads((recorded / file).read_text()))
            (target / file).write_text(json.dumps(content, indent=0) + "\n")
    if engine == "onnxruntime":
        _trim(recorded, target)


def placement_text(name: str, engine: str, folder: Path) -> str:
    """A line for each node of the engine: what it is attributed to, and by what."""
    source = SourceGraph(load_source(make(name, folder)))
    nodes = read_recording(source, FOLDER / engine / name).nodes
    found = place(operator_costs(source, MODEL), nodes)
    lines = []
    for each in found.places:
        if not each.node.runs:
            continue
        kind = " inserted for" if each.is_inserted else ""
        operators = " ".join(source[number].name for number in each.weights) or each.doubt
        lines.append(f"{each.node.op} {each.node.name} [{each.evidence}]{kind}: {operators}\n")
    return "".join(lines)


def _kept(content: dict[str, Any]) -> dict[str, Any]:
    """What is read of it."""
    for row in content.get("nodes", ()):
        row["info"] = {key: row["info"][key] for key in _FACTS if key in row["info"]}
    return content


def _trim(recorded: Path, target: Path) -> None:
    model = onnx.load(recorded / "optimised.onnx")
    del model.graph.initializer[:]
    del model.graph.value_info[:]
    onnx.save(model, target / "optimised.onnx")
    events = json.loads((recorded / "trace.json").read_text())
    for event in events:
        event["args"] = {key: event["args"][key] for key in _KEPT if key in event["args"]}
    (target / "trace.json").write_text(json.dumps(events, indent=0) + "\n")


if __name__ == "__main__":
    main()
