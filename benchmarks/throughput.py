"""Runs a second with several callers at once on one model, beside ONNX Runtime and OpenVINO.

    python -m benchmarks.throughput MODEL... [--streams 16] [--seconds 1] [--rounds 4] [--record]

Every engine has as many callers as there are streams, each with one thread, and shares one set of
weights among them: whence by `run_many`, ONNX Runtime by one session that all threads call,
OpenVINO by its throughput mode. Engines take turns, each in a process of its own that is stopped
while it is not its turn. Printed are runs a second and the ratio to the faster peer: above 1,
whence is ahead.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.latency import compile_openvino, find_model, load_onnxruntime, write_inputs
from benchmarks.record import Row, Stamp, append_rows, measured, stamp_now

ENGINES = ("whence", "onnxruntime", "openvino")
Work = Callable[[float], int]
"""Runs for so many seconds, and says how many runs it finished."""


def whence_work(path: Path, streams: int, inputs: dict[str, np.ndarray]) -> Work:
    import whence

    model = whence.compile(path, threads=1)
    model(**inputs)

    def work(seconds: float) -> int:
        until = time.perf_counter() + seconds

        def calls() -> Any:
            while time.perf_counter() < until:
                yield inputs

        return sum(1 for _ in model.run_many(calls(), streams=streams))

    return work


def onnxruntime_work(path: Path, streams: int, inputs: dict[str, np.ndarray]) -> Work:
    run = load_onnxruntime(path, 1, inputs)

    def work(seconds: float) -> int:
        until, done = time.perf_counter() + seconds, [0] * streams

        def caller(number: int) -> None:
            while time.perf_counter() < until:
                run()
                done[number] += 1

        callers = [threading.Thread(target=caller, args=(number,)) for number in range(streams)]
        for each in callers:
            each.start()
        for each in callers:
            each.join()
        return sum(done)

    return work


def openvino_work(path: Path, streams: int, inputs: dict[str, np.ndarray]) -> Work:
    import openvino

    compiled = compile_openvino(path, streams, inputs, hint="THROUGHPUT", streams=streams)
    queue = openvino.AsyncInferQueue(compiled, streams)

    def work(seconds: float) -> int:
        until, done = time.perf_counter() + seconds, 0
        while time.perf_counter() < until:
            queue.start_async(inputs)
            done += 1
        queue.wait_all()
        return done

    return work


WORK = {"whence": whence_work, "onnxruntime": onnxruntime_work, "openvino": openvino_work}


def serve(engine: str, path: Path, streams: int, given: Path) -> None:
    """The worker: load, warm up, then work for as many seconds as each line asks for."""
    work = WORK[engine](path, streams, dict(np.load(given)))
    work(0.2)
    print("ready", flush=True)
    for line in sys.stdin:
        began = time.perf_counter()
        done = work(float(line))
        print(json.dumps(done / (time.perf_counter() - began)), flush=True)


def compare(
    path: Path, streams: int, seconds: float, rounds: int, engines: list[str]
) -> dict[str, float]:
    """Runs a second of each engine that reads the model: medians over the rounds."""
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        given = write_inputs(path, folder)
        workers: dict[str, subprocess.Popen[str]] = {}
        for engine in engines:
            module = [sys.executable, "-m", "benchmarks.throughput", "--serve"]
            worker = subprocess.Popen(
                [*module, engine, str(path), str(streams), str(given)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert worker.stdout is not None
            if worker.stdout.readline():
                workers[engine] = worker
                worker.send_signal(signal.SIGSTOP)
            else:
                print(f"    {engine} does not run {path.name}", file=sys.stderr)
    for _ in range(rounds):
        for engine, worker in workers.items():
            assert worker.stdin is not None
            assert worker.stdout is not None
            worker.send_signal(signal.SIGCONT)
            worker.stdin.write(f"{seconds}\n")
            worker.stdin.flush()
            found.setdefault(engine, []).append(float(worker.stdout.readline()))
            worker.send_signal(signal.SIGSTOP)
    for worker in workers.values():
        worker.kill()
        worker.wait()
    return {engine: statistics.median(rates) for engine, rates in found.items()}


def rows(path: Path, streams: int, rates: dict[str, float], stamp: Stamp) -> list[Row]:
    """The result as it is recorded. Every stream has one thread."""
    return [measured(stamp, "throughput", path.stem, streams, "runs/s", rates)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*")
    parser.add_argument("--streams", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--engine", action="append", choices=ENGINES)
    parser.add_argument("--record", action="store_true", help="append to results.jsonl")
    parser.add_argument("--serve", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        engine, path, streams, given = options.serve
        serve(engine, Path(path), int(streams), Path(given))
        return
    if options.record and options.engine:
        parser.error("--record is for every engine that reads the model")
    engines = options.engine or list(ENGINES)
    stamp, recorded = stamp_now(), list[Row]()
    print(f"{'model':24} streams  {'  '.join(f'{engine:>11}' for engine in engines)}  ratio")
    for name in options.models:
        path = find_model(name)
        rates = compare(path, options.streams, options.seconds, options.rounds, engines)
        recorded += rows(path, options.streams, rates, stamp)
        cells = "  ".join(
            f"{rates[engine]:9.1f}/s" if engine in rates else f"{'-':>11}" for engine in engines
        )
        peers = [rate for engine, rate in rates.items() if engine != "whence"]
        ratio = f"{rates['whence'] / max(peers):5.2f}" if peers and "whence" in rates else "    -"
        print(f"{Path(name).stem:24} {options.streams:7}  {cells}  {ratio}", flush=True)
    if options.record:
        append_rows(recorded)


if __name__ == "__main__":
    main()
