"""Architectures of torchvision, timm and transformers through torch.export and torch.compile.

    python -m benchmarks.torch_check               # every architecture, one process for each
    python -m benchmarks.torch_check --kernels     # only how many kernels, also through ONNX
    python -m benchmarks.torch_check --time        # twenty, with latency beside ONNX's

Each is compiled both ways and compared with PyTorch: the largest difference in relation to the
largest result must be below 1e-4, no operator may be lost, and every node of the graphs that
PyTorch traced must be among the source operators.

With `--kernels`, nothing is compiled or run: the kernels that whence would make are counted by the
three ways, torch.export, torch.compile and torch.onnx.export (`benchmarks/torch_kernels.py`). The
counts must be equal; where they are not, the kernels that only one way has are listed. That can be
told on any machine.

With `--time`, images are 224 pixels wide, and whence's programs through torch.export, torch.compile
and torch.onnx.export take turns in one process, some calls of each in a row, in an order that
changes, all with PyTorch's tensors. The last columns are ratios to the last of these, of the
shortest calls; above 1.02 is too slow. PyTorch itself takes a while to call a compiled module
(guards of every parameter, collecting them), which drives other things out of the caches. So
torch.compile is compared with the program through ONNX behind such a call, of a module whose graphs
return what they once returned; what PyTorch takes stands in the last column. Where memory lies
differs from process to process, which changes times by 3 %: an architecture that seems too slow is
timed in four more, and the medians count. Only a machine that does nothing else gives an answer;
takes about twenty minutes.
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
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from whence.runtime.executable import Executable

LIMIT = 1e-4
SLOWEST = 1.02
"""Of the time of the same model through ONNX."""
_IMAGE = 224
_IN_A_ROW = 5
_LONGEST = 300


@dataclass
class Found:
    name: str
    operators: int = 0
    """Nodes of the traced graph."""
    missing: int = 0
    """Of these, and of the nodes that torch.compile traced, how many are not among the source
    operators.
    """
    lost: int = 0
    reference_steps: int = 0
    export_difference: float = float("nan")
    compile_difference: float = float("nan")
    graphs: int = 0
    """Graphs that torch.compile cut the module into."""
    kernels: list[int] = field(default_factory=list)
    """By torch.export, torch.compile and torch.onnx.export."""
    only: list[str] = field(default_factory=list)
    """Kernels that only one of the ways has."""
    export_ratio: float = float("nan")
    compile_ratio: float = float("nan")
    dispatch_ratio: float = float("nan")
    """What PyTorch takes to call a compiled module, of the model's time through ONNX."""
    error: str = ""

    @property
    def is_right(self) -> bool:
        if self.kernels:
            return len(set(self.kernels)) == 1
        return (
            not self.error
            and self.missing == self.lost == 0
            and self.export_difference < LIMIT
            and self.compile_difference < LIMIT
            and not self.is_slow
        )

    @property
    def is_slow(self) -> bool:
        return max(self.export_ratio, self.compile_ratio) > SLOWEST


def count_kernels(name: str) -> Found:
    """Nothing is run: differences are not known."""
    import torch

    from benchmarks.torch_kernels import compare_kernels, kernels_by_way
    from benchmarks.torch_models import SUBJECTS
    from whence.frontends.torch.exported import export_module

    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    subject, found = large(SUBJECTS[name]()), Found(name)
    with torch.no_grad():
        program = export_module(subject.module, subject.args, dynamic_shapes=subject.dynamic_shapes)
        by_way = kernels_by_way(subject.module, subject.args, program)
    found.operators = sum(node.op == "call_function" for node in program.graph.nodes)
    found.kernels = [each.total() for each in by_way.values()]
    found.only = compare_kernels(by_way)
    return found


def large(subject: Any) -> Any:
    """With an image of the usual size: in small ones the calls themselves would show."""
    import torch

    if subject.args[0].ndim == 4 and subject.dynamic_shapes is None:
        return replace(subject, args=(torch.randn(1, 3, _IMAGE, _IMAGE),))
    return subject


def check(name: str, threads: int, *, timed: bool = False) -> Found:
    import torch

    import whence
    from benchmarks.torch_models import SUBJECTS
    from whence.frontends.torch.exported import export_module
    from whence.interop.torch.recording import recording
    from whence.torch_backend import compile_fx

    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    subject = SUBJECTS[name]()
    if timed:
        subject = large(subject)
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
        called: list[str] = []

        def backend(module: Any, inputs: Sequence[Any]) -> Any:
            called.extend(node.name for node in module.graph.nodes if node.op.startswith("call_"))
            return compile_fx(module, inputs, options={"threads": threads})

        compiled = torch.compile(subject.module, backend=backend)
        compiled(*subject.args)
        with recording() as record:
            found.compile_difference = difference(compiled(*subject.args), expected)
        found.graphs = len(record.runs)
        kept: Counter[str] = Counter()
        for run in record.runs:
            found.lost += sum(len(made.graph.ledger.lost()) for made in run.executable.programs)
            kept.update(source.name for source in run.executable.graph.ledger.sources)
        found.missing += (Counter(called) - kept).total()
        if timed:
            given = [arg for arg in subject.args if arg is not None]
            through_onnx = compile_through_onnx(program, threads)
            dispatched = torch.compile(subject.module, backend=without_work)
            by_export, by_onnx, by_both, by_compile = interleaved(
                [
                    lambda: exported(*subject.args),
                    lambda: through_onnx(*given),
                    lambda: (dispatched(*subject.args), through_onnx(*given)),
                    lambda: compiled(*subject.args),
                ]
            )
            found.export_ratio = by_export / by_onnx
            found.compile_ratio = by_compile / by_both
            found.dispatch_ratio = (by_both - by_onnx) / by_onnx
    return found


