"""Is the attribution of other engines' kernels true? What a profile says an operator costs, beside
what leaving it out of the model saves that engine.

    python -m benchmarks.foreign_truth                          onnxruntime and openvino, five models, two operators each
    python -m benchmarks.foreign_truth yolo11n --engine openvino --operators 3 --seconds 30

1. An operator can be left out if one operand has the type of the result, and stands in for it. Those
   with most time are taken, of different types first, whose kernels are at least a hundredth of a run
   (less could not be told from noise), and that no change of layout is charged to.
2. All other operators must be in the same kernels as before, else what is saved is not the operator
   but another fusion: the engine is asked for both models, and such operators are passed over.
3. The model with the operator and the model without run in turns, each in a process of its own, run by
   run, with and without the profiler. What an operator costs is from the profiled runs of the first;
   what it saves is the median difference of neighbouring runs that are not profiled, over several
   pairs of processes, as where memory lies differs from process to process.

The error is in points of the kernels that the operator is in, and is to be below 10; its standard
error is beside it. Only a machine that does nothing else gives an answer. Takes about eight minutes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import onnx

from benchmarks.latency import draw_inputs, find_model
from whence.attribution.cost_model import VIEWS
from whence.attribution.profile import Profile
from whence.attribution.rows import SourceRow
from whence.foreign.named_model import with_names
from whence.foreign.run import Subject, attribute, finished, prepare, record, started
from whence.graph import Graph

MODELS = ("light_resnet50", "light_densenet121", "yolo11n", "minilm_l6_int8", "ppocrv4_det")
ENGINES = ("onnxruntime", "openvino")
LIMIT = 0.10
_LEAST = 0.01
"""Of a run, for the kernels of an operator that is tried."""
_PAIRS = 2
"""Pairs of processes."""
_TURN = 2
"""Runs of a process before it is the other one's turn: the first warms the caches again."""


class Verdict(NamedTuple):
    model: str
    engine: str
    operator: str
    kind: str
    said_ns: float
    saved_ns: float
    saved_error_ns: float
    """Its standard error."""
    kernels_ns: float

    @property
    def error(self) -> float:
        """In parts of the operator's kernels."""
        return (self.said_ns - self.saved_ns) / self.kernels_ns

    @property
    def standard_error(self) -> float:
        return self.saved_error_ns / self.kernels_ns


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


def candidates(profile: Profile, graph: Graph) -> list[tuple[SourceRow, str]]:
    """Operators that can be left out, the ones with most time first, of different types first."""
    possible = removable(graph)
    least = _LEAST * profile.wall_ns / profile.runs
    rows = sorted(
        (
            row
            for row in profile.sources
            # Changes of layout that are charged to it may stay when it is left out.
            if row.id in possible
            and row.time_ns
            and not row.inserted_ns
            and kernels_ns(profile, row.id) >= least
        ),
        key=lambda row: -row.time_ns,
    )
    firsts = {row.op: row for row in reversed(rows)}
    first = [row for row in rows if firsts[row.op] is row]
    rest = [row for row in rows if firsts[row.op] is not row]
    return [(row, possible[row.id]) for row in (*first, *rest)]


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


def partition(profile: Profile, leaving_out: str = "") -> Mapping[frozenset[str], int]:
    """The sets of operators that kernels do, and how many kernels do each. Operators that only say
    otherwise how a tensor is laid out are in any kernel.
    """
    names = {row.id: row.name for row in profile.sources if row.op not in VIEWS}
    return Counter(
        inside
        for kernel in profile.kernels
        if not kernel.inserted
        and (
            inside := frozenset(
                {names.get(part.id, "") for part in kernel.origin} - {"", leaving_out}
            )
        )
    )


