"""From a model file to its first result: whence cold and warm, beside ONNX Runtime and OpenVINO,
OpenVINO with and without its model cache.

    python -m benchmarks.start_up MODEL... [--threads 2] [--rounds 5] [--json out.json] [--record]

Every start is a process of its own; the kinds of start take turns, so that drift of the machine
falls on all. `ready` is from the call that loads the model to its first result; `process` also
counts starting Python and importing the engine. A cold start has an empty cache. All engines have
their modules as bytecode, as installers leave them: the first start of each, which is not counted,
writes what is missing, whatever the environment says of that. Medians are printed, and the ratio of
ONNX Runtime's to ours: above 1, whence is quicker.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.latency import find_model, write_inputs
from benchmarks.record import Row, Stamp, append_rows, measured, stamp_now

KINDS = ("whence cold", "whence warm", "onnxruntime", "openvino", "openvino cached")

# What each process runs. Nothing of whence's benchmarks is imported there: it would be counted.
_COMMON = """
import sys, time
path, threads, given = sys.argv[1], int(sys.argv[2]), sys.argv[3]
"""
_SCRIPTS = {
    "whence": (
        """
import whence
began = time.perf_counter()
model = whence.compile(path, threads=threads)
import numpy as np
inputs = dict(np.load(given))
model(**inputs)
"""
    ),
    "onnxruntime": (
        """
import numpy as np, onnxruntime
inputs = dict(np.load(given))
settings = onnxruntime.SessionOptions()
settings.log_severity_level, settings.intra_op_num_threads, settings.inter_op_num_threads = 3, threads, 1
began = time.perf_counter()
session = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
session.run(None, inputs)
"""
    ),
    "openvino": (
        """
import numpy as np, openvino
inputs = dict(np.load(given))
settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32", "NUM_STREAMS": 1}
began = time.perf_counter()
core = openvino.Core()
if sys.argv[4]:
    # By path, so that the cache can be asked before the model is read.
    core.set_property({"CACHE_DIR": sys.argv[4]})
    compiled = core.compile_model(path, "CPU", settings)
else:
    model = core.read_model(path)
    model.reshape({name: list(value.shape) for name, value in inputs.items()})
    compiled = core.compile_model(model, "CPU", settings)
compiled.create_infer_request().infer(inputs)
"""
    ),
}
_END = "print(time.perf_counter() - began)\n"


def start(
    kind: str, path: Path, threads: int, inputs: Path, folders: dict[str, str]
) -> tuple[float, float] | str:
    """Seconds until the first result, from the call and from the start of the process; or what went
    wrong.
    """
    engine = kind.split(" ", maxsplit=1)[0]
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if engine == "whence":
        environment["WHENCE_CACHE"] = folders[kind]
    if kind == "whence cold":
        with tempfile.TemporaryDirectory() as empty:
            return _timed(engine, path, threads, inputs, "", {**environment, "WHENCE_CACHE": empty})
    return _timed(
        engine,
        path,
        threads,
        inputs,
        folders[kind] if kind == "openvino cached" else "",
        environment,
    )


def _timed(
    engine: str, path: Path, threads: int, inputs: Path, cache: str, environment: dict[str, str]
) -> tuple[float, float] | str:
    command = [
        sys.executable,
        "-c",
        _COMMON + _SCRIPTS[engine] + _END,
        str(path),
        str(threads),
        str(inputs),
        cache,
    ]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    elapsed = time.perf_counter() - began
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or ["no output"])[-1][:200]
    return float(done.stdout.strip().splitlines()[-1]), elapsed


def measure(path: Path, threads: int, rounds: int) -> dict[str, Any]:
    """One model: every kind of start, in turn."""
    with tempfile.TemporaryDirectory() as folder:
        given = write_inputs(path, folder)
        folders = {kind: str(Path(folder) / kind.replace(" ", "_")) for kind in KINDS}
        found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
        failed: dict[str, str] = {}
        for kind in ("whence warm", "onnxruntime", "openvino cached"):
            start(kind, path, threads, given, folders)  # fills its cache
        for number in range(rounds):
            for kind in KINDS:
                if kind in failed or (kind == "whence cold" and number > max(1, rounds // 3)):
                    continue
                figures = start(kind, path, threads, given, folders)
                if isinstance(figures, str):
                    failed[kind] = figures
                else:
                    found[kind].append(figures)
    kinds = {
        kind: (
            {"error": failed[kind]}
            if kind in failed
            else {
                "ready_s": round(statistics.median(ready for ready, _ in rows), 4),
                "ready_min_s": round(min(ready for ready, _ in rows), 4),
                "process_s": round(statistics.median(whole for _, whole in rows), 4),
                "starts": len(rows),
            }
        )
        for kind, rows in found.items()
    }
    return {"model": path.stem, "threads": threads, "kinds": kinds}


def rows(result: dict[str, Any], stamp: Stamp) -> list[Row]:
    """The result as it is recorded: a model that whence has cached, beside ONNX Runtime."""
    recorded = []
    for benchmark, what in (("start-up, loading", "ready_s"), ("start-up, process", "process_s")):
        found = {kind: each[what] for kind, each in result["kinds"].items() if what in each}
        found = {kind.removesuffix(" warm"): seconds for kind, seconds in found.items()}
        compared = {name: found.pop(name) for name in ("whence", "onnxruntime") if name in found}
        model, threads = result["model"], result["threads"]
        recorded.append(measured(stamp, benchmark, model, threads, "s", compared, found))
    return recorded


def show(result: dict[str, Any]) -> None:
    kinds = result["kinds"]
    for what in ("ready_s", "process_s"):
        cells = [
            f"{kinds[kind][what]:15.3f}" if what in kinds[kind] else f"{'failed':>15}"
            for kind in KINDS
        ]
        ours, peer = kinds["whence warm"].get(what), kinds["onnxruntime"].get(what)
        ratio = f"{peer / ours:6.2f}" if ours and peer else f"{'-':>6}"
        print(
            f"{result['model']:22} {what.removesuffix('_s'):8} {' '.join(cells)}  {ratio}",
            flush=True,
        )
    for kind, figures in kinds.items():
        if "error" in figures:
            print(f"    {kind}: {figures['error']}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--record", action="store_true", help="append to results.jsonl")
    options = parser.parse_args()
    print(f"{'seconds, median':22} {'':8} {' '.join(f'{kind:>15}' for kind in KINDS)}   ratio")
    results = []
    for name in options.models:
        results.append(measure(find_model(name), options.threads, options.rounds))
        show(results[-1])
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if options.record:
        stamp = stamp_now()
        append_rows(row for result in results for row in rows(result, stamp))


if __name__ == "__main__":
    main()
