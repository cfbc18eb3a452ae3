"""Run every model and compare it with ONNX Runtime: loads, prepares with all checks on, loses no operator, computes the same.

    python -m zoo.check                     every ONNX model in the cache
    python -m zoo.check NAME...             some of them
    python -m zoo.check --folder DIR        every .onnx file below a folder as well
    python -m zoo.check --json FILE         the table as data
    python -m zoo.check --compiled          run compiled code instead of the reference interpreter

A model that ONNX Runtime itself does not load or run is listed as such and not counted. Exit code 1 when any other fails.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

from zoo.inputs import random_inputs
from zoo.manifest import cache_folder

TOLERANCE = 1e-4
HALF_TOLERANCE = 5e-3
# ONNX Runtime's sigmoid is off by up to 1.4e-7 even where the result itself is 1e-4 (measured against float64 on its own logits).
ABSOLUTE = 2.0**-22
_NUMPY = {
    "float": np.float32, "double": np.float64, "float16": np.float16, "int64": np.int64, "int32": np.int32, "int16": np.int16, "int8": np.int8,
    "uint64": np.uint64, "uint32": np.uint32, "uint16": np.uint16, "uint8": np.uint8, "bool": np.bool_, "string": np.object_,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one model. `status` is ok, differs, failed, or peer (ONNX Runtime does not load or run it)."""

    name: str
    status: str
    detail: str = ""
    error: float = 0.0
    operators: int = 0
    nodes: int = 0
    seconds: float = 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--folder", type=Path, action="append", default=[])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=900)
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(asdict(check(options.one, compiled=options.compiled))))
        return 0
    files = [] if options.folder and not options.names else sorted(cache_folder().glob("*.onnx"))
    files = [file for file in files if not options.names or file.stem in options.names]
    files += sorted(file for folder in options.folder for file in folder.rglob("*.onnx"))
    verdicts = _check_all(files, options.jobs, options.timeout, ["--compiled"] if options.compiled else [])
    _report(verdicts)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(verdict) for verdict in verdicts], indent=1), encoding="utf-8")
    return 1 if any(verdict.status in ("failed", "differs") for verdict in verdicts) else 0


def _check_all(files: list[Path], jobs: int, timeout: float, flags: list[str]) -> list[Verdict]:
    verdicts = []
    with Progress(console=Console(stderr=True), transient=True) as bar, ThreadPoolExecutor(jobs) as pool:
        task = bar.add_task("checking", total=len(files))
        futures = {pool.submit(_in_a_process, file, timeout, flags): file for file in files}
        for future in as_completed(futures):
            verdicts.append(future.result())
            bar.advance(task)
    return sorted(verdicts, key=lambda verdict: verdict.name)


