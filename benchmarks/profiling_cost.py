"""What profiling costs: runs with and without it, in turn, on one compiled model; ONNX Runtime's
own profiling beside it.

    python -m benchmarks.profiling_cost MODEL [--threads 2] [--rounds 200] [--record]

Printed is the median of each and their ratio. The two kinds of run alternate, so that drift of the
machine falls on both.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.latency import draw_inputs, find_model
from benchmarks.record import Row, Stamp, append_rows, measured, stamp_now


def alternate(runs: list[Callable[[], object]], rounds: int) -> list[float]:
    """The median of each, in seconds, over rounds in which each runs once, in changing order."""
    times: list[list[float]] = [[] for _ in runs]
    for number in range(rounds):
        order = range(len(runs)) if number % 2 else reversed(range(len(runs)))
        for index in order:
            began = time.perf_counter()
            runs[index]()
            times[index].append(time.perf_counter() - began)
    return [statistics.median(each) for each in times]


def measure_whence(path: Path, threads: int, rounds: int) -> list[float]:
    import whence

    inputs = draw_inputs(path)
    model = whence.compile(path, threads=threads)
    plain, profiled = (
        whence.Stream(model.engine),
        whence.Stream(model.engine, flags=whence.StreamFlags.PROFILING),
    )

    def run(stream: whence.Stream) -> None:
        model.execute(stream, **inputs)
        stream.wait()

    for stream in (plain, profiled) * 5:
        run(stream)
    return alternate([lambda: run(plain), lambda: run(profiled)], rounds)


def measure_onnxruntime(path: Path, threads: int, rounds: int) -> list[float]:
    import onnxruntime

    inputs = draw_inputs(path)
    sessions = []
    with tempfile.TemporaryDirectory() as folder:
        for profiling in (False, True):
            settings = onnxruntime.SessionOptions()
            settings.log_severity_level = 3
            settings.intra_op_num_threads = threads
            # Two sessions in one process: without this their idle threads would spin against each
            # other.
            settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
            settings.enable_profiling = profiling
            settings.profile_file_prefix = os.path.join(folder, "profile")  # noqa: PTH118  (the option takes text)
            sessions.append(
                onnxruntime.InferenceSession(
                    str(path), settings, providers=["CPUExecutionProvider"]
                )
            )
        for session in sessions * 5:
            session.run(None, inputs)
        result = alternate(
            [lambda: sessions[0].run(None, inputs), lambda: sessions[1].run(None, inputs)], rounds
        )
        sessions[1].end_profiling()
    return result


def compare(path: Path, threads: int, rounds: int) -> dict[str, list[float]]:
    """Seconds without and with profiling, by engine."""
    return {
        "whence": measure_whence(path, threads, rounds),
        "onnxruntime": measure_onnxruntime(path, threads, rounds),
    }


def rows(path: Path, threads: int, found: dict[str, list[float]], stamp: Stamp) -> list[Row]:
    """The result as it is recorded: what each engine's profiling costs it, and the two compared."""
    costs = {engine: on / off for engine, (off, on) in found.items()}
    return [measured(stamp, "profiling", path.stem, threads, "on/off", costs)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--record", action="store_true", help="append to results.jsonl")
    options = parser.parse_args()
    path = find_model(options.model)
    found = compare(path, options.threads, options.rounds)
    for engine, (off, on) in found.items():
        print(f"{engine:12} off {off * 1e3:8.3f} ms   on {on * 1e3:8.3f} ms   ratio {on / off:.4f}")
    if options.record:
        append_rows(rows(path, options.threads, found, stamp_now()))


if __name__ == "__main__":
    main()