def race(first: Subject, second: Subject, engine: str, seconds: float) -> tuple[Profile, list[int]]:
    """The profile of the first, and by how much it takes longer than the second, run by run."""
    with started(first, engine, 1) as one, started(second, engine, 1) as other:
        for process in (one, other):
            process.ask("warmup", 3)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for process in (one, other):
                process.ask("runs", _TURN)
        profile, _ = attribute(first, finished(first, one))
        other.finish()
        plain = [
            json.loads((process.folder / "recording.json").read_text())["plain_ns"]
            for process in (one, other)
        ]
    return profile, [mine - theirs for mine, theirs in zip(*plain, strict=True)]


def median_error(differences: list[int]) -> float:
    """The standard error of their median, from how far they are from it."""
    middle = statistics.median(differences)
    spread = 1.4826 * statistics.median(abs(each - middle) for each in differences)
    return 1.2533 * spread / len(differences) ** 0.5


def compare(
    subject: Subject, shorter: Subject, row: SourceRow, engine: str, seconds: float
) -> Verdict:
    profiles, saved, errors = [], [], []
    for _ in range(_PAIRS):
        profile, differences = race(subject, shorter, engine, seconds / _PAIRS)
        profiles.append(profile)
        saved.append(statistics.median(differences))
        errors.append(median_error(differences))
    said = [
        next(each.time_ns for each in profile.sources if each.id == row.id) / profile.runs
        for profile in profiles
    ]
    within = sum(each**2 for each in errors) ** 0.5 / _PAIRS
    between = statistics.stdev(saved) / _PAIRS**0.5
    return Verdict(
        subject.path.stem,
        engine,
        row.name,
        row.op,
        statistics.mean(said),
        statistics.mean(saved),
        max(within, between),
        statistics.mean(kernels_ns(profile, row.id) for profile in profiles),
    )


def measure(path: Path, engine: str, count: int, seconds: float) -> Iterator[Verdict]:
    inputs = draw_inputs(path)
    shapes = {name: value.shape for name, value in inputs.items()}
    subject = prepare(path, shapes=shapes, inputs=inputs)
    graph = subject.source.graph
    profile, _ = attribute(subject, record(subject, engine, threads=1, runs=10))
    found = 0
    with tempfile.TemporaryDirectory() as folder:
        model = onnx.load(with_names(path, graph, Path(folder)))
        for row, stand_in in candidates(profile, graph):
            if found == count:
                break
            file = Path(folder) / "without.onnx"
            onnx.save(without(model, row.name, stand_in), file)
            shorter = prepare(file, shapes=shapes, inputs=inputs)
            rest, _ = attribute(shorter, record(shorter, engine, threads=1, runs=1, warmup=0))
            if partition(rest) == partition(profile, row.name):
                found += 1
                yield compare(subject, shorter, row, engine, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--engine", action="append", choices=ENGINES)
    parser.add_argument("--operators", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=12, help="of running, for each operator")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: list[Verdict] = []
    print(
        f"{'model':20} {'engine':12} {'said':>10} {'saved':>10} {'of kernels':>11}"
        f" {'error, points':>14}"
    )
    for name in options.models:
        for engine in options.engine or ENGINES:
            for each in measure(find_model(name), engine, options.operators, options.seconds):
                found.append(each)
                print(
                    f"{each.model:20} {each.engine:12} {each.said_ns / 1e3:8.1f}µs"
                    f" {each.saved_ns / 1e3:8.1f}µs {each.kernels_ns / 1e3:9.1f}µs"
                    f" {100 * each.error:+6.1f} ± {100 * each.standard_error:5.1f}"
                    f"  {each.kind} {each.operator}",
                    flush=True,
                )
    if options.json is not None:
        rows: list[dict[str, Any]] = [{**each._asdict(), "error": each.error} for each in found]
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    good = [each for each in found if abs(each.error) <= LIMIT]
    models = {each.model for each in found}
    print(f"{len(good)} of {len(found)} operators in {len(models)} models are within {LIMIT:.0%}")
    sys.exit(len(good) < len(found))


if __name__ == "__main__":
    main()