def without_work(module: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
    """A backend of torch.compile whose graphs return what they returned for the first inputs."""
    made = module(*inputs)
    return lambda *_: made


def difference(found: Any, expected: Any) -> float:
    """The largest difference, in relation to the largest result."""
    import torch

    leaves = torch.utils._pytree.tree_leaves
    worst = 0.0
    for ours, theirs in zip(leaves(found), leaves(expected), strict=True):
        largest = max(1e-6, float(theirs.abs().max()))
        worst = max(worst, float((ours - theirs).abs().max()) / largest)
    return worst


def compile_through_onnx(program: Any, threads: int) -> Executable:
    import torch

    import whence

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        torch.onnx.export(program, dynamo=True, external_data=False, verbose=False).save(path)
        return whence.compile(path.read_bytes(), threads=threads)


def interleaved(calls: Sequence[Callable[[], Any]], seconds: float = 10.0) -> list[int]:
    """How long the shortest call of each takes, in nanoseconds, called in turns: a few in a row, of
    which the first brings into the caches what the others find there.
    """
    for call in calls:
        for _ in range(3):
            call()
    shortest = [sys.maxsize] * len(calls)
    order = list(range(len(calls)))
    end, rounds = time.monotonic() + seconds, 0
    while time.monotonic() < end or rounds < 5:
        for which in order:
            call = calls[which]
            call()
            for _ in range(_IN_A_ROW):
                begin = time.perf_counter_ns()
                call()
                shortest[which] = min(shortest[which], time.perf_counter_ns() - begin)
        rounds += 1
        order.append(order.pop(0))
    return shortest


def in_subprocess(name: str, options: Sequence[str]) -> Found:
    """A process for each: compiled graphs and weights go with it."""
    command = [sys.executable, "-m", "benchmarks.torch_check", "--one", name, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return Found(name, error=last[:300])
    return Found(**json.loads(lines[-1]))


def timed_again(found: Found, options: Sequence[str]) -> Found:
    """With medians of what was found and of four more processes."""
    others = [in_subprocess(found.name, options) for _ in range(4)]
    failed = next((each for each in others if each.error), None)
    if failed is not None:
        return failed
    ratios = ("export_ratio", "compile_ratio", "dispatch_ratio")
    return replace(
        found,
        **{
            each: statistics.median(getattr(one, each) for one in (found, *others))
            for each in ratios
        },
    )


def show(found: Found) -> str:
    if found.error:
        return f"{found.name:46} {found.error}"
    times = (
        f" {found.export_ratio:6.3f} {found.compile_ratio:7.3f} {found.dispatch_ratio:6.3f}"
        if np.isfinite(found.export_ratio)
        else ""
    )
    if found.kernels:
        counts = " ".join(f"{each:7}" for each in found.kernels)
        verdict = "" if found.is_right else "  DIFFERENT"
        listed = () if found.is_right else found.only
        return f"{found.name:46} {found.operators:5} {counts}{verdict}" + "".join(
            f"\n    {each[:_LONGEST]}" for each in listed
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
    parser.add_argument("--kernels", action="store_true", help="count kernels, by three ways")
    parser.add_argument("--one", metavar="NAME", help="check this one, here; prints JSON")
    given = parser.parse_args()
    if given.one:
        found = (
            count_kernels(given.one)
            if given.kernels
            else check(given.one, given.threads, timed=given.time)
        )
        print(json.dumps(asdict(found)))
        return 0
    unknown = [name for name in given.names if name not in SUBJECTS]
    if unknown:
        parser.error(f"no architecture {unknown[0]!r}; there are {', '.join(SUBJECTS)}")
    titles = ("architecture", "nodes", "miss", "lost", "ref", "export", "compile", "gr")
    more_titles = f" {'export':>6} {'compile':>7} {'torch':>6}" if given.time else ""
    options = ["--threads", str(given.threads)]
    options += ["--time"] * given.time + ["--kernels"] * given.kernels
    heading = "{:46} {:>5} {:>4} {:>4} {:>4} {:>9} {:>9} {:>3}".format(*titles) + more_titles
    if given.kernels:
        heading = "{:46} {:>5} {:>7} {:>7} {:>7}".format(*titles[:2], "export", "compile", "onnx")
    print(heading)
    all_right = True
    for name in given.names or (TIMED if given.time else SUBJECTS):
        found = in_subprocess(name, options)
        if given.time and found.is_slow:
            found = timed_again(found, options)
        all_right &= found.is_right
        print(show(found), flush=True)
    return 0 if all_right else 1


if __name__ == "__main__":
    sys.exit(main())
