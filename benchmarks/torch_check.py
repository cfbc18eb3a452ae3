"""Architectures of torchvision, timm and transformers through torch.export and torch.compile.

    python -m benchmarks.torch_check                  # every architecture, one process for each
    python -m benchmarks.torch_check --time           # twenty of them, with latency beside the same model through ONNX

Each is compiled both ways and compared with PyTorch: the largest difference in relation to the
largest result must be below 1e-4, no operator may be lost, and every node of the traced graph must be
among the source operators.

With `--time`, images are 224 pixels wide, calls of whence's programs through torch.export,
torch.compile and torch.onnx.export take turns in one process, in an order that changes, all with
PyTorch's tensors, and the last columns have the medians of the ratios to the last of these, round by
round: above 1.02 is too slow. Only a machine that does nothing else gives an answer.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

LIMIT = 1e-4
SLOWEST = 1.02
"""Of the time of the same model through ONNX."""
_IMAGE = 224


@dataclass
class Found:
    name: str
    operators: int = 0
    """Nodes of the traced graph."""
    missing: int = 0
    """Of these, how many are not among the source operators."""
    lost: int = 0
    reference_steps: int = 0
    export_difference: float = float("nan")
    compile_difference: float = float("nan")
    graphs: int = 0
    """Graphs that torch.compile cut the module into."""
    export_ratio: float = float("nan")
    compile_ratio: float = float("nan")
    error: str = ""

    @property
    def is_right(self) -> bool:
        return (
            not self.error
            and self.missing == self.lost == 0
            and self.export_difference < LIMIT
            and self.compile_difference < LIMIT
            and not max(self.export_ratio, self.compile_ratio) > SLOWEST
        )


def check(name: str, threads: int, timed: bool) -> Found:
    import torch

    import whence
    from benchmarks.torch_models import SUBJECTS
    from whence.frontends.torch.exported import export_module
    from whence.interop.torch.recording import recording

    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    subject = SUBJECTS[name]()
    if timed and subject.args[0].ndim == 4 and subject.dynamic_shapes is None:
        # In small ones the calls themselves would show.
        subject = replace(subject, args=(torch.randn(1, 3, _IMAGE, _IMAGE),))
    found = Found(name)
    with torch.no_grad():
        expected = subject.module(*subject.args)
        program = export_module(subject.module, subject.args, dynamic_shapes=subject.dynamic_shapes)
        exported = whence.compile(program, threads=threads)
        found.export_difference = difference(exported(*subject.args), expected)
        sources = {source.name for source in exported.graph.ledger.sources}
        traced = [node.name for node in program.graph.nodes if node.op == "call_function"]
        found.operators = len(traced)
        found.missing = sum(each not in sources for each in traced)
        found.lost = sum(len(made.graph.ledger.lost()) for made in exported.programs)
        found.reference_steps = sum(
            not step.symbol for made in exported.programs for step in made.steps
        )
        compiled = torch.compile(subject.module, backend="whence", options={"threads": threads})
        compiled(*subject.args)
        with recording() as record:
            found.compile_difference = difference(compiled(*subject.args), expected)
        found.graphs = len(record.runs)
        for run in record.runs:
            found.lost += sum(len(made.graph.ledger.lost()) for made in run.executable.programs)
        if timed:
            ratios(found, subject, program, exported, compiled, threads)
    return found


def difference(found: Any, expected: Any) -> float:
    """The largest difference, in relation to the largest result."""
    import torch

    leaves = torch.utils._pytree.tree_leaves
    worst = 0.0
    for ours, theirs in zip(leaves(found), leaves(expected), strict=True):
        largest = max(1e-6, float(theirs.abs().max()))
        worst = max(worst, float((ours - theirs).abs().max()) / largest)
    return worst


def ratios(
    found: Found, subject: Any, program: Any, exported: Any, compiled: Any, threads: int
) -> None:
    import torch

    import whence

    given = [arg for arg in subject.args if arg is not None]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        torch.onnx.export(program, dynamo=True, external_data=False, verbose=False).save(path)
        through_onnx = whence.compile(path, threads=threads)
        found.export_ratio, found.compile_ratio = interleaved(
            [
                lambda: exported(*subject.args),
                lambda: compiled(*subject.args),
                lambda: through_onnx(*given),
            ]
        )


def interleaved(calls: Sequence[Callable[[], Any]], seconds: float = 8.0) -> list[float]:
    """Of all but the last, the median of the ratio to the last, called in turns."""
    for call in calls:
        for _ in range(3):
            call()
    order = list(range(len(calls)))
    rounds: list[list[int]] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(rounds) < 10:
        times = [0] * len(calls)
        for which in order:
            begin = time.perf_counter_ns()
            calls[which]()
            times[which] = time.perf_counter_ns() - begin
        rounds.append(times)
        order.append(order.pop(0))
    return [
        statistics.median(times[which] / times[-1] for times in rounds)
        for which in range(len(calls) - 1)
    ]


def in_subprocess(name: str, threads: int, timed: bool) -> Found:
    """A process for each: compiled graphs and weights go with it."""
    command = [sys.executable, "-m", "benchmarks.torch_check", "--one", name]
    command += ["--threads", str(threads), *(["--time"] if timed else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return Found(name, error=last[:300])
    return Found(**json.loads(lines[-1]))


def show(found: Found) -> str:
    if found.error:
        return f"{found.name:46} {found.error}"
    times = (
        f" {found.export_ratio:6.3f} {found.compile_ratio:6.3f}"
        if np.isfinite(found.export_ratio)
        else ""
    )
    return (
        f"{found.name:46} {found.operators:5} {found.missing:4} {found.lost:4}"
        f" {found.reference_steps:4} {found.export_difference:9.1e}"
        f" {found.compile_difference:9.1e} {found.graphs:3}{times}"
        f" {'' if found.is_right else ' WRONG'}"
    )


def main() -> int:
    from benchmarks.torch_models import SUBJECTS, TIMED

    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="architectures, else all")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--time", action="store_true", help="latency beside the model through ONNX")
    parser.add_argument("--one", metavar="NAME", help="check this one, here; prints JSON")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(asdict(check(given.one, given.threads, given.time))))
        return 0
    unknown = [name for name in given.names if name not in SUBJECTS]
    if unknown:
        parser.error(f"no architecture {unknown[0]!r}; there are {', '.join(SUBJECTS)}")
    titles = ("architecture", "nodes", "miss", "lost", "ref", "export", "compile", "gr")
    ratio_titles = f" {'export':>6} {'compile':>6}" if given.time else ""
    print("{:46} {:>5} {:>4} {:>4} {:>4} {:>9} {:>9} {:>3}".format(*titles) + ratio_titles)
    all_right = True
    for name in given.names or (TIMED if given.time else SUBJECTS):
        found = in_subprocess(name, given.threads, given.time)
        all_right &= found.is_right
        print(show(found), flush=True)
    return 0 if all_right else 1


if __name__ == "__main__":
    sys.exit(main())
