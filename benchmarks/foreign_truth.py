"""Is the attribution of other engines' kernels true? What a profile says an operator costs, beside
what leaving it out of the model saves that engine.

    python -m benchmarks.foreign_truth                          onnxruntime and openvino, five models, two operators each
    python -m benchmarks.foreign_truth yolo11n --engine openvino --operators 3 --rounds 60

Operators are those with most time that can be left out: one operand has the type of the result, and
stands in for it. The model with the operator and the model without run in turns, each in a process
of its own, not profiled; medians count. The error is in points of the kernels that the operator is
in, and is to be below 10. Only a machine that does nothing else gives an answer.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import onnx

from benchmarks.latency import draw_inputs, find_model
from whence.attribution.profile import Profile
from whence.attribution.rows import SourceRow
from whence.foreign.named_model import with_names
from whence.foreign.run import Subject, attribute, prepare, record, started
from whence.graph import Graph

MODELS = ("light_resnet50", "light_densenet121", "yolo11n", "minilm_l6_int8", "ppocrv4_det")
ENGINES = ("onnxruntime", "openvino")
LIMIT = 0.10
_TURN = 3


class Verdict(NamedTuple):
    model: str
    engine: str
    operator: str
    kind: str
    said_ns: float
    saved_ns: float
    kernels_ns: float

    @property
    def error(self) -> float:
        """In parts of the operator's kernels."""
        return (self.said_ns - self.saved_ns) / self.kernels_ns if self.kernels_ns else 0.0


def removable(graph: Graph) -> dict[int, str]:
    """By source operator that can be left out: the tensor that stands in for its result."""
    found = {}
    for node in graph:
        if len(node.origin) != 1 or len(node.outputs) != 1 or node.is_const or node.bodies:
            continue
        (number,) = node.origin
        if number != node.id:
            continue
        for ref in node.inputs:
            if ref is None or graph.type_of(ref) != node.type:
                continue
            maker = graph[ref.node]
            sources = [graph.ledger.source(each) for each in maker.origin]
            if maker.op == "Input":
                found[number] = maker.name
            elif len(sources) == 1 and maker.id == sources[0].id and sources[0].outputs:
                found[number] = sources[0].outputs[ref.index]
            if number in found:
                break
    return found


def without(model: onnx.ModelProto, name: str, stand_in: str) -> onnx.ModelProto:
    """The model without the operator of that name."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    (position,) = [at for at, node in enumerate(made.graph.node) if node.name == name]
    output = made.graph.node[position].output[0]
    del made.graph.node[position]
    for node in made.graph.node:
        for at, value in enumerate(node.input):
            if value == output:
                node.input[at] = stand_in
    if any(value.name == output for value in made.graph.output):
        same = onnx.helper.make_node("Identity", [stand_in], [output], name="stand-in")
        made.graph.node.append(same)
    return made


def candidates(profile: Profile, graph: Graph, count: int) -> list[tuple[SourceRow, str]]:
    """Operators that can be left out, the ones with most time, of different types first."""
    possible = removable(graph)
    heavy = {"Conv", "Gemm", "MatMul"}
    rows = sorted(
        (row for row in profile.sources if row.id in possible and row.op not in heavy),
        key=lambda row: -row.time_ns,
    )
    seen: set[str] = set()
    first = [row for row in rows if not (row.op in seen or seen.add(row.op))]  # type: ignore[func-returns-value]
    chosen = [*first, *(row for row in rows if row not in first)][:count]
    return [(row, possible[row.id]) for row in chosen if row.time_ns]


def kernels_ns(profile: Profile, operator: int) -> float:
    """Per run, of the kernels that do its work."""
    return (
        sum(
            kernel.time_ns
            for kernel in profile.kernels
            if not kernel.inserted and any(part.id == operator for part in kernel.origin)
        )
        / profile.runs
    )


def race(first: Subject, second: Subject, engine: str, rounds: int) -> tuple[float, float]:
    """Medians of runs that are not profiled, in turns."""
    with started(first, engine, 1) as one, started(second, engine, 1) as other:
        for process in (one, other):
            process.ask("warmup", 3)
        for _ in range(rounds):
            for process in (one, other):
                process.ask("runs", _TURN)
        times = [
            json.loads((process.finish() / "recording.json").read_text())["plain_ns"]
            for process in (one, other)
        ]
    return statistics.median(times[0]), statistics.median(times[1])


def measure(path: Path, engine: str, count: int, rounds: int) -> Iterator[Verdict]:
    inputs = draw_inputs(path)
    shapes = {name: value.shape for name, value in inputs.items()}
    subject = prepare(path, shapes=shapes, inputs=inputs)
    graph = subject.source.graph
    profile, _ = attribute(subject, record(subject, engine, threads=1, runs=30))
    with tempfile.TemporaryDirectory() as folder:
        model = onnx.load(with_names(path, graph, Path(folder)))
        for row, stand_in in candidates(profile, graph, count):
            file = Path(folder) / "without.onnx"
            onnx.save(without(model, row.name, stand_in), file)
            shorter = prepare(file, shapes=shapes, inputs=inputs)
            whole, rest = race(subject, shorter, engine, rounds)
            said = row.time_ns / profile.runs
            yield Verdict(
                path.stem,
                engine,
                row.name,
                row.op,
                said,
                whole - rest,
                kernels_ns(profile, row.id),
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--engine", action="append", choices=ENGINES)
    parser.add_argument("--operators", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: list[Verdict] = []
    print(f"{'model':20} {'engine':12} {'said':>10} {'saved':>10} {'of kernels':>11} {'error':>7}")
    for name in options.models:
        for engine in options.engine or ENGINES:
            for each in measure(find_model(name), engine, options.operators, options.rounds):
                found.append(each)
                print(
                    f"{each.model:20} {each.engine:12} {each.said_ns / 1e3:8.1f}µs"
                    f" {each.saved_ns / 1e3:8.1f}µs {each.kernels_ns / 1e3:9.1f}µs"
                    f" {100 * each.error:+6.1f}  {each.kind} {each.operator}",
                    flush=True,
                )
    if options.json is not None:
        rows: list[dict[str, Any]] = [{**each._asdict(), "error": each.error} for each in found]
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    sys.exit(any(abs(each.error) > LIMIT for each in found))


if __name__ == "__main__":
    main()