def _in_a_process(file: Path, timeout: float, flags: list[str]) -> Verdict:
    """A process each, so that a crash or a hang of either engine is one model's verdict and not the end of the run."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "zoo.check", "--one", str(file), *flags], capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return Verdict(file.stem, "failed", f"no answer in {timeout:.0f} s")
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        return Verdict(file.stem, "failed", f"exit code {done.returncode}: {done.stderr.strip()[-300:]}")
    return Verdict(**json.loads(lines[-1]))


def check(file: Path, *, compiled: bool = False) -> Verdict:
    """One model, in this process."""
    import whence
    from whence.graph.fates import coverage
    from whence.passes.equivalence import computes_in_half, draws_random_numbers
    from whence.passes.manager import CheckLevel

    began = time.perf_counter()
    expected, names, inputs, problem = _peer(file)
    try:
        graph = whence.load(file)
        operators = graph.ledger.n_sources
        whence.prepare(graph, check=CheckLevel.INVARIANTS)
        lost = coverage(graph).lost
        if lost:
            return Verdict(file.stem, "failed", f"{lost} operators lost")
        if not problem and draws_random_numbers(graph):
            problem = "draws random numbers, so that two runs differ"
        if problem:
            return Verdict(file.stem, "peer", problem, operators=operators, nodes=len(graph), seconds=time.perf_counter() - began)
        limit = HALF_TOLERANCE if computes_in_half(graph) else TOLERANCE
        actual = _run_compiled(file, inputs) if compiled else graph.run(inputs)
    except whence.WhenceError as error:
        # A model that only runs because an optimiser removed what is wrong with it is not a model to compare on.
        problem = problem or _peer(file, optimise=False)[3]
        return Verdict(file.stem, "peer" if problem else "failed", f"{problem + '; whence: ' if problem else ''}{error}")
    except Exception as error:
        return Verdict(file.stem, "failed", f"{type(error).__name__}: {error}")
    verdict = _compare(file, names, expected, actual, limit)
    if verdict.status == "differs":
        # Its optimiser replaces arithmetic on dequantised values by integer arithmetic, which rounds elsewhere; the model itself says otherwise.
        plain, _, _, problem = _peer(file, optimise=False)
        again = _compare(file, names, plain, actual, limit) if not problem else verdict
        note = "as ONNX Runtime without its optimisations" if again.status == "ok" else again.detail
        again = (
            replace(again, detail=f"ONNX Runtime itself rejects it unoptimised: {problem}", status="peer") if problem else replace(again, detail=note)
        )
        verdict = again
    return replace(verdict, operators=operators, nodes=len(graph), seconds=time.perf_counter() - began)


def _run_compiled(file: Path, inputs: dict[str, Any]) -> list[Any]:
    import whence

    result = whence.compile(file)(**inputs)
    return list(result) if isinstance(result, tuple) else [result]


def _compare(file: Path, names: list[str], expected: list[Any], actual: list[Any], limit: float) -> Verdict:
    from whence.passes.equivalence import difference

    errors = [0.0 if _is_last_place(was, now) else difference(was, now) for was, now in zip(expected, actual, strict=True)]
    worst = max(errors, default=0.0)
    return (
        Verdict(file.stem, "ok", error=worst) if worst <= limit else Verdict(file.stem, "differs", _describe(names, expected, actual, errors), worst)
    )


def _is_last_place(expected: Any, actual: Any) -> bool:
    """Are two float32 results closer than twice the last place of 1?"""
    both = isinstance(expected, np.ndarray) and isinstance(actual, np.ndarray) and expected.shape == actual.shape
    return both and expected.dtype == actual.dtype == np.float32 and expected.size > 0 and bool(np.all(np.abs(expected - actual) <= ABSOLUTE))


def _describe(names: list[str], expected: list[Any], actual: list[Any], errors: list[float]) -> str:
    index = int(np.argmax(errors))
    was, now = np.asarray(expected[index]), np.asarray(actual[index])
    return f"output '{names[index]}' {was.dtype}{list(was.shape)} against {now.dtype}{list(now.shape)}, difference {errors[index]:.3g}"


def _peer(file: Path, *, optimise: bool = True) -> tuple[list[Any], list[str], dict[str, Any], str]:
    """ONNX Runtime's outputs, their names, the inputs used, and why not when it cannot."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    settings.intra_op_num_threads = 1
    if not optimise:
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(str(file), settings, providers=["CPUExecutionProvider"])
    except Exception as error:
        return [], [], {}, "ONNX Runtime does not load it: " + " ".join(str(error).split())[:160]
    try:
        declared = [(each.name, _NUMPY[each.type.removeprefix("tensor(").removesuffix(")")], each.shape) for each in session.get_inputs()]
    except KeyError as error:
        return [], [], {}, f"an input of type {error} cannot be drawn"
    names = [each.name for each in session.get_outputs()]
    reason = ""
    # Open dimensions are 1 unless a hint says otherwise; small graphs without hints may need other sizes to fit their weights.
    for size in (None, 2, 4, 8):
        sized = [(name, dtype, [dim if isinstance(dim, int) or size is None else size for dim in shape]) for name, dtype, shape in declared]
        inputs = random_inputs(file.stem, sized, seed=0)
        try:
            return session.run(None, inputs), names, inputs, ""
        except Exception as error:
            reason = reason or "ONNX Runtime does not run it on random inputs: " + " ".join(str(error).split())[:160]
    return [], names, {}, reason


def _report(verdicts: list[Verdict]) -> None:
    for verdict in verdicts:
        if verdict.status == "ok":
            print(
                f"ok       {verdict.name:32} {verdict.operators:6} operators → {verdict.nodes:6} nodes  {verdict.error:.1e}  {verdict.seconds:6.1f} s"
            )
    for status in ("peer", "differs", "failed"):
        for verdict in verdicts:
            if verdict.status == status:
                print(f"{status:8} {verdict.name:32} {verdict.detail}")
    counts = {status: sum(verdict.status == status for verdict in verdicts) for status in ("ok", "peer", "differs", "failed")}
    print(f"{counts['ok']} ok, {counts['differs']} differ, {counts['failed']} failed, {counts['peer']} not comparable with ONNX Runtime")


if __name__ == "__main__":
    sys.exit(main())
