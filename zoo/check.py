"""Run every model and compare it with another engine: loads, prepares with all checks on, loses no
operator, computes the same.

The engine is ONNX Runtime for .onnx, LiteRT for .tflite, onert for .circle (LiteRT where onert
cannot).

    python -m zoo.check                     every model in the cache
    python -m zoo.check NAME...             some of them
    python -m zoo.check --folder DIR        every model file below a folder
    python -m zoo.check --json FILE         the table as data
    python -m zoo.check --resume FILE       keep verdicts in FILE as they come, and skip what has one
    python -m zoo.check --compiled          run compiled code instead of the reference interpreter, and
                                            say how much of the time is in reference steps, and why
    python -m zoo.check --engine opencl     and on this engine instead of the processor

Small files come first. A model that the other engine itself does not load or run is listed as such
and not counted. Exit code 1 when any other fails.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from zoo.check_results import CheckResult, Record, check_all, report
from zoo.inputs import random_inputs
from zoo.manifest import cache_folder
from zoo.quantised_tolerance import declared_inputs, tolerances
from zoo.reference_engines import run_litert, run_onert, run_onnx_runtime
from zoo.reference_share import ReferenceShare, reference_share

if TYPE_CHECKING:
    from whence.graph import Graph

TOLERANCE = 1e-4
HALF_TOLERANCE = 5e-3
# ONNX Runtime's sigmoid is off by up to 1.4e-7 even where the result itself is 1e-4 (measured
# against float64 on its own logits).
ABSOLUTE = 2.0**-22
SUFFIXES = (".onnx", ".tflite", ".circle")
_SMALL_FILE = 1 << 20


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*")
    parser.add_argument("--folder", type=Path, action="append", default=[])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=900)
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument(
        "--engine", choices=["cpu", "opencl"], help="run compiled code on this engine"
    )
    parser.add_argument("--here", type=Path, nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    engine = options.engine or ("cpu" if options.compiled else "")
    if options.here is not None:
        for file in options.here:
            verdict = check_alone(file) if options.alone else check(file, engine)
            print(json.dumps(asdict(verdict)), flush=True)
        return 0
    files = [] if options.folder and not options.names else _models(cache_folder().glob("*"))
    files = [file for file in files if not options.names or file.stem in options.names]
    files += _models(file for folder in options.folder for file in folder.rglob("*"))
    record = Record(options.resume, engine)
    flags = ["--engine", engine] if engine else []
    check_all(record.missing(files), record, options.jobs, options.timeout, flags)
    verdicts = sorted((record.found[file] for file in files), key=lambda verdict: verdict.name)
    report(verdicts)
    if options.json is not None:
        options.json.write_text(
            json.dumps([asdict(verdict) for verdict in verdicts], indent=1), encoding="utf-8"
        )
    return 1 if any(verdict.status in ("failed", "differs") for verdict in verdicts) else 0


def _models(files: Iterable[Path]) -> list[Path]:
    return sorted(file for file in files if file.suffix in SUFFIXES)


class Ran(NamedTuple):
    """What a model came to."""

    graph: Graph
    """Prepared."""
    outputs: list[Any]
    reference: ReferenceShare | None = None
    """Of compiled code."""


def check(file: Path, engine: str = "") -> CheckResult:
    """One model, in this process; with random weights, if the file has none."""
    if file.suffix != ".onnx":
        return _check_tflite(file, engine)
    with tempfile.TemporaryDirectory() as folder:
        return _check_onnx(_with_weights(file, Path(folder)), engine)


def _with_weights(file: Path, folder: Path) -> Path:
    """The file, or the model with random weights where the file repeats one number."""
    if file.stat().st_size > _SMALL_FILE:
        return file
    import onnx

    from whence.frontends.onnx.random_weights import has_filled_weights, with_random_weights

    try:
        model = onnx.load(file, load_external_data=False)
    except Exception:
        # Whatever is wrong with it, the engines are to say.
        return file
    if not has_filled_weights(model):
        return file
    onnx.save(with_random_weights(model), folder / file.name)
    return folder / file.name


def check_alone(file: Path) -> CheckResult:
    """One model without another engine, which it brought down."""
    tried = _try(file, {}, "the other engine crashes on it", "")
    assert isinstance(tried, CheckResult)
    return tried


def _check_onnx(file: Path, engine: str) -> CheckResult:
    from whence.passes.equivalence import computes_in_half

    began = time.perf_counter()
    peer = run_onnx_runtime(file)
    tried = _try(file, peer.inputs, peer.problem, engine)
    if isinstance(tried, CheckResult):
        # A model that only runs because an optimiser removed what is wrong with it is not a model
        # to compare on.
        problem = (
            peer.problem or run_onnx_runtime(file, optimise=False).problem
            if tried.status == "failed"
            else ""
        )
        return (
            replace(tried, status="peer", detail=f"{problem}; whence: {tried.detail}")
            if problem
            else tried
        )
    graph, actual, share = tried
    limit = HALF_TOLERANCE if computes_in_half(graph) else TOLERANCE
    verdict = _compare(file, peer.names, peer.outputs, actual, limit)
    if verdict.status == "differs":
        # Its optimiser replaces arithmetic on dequantised values by integer arithmetic, which
        # rounds elsewhere; the model itself says otherwise.
        plain = run_onnx_runtime(file, optimise=False)
        again = (
            verdict if plain.problem else _compare(file, peer.names, plain.outputs, actual, limit)
        )
        if plain.problem:
            verdict = replace(
                again,
                detail=f"ONNX Runtime itself rejects it unoptimised: {plain.problem}",
                status="peer",
            )
        elif again.status == "ok":
            verdict = replace(again, detail="as ONNX Runtime without its optimisations")
        else:
            between = _compare(file, peer.names, peer.outputs, plain.outputs, limit)
            verdict = unless_engines_differ(
                replace(again, error=min(verdict.error, again.error)),
                "itself without its optimisations",
                between,
            )
    return _measured(verdict, graph, began, share)


def _check_tflite(file: Path, engine: str) -> CheckResult:
    """The reference kernels decide; a result of the optimised ones counts as well, for the two do
    not always agree with each other.
    """
    from whence.passes.equivalence import computes_in_half

    began = time.perf_counter()
    inputs = random_inputs(file.stem, declared_inputs(file), seed=0)
    peers = [
        ("LiteRT", run_litert(file, inputs)),
        ("LiteRT's optimised kernels", run_litert(file, inputs, reference=False)),
    ]
    if file.suffix == ".circle":
        peers.insert(0, ("onert", run_onert(file, inputs)))
    running = [(name, peer) for name, peer in peers if not peer.problem]
    problem = "" if running else "; ".join(peer.problem for _, peer in peers)
    tried = _try(file, inputs, problem, engine)
    if isinstance(tried, CheckResult):
        return (
            replace(tried, status="peer", detail=f"{problem}; whence: {tried.detail}")
            if problem and tried.status == "failed"
            else tried
        )
    graph, actual, share = tried
    limit = HALF_TOLERANCE if computes_in_half(graph) else TOLERANCE
    verdicts = [
        (name, _compare(file, peer.names, peer.outputs, actual, limit, tolerances(file)))
        for name, peer in running
    ]
    name, verdict = next((each for each in verdicts if each[1].status == "ok"), verdicts[0])
    if verdict.status == "differs" and len(running) > 1:
        (_, one), (other_name, other) = running[:2]
        between = _compare(file, one.names, one.outputs, other.outputs, limit)
        verdict = unless_engines_differ(verdict, other_name, between)
    return _measured(
        replace(verdict, detail=f"{name}: {verdict.detail}" if verdict.detail else name),
        graph,
        began,
        share,
    )


def unless_engines_differ(verdict: CheckResult, other: str, between: CheckResult) -> CheckResult:
    """The verdict on a model that differs. Where the engines that it is compared with differ
    from each other, it must not be further off than they are.
    """
    if not verdict.error <= between.error < float("inf"):
        return verdict
    return replace(
        verdict, status="ok", detail=f"no further than from {other}, {between.error:.1e}"
    )


def _try(file: Path, inputs: dict[str, Any], problem: str, engine: str) -> Ran | CheckResult:
    """The prepared graph and its outputs, or the verdict when it does not come so far or there is
    nothing to compare with.
    """
    import whence
    from whence.graph.outcomes import coverage
    from whence.passes.equivalence import draws_random_numbers
    from whence.passes.manager import CheckLevel

    began = time.perf_counter()
    try:
        graph = whence.load(
            file,
            shapes=(
                {name: value.shape for name, value in inputs.items()}
                if file.suffix != ".onnx"
                else None
            ),
        )
        whence.prepare(graph, check=CheckLevel.INVARIANTS)
        lost = coverage(graph).lost
        if lost:
            return CheckResult(file.stem, "failed", f"{lost} operators lost")
        if not problem and draws_random_numbers(graph):
            problem = "draws random numbers, so that two runs differ"
        if problem:
            return _measured(CheckResult(file.stem, "peer", problem), graph, began)
        if not engine:
            return Ran(graph, graph.run(inputs))
        return Ran(graph, *_run_compiled(file, inputs, engine))
    except whence.WhenceError as error:
        return CheckResult(file.stem, "failed", str(error))
    except Exception as error:
        return CheckResult(file.stem, "failed", f"{type(error).__name__}: {error}")


def _measured(
    verdict: CheckResult, graph: Graph, began: float, share: ReferenceShare | None = None
) -> CheckResult:
    if share is not None:
        verdict = replace(verdict, reference=share.part, why_reference=share.why)
    return replace(
        verdict,
        operators=graph.ledger.n_sources,
        nodes=len(graph),
        seconds=time.perf_counter() - began,
    )


def _run_compiled(
    file: Path, inputs: dict[str, Any], engine: str
) -> tuple[list[Any], ReferenceShare]:
    import whence

    model = whence.compile(file, engine=whence.Engine(engine))
    result = model(**inputs)
    share = reference_share(model, inputs)
    return list(result) if isinstance(result, tuple) else [result], share


def _compare(
    file: Path,
    names: Sequence[str],
    expected: Sequence[Any],
    actual: Sequence[Any],
    limit: float,
    allowed: Sequence[float] | None = None,
) -> CheckResult:
    """Each output against the other engine's: within `limit`, or the model's quantisation."""
    from whence.passes.equivalence import difference

    if len(expected) != len(actual):
        return CheckResult(file.stem, "differs", f"{len(expected)} outputs against {len(actual)}")
    errors = [
        0.0 if _is_last_place(was, now) else difference(was, now)
        for was, now in zip(expected, actual, strict=True)
    ]
    over = [
        error > limit and not _within(was, now, allowance)
        for error, was, now, allowance in zip(
            errors, expected, actual, allowed or [0.0] * len(errors), strict=True
        )
    ]
    worst = max(errors, default=0.0)
    if not any(over):
        return CheckResult(file.stem, "ok", error=worst)
    return CheckResult(file.stem, "differs", _describe(names, expected, actual, errors), worst)


def _within(expected: Any, actual: Any, absolute: float) -> bool:
    """Are two arrays nowhere further apart than one code, but for the rounding of floats?"""
    if absolute == 0 or expected.shape != actual.shape or expected.dtype != actual.dtype:
        return False
    gap = np.abs(expected.astype(np.float64) - actual.astype(np.float64))
    return bool(np.all(gap <= absolute * (1 + TOLERANCE)))


def _is_last_place(expected: Any, actual: Any) -> bool:
    """Are two float32 results closer than twice the last place of 1?"""
    both = (
        isinstance(expected, np.ndarray)
        and isinstance(actual, np.ndarray)
        and expected.shape == actual.shape
    )
    return (
        both
        and expected.dtype == actual.dtype == np.float32
        and expected.size > 0
        and bool(np.all(np.abs(expected - actual) <= ABSOLUTE))
    )


def _describe(
    names: Sequence[str], expected: Sequence[Any], actual: Sequence[Any], errors: Sequence[float]
) -> str:
    index = int(np.argmax(errors))
    was, now = np.asarray(expected[index]), np.asarray(actual[index])
    return (
        f"output '{names[index]}' {was.dtype}{list(was.shape)} against"
        f" {now.dtype}{list(now.shape)}, difference {errors[index]:.3g}"
    )


if __name__ == "__main__":
    sys.exit(main())
