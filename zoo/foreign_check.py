"""Attribute other engines' kernels on every model that they run, and see how much finds its
operators.

    python -m zoo.foreign_check                              every model in the cache, every engine that is installed
    python -m zoo.foreign_check NAME... --engine openvino    some models, one engine
    python -m zoo.foreign_check --json FILE                  the table as data

At least 99 % of ONNX Runtime's kernel time and 98 % of OpenVINO's must be attributed, at least 95 %
of the data edges between kernels be edges of the engine's graph, every convolution, product and
recurrent cell be in exactly one kernel, no operator lost, and the account must close to the
nanosecond. What is missing is listed by cause. Exit code 1 when something falls short. How long
anything takes is not looked at.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from whence.types import TensorType
from zoo.inputs import random_inputs
from zoo.manifest import cache_folder

GOALS = {"onnxruntime": 0.99, "openvino": 0.98}
OTHER_GOAL = 0.95
EDGES = 0.95
_LONGEST = 160
_FAILED = frozenset({"short", "wrong", "unfinished"})


@dataclass(frozen=True, slots=True)
class Found:
    """What came of one model on one engine. `status` is ok, short (a goal is missed, or an operator
    is lost), wrong (the account does not close), unfinished (no answer in time, so nothing is
    known) or refused (the engine does not run it, or whence does not read it).
    """

    name: str
    engine: str
    status: str
    detail: str = ""
    operators: int = 0
    kernels: int = 0
    attributed: float = 0.0
    """Of the time in kernels,"""
    by_tensor: float = 0.0
    """and what of it by which evidence,"""
    by_name: float = 0.0
    by_neighbour: float = 0.0
    inserted: float = 0.0
    """and in changes of layout."""
    edges: int = 0
    edges_missing: int = 0
    causes: dict[str, int] = field(default_factory=dict)
    heavy: int = 0
    heavy_elsewhere: int = 0
    lost: int = 0


def main() -> int:
    from whence.foreign import available

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*")
    parser.add_argument("--engine", choices=sorted(available()))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(asdict(check(options.one, options.engine, options.runs))))
        return 0
    engines = [options.engine] if options.engine else sorted(available())
    wanted = [
        (file, engine)
        for file in sorted(cache_folder().glob("*"))
        if not options.names or file.stem in options.names
        for engine in engines
        if _reads(engine, file)
    ]
    found = []
    with Progress(console=Console(stderr=True), transient=True) as bar:
        for file, engine in bar.track(wanted, description="attributing"):
            found.append(_in_a_process(file, engine, options.runs, options.timeout))
            print(line(found[-1]), flush=True)
    _summary(found)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(each) for each in found], indent=1))
    return 1 if any(each.status in _FAILED for each in found) else 0


def _reads(engine: str, file: Path) -> bool:
    from whence.foreign.engines import ENGINES

    return file.suffix in ENGINES[engine].suffixes


def _in_a_process(file: Path, engine: str, runs: int, timeout: float) -> Found:
    command = [sys.executable, "-m", "zoo.foreign_check", "--one", str(file)]
    command += ["--engine", engine, "--runs", str(runs)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
        content = json.loads(done.stdout.strip().splitlines()[-1])
        return Found(**content)
    except subprocess.TimeoutExpired:
        return Found(file.stem, engine, "unfinished", f"no answer in {timeout:.0f} s")
    except (ValueError, IndexError, TypeError):
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        return Found(file.stem, engine, "wrong", last[:_LONGEST])


def check(file: Path, engine: str, runs: int) -> Found:
    from whence.errors import WhenceError
    from whence.foreign.run import attribute, load_source, prepare, record

    try:
        declared: list[tuple[str, Any, Sequence[Any]]] = []
        for node in load_source(file).inputs:
            assert isinstance(node.type, TensorType)
            declared.append((node.name, node.type.dtype.numpy, node.type.shape or ()))
        inputs = random_inputs(file.stem, declared, seed=0)
        subject = prepare(
            file, shapes={name: value.shape for name, value in inputs.items()}, inputs=inputs
        )
        recording = record(subject, engine, threads=1, runs=runs, warmup=1)
    except WhenceError as error:
        return Found(file.stem, engine, "refused", str(error)[:_LONGEST])
    profile, placement = attribute(subject, recording)
    spent = max(1, int(recording.node_ns.sum()))
    closes = profile.attributed_ns + sum(profile.residual_ns.values()) == profile.wall_ns
    checks = placement.checks
    evidence = Counter[str]()
    for kernel in profile.kernels:
        evidence[kernel.evidence] += kernel.time_ns if kernel.origin else 0
    attributed = profile.attributed_ns / spent
    good = (
        attributed >= GOALS.get(engine, OTHER_GOAL)
        and checks.edges_found >= EDGES
        and not checks.heavy_elsewhere
        and not profile.coverage.lost
    )
    return Found(
        file.stem,
        engine,
        ("ok" if good else "short") if closes else "wrong",
        "" if closes else "attributed and residual time are not the wall time",
        len(profile.sources),
        len(profile.kernels),
        attributed,
        evidence["tensor"] / spent,
        evidence["name"] / spent,
        evidence["neighbour"] / spent,
        sum(row.inserted_ns for row in profile.sources) / spent,
        checks.edges,
        len(checks.missing),
        dict(Counter(edge.cause.name.lower() for edge in checks.missing)),
        checks.heavy,
        len(checks.heavy_elsewhere),
        profile.coverage.lost,
    )


def line(each: Found) -> str:
    if each.status not in {"ok", "short"}:
        return f"{each.name:28} {each.engine:12} {each.status}: {each.detail}"
    causes = ", ".join(f"{count} {cause}" for cause, count in each.causes.items())
    return (
        f"{each.name:28} {each.engine:12} {each.status:5} {each.attributed:7.2%} ="
        f" {each.by_tensor:5.1%} tensor + {each.by_name:5.1%} name +"
        f" {each.by_neighbour:5.1%} neighbour (inserted {each.inserted:5.1%})"
        f" edges {each.edges - each.edges_missing}/{each.edges}{f' ({causes})' if causes else ''}"
        f" heavy {each.heavy - each.heavy_elsewhere}/{each.heavy} lost {each.lost}"
    )


def _summary(found: Sequence[Found]) -> None:
    for engine in sorted({each.engine for each in found}):
        mine = [each for each in found if each.engine == engine]
        ran = [each for each in mine if each.status in {"ok", "short"}]
        counts = Counter(each.status for each in mine)
        edges = sum(each.edges for each in ran)
        missing = sum(each.edges_missing for each in ran)
        least = min((each.attributed for each in ran), default=0.0)
        print(
            f"{engine}: {', '.join(f'{count} {status}' for status, count in counts.items())};"
            f" least attributed {least:.2%}; edges {edges - missing}/{edges};"
            f" heavy {sum(each.heavy - each.heavy_elsewhere for each in ran)}"
            f"/{sum(each.heavy for each in ran)}"
        )


if __name__ == "__main__":
    sys.exit(main())
