"""Latency of whence beside ONNX Runtime and OpenVINO, or LiteRT for TFLite files, in one
interleaved run.

    python -m benchmarks.latency MODEL...                 files, or names from the zoo
    python -m benchmarks.latency MODEL --threads 1 --rounds 20 --json out.json
    python -m benchmarks.latency MODEL --cold             whence compiles the model in the process that is measured
    python -m benchmarks.latency qdq:MODEL                an ONNX model, quantised to 8 bits first
    python -m benchmarks.latency --int8                   quantised models, TFLite and ONNX
    python -m benchmarks.latency --zoo                    the float32 models of docs/performance.md, with geometric means
    python -m benchmarks.latency --zoo --record           and write the figures into results.jsonl

Each engine runs in a process of its own, which gets its inputs in a file: whoever draws them loads
ONNX Runtime, whose memory must not count as another's. Rounds alternate between engines, and the
processes whose turn it is not are stopped: spinning thread pools would otherwise fight over the
cores. Models with open shapes are compiled for those of the inputs where an engine can do that:
whence and OpenVINO. Printed are medians and the ratio of the faster peer to whence: above 1, whence
is faster; and the most memory that a process held while it ran, once loaded.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.int8_models import INT8, is_quantised, litert_inputs, load_litert, quantised
from benchmarks.record import Row, Stamp, append_rows, measured, stamp_now
from zoo.inputs import random_inputs
from zoo.manifest import cache_folder

ENGINES = ("whence", "onnxruntime", "openvino", "litert")
ZOO = (
    "t_resnet50", "t_resnet18", "t_mobilenetv2", "t_mobilenetv3_large", "t_efficientnet_b0", "t_convnext_tiny", "t_vit_tiny", "t_minilm_l6",
    "t_bert_base", "t_llama_tiny", "t_distilgpt2", "light_densenet121", "light_squeezenet", "light_shufflenet", "light_inception_v2",
    "light_bvlc_alexnet", "light_vgg19", "light_zfnet512", "ppocrv4_det", "ppocrv4_rec", "ppocrv6_rec_tiny", "yolo11n", "yolov8n_mushroom",
    "yunet_2023mar", "u2netp", "silero_vad_v6", "nsnet2",
)  # fmt: skip
"""Float32 models: convolutional, attention and recurrent, from 0.1 ms to a second."""
_TYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_, "tensor(double)": np.float64,
          "tensor(float16)": np.float16, "tensor(uint8)": np.uint8, "tensor(int8)": np.int8}  # fmt: skip
# What the slowest engine's turn takes, at least a run: short, because a neighbour on the machine
# may come or go within a tenth of a second.
_ROUND_NS = 50_000_000
Run = Callable[[], Any]


def draw_inputs(path: Path) -> dict[str, np.ndarray]:
    """The same inputs for every engine."""
    if path.suffix == ".tflite":
        return litert_inputs(path)
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    return random_inputs(
        path.stem,
        [(each.name, _TYPES[each.type], each.shape) for each in session.get_inputs()],
        seed=0,
    )


def write_inputs(path: Path, folder: str) -> Path:
    """A file in the folder with the model's inputs, for processes that are to load one engine and
    nothing else.
    """
    given = Path(folder) / "inputs.npz"
    np.savez(given, **draw_inputs(path))  # type: ignore[arg-type]
    return given


def load_whence(
    path: Path, threads: int, inputs: dict[str, np.ndarray], *, precise: bool = False
) -> Run:
    import whence

    # For these shapes, as OpenVINO below; what open shapes cost is in benchmarks/shapes.py.
    shapes = {name: value.shape for name, value in inputs.items()}
    model = whence.compile(path, threads=threads, precise=precise, shapes=shapes)
    return lambda: model(**inputs)


def load_onnxruntime(path: Path, threads: int, inputs: dict[str, np.ndarray]) -> Run:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    settings.intra_op_num_threads = threads
    settings.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, inputs)


def compile_openvino(
    path: Path, threads: int, inputs: dict[str, np.ndarray], *, hint: str, streams: int
) -> Any:
    """The model for inputs of these shapes, in float32, tuned for the hint."""
    import openvino

    core = openvino.Core()
    model = core.read_model(path)
    model.reshape({name: list(value.shape) for name, value in inputs.items()})
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": hint,
        "INFERENCE_PRECISION_HINT": "f32",
        "NUM_STREAMS": streams,
    }
    return core.compile_model(model, "CPU", settings)


def load_openvino(path: Path, threads: int, inputs: dict[str, np.ndarray]) -> Run:
    compiled = compile_openvino(path, threads, inputs, hint="LATENCY", streams=1)
    request = compiled.create_infer_request()
    return lambda: request.infer(inputs)


PRECISE = "whence --precise"
LOADERS: dict[str, Callable[[Path, int, dict[str, np.ndarray]], Run]] = {
    "whence": load_whence,
    PRECISE: partial(load_whence, precise=True),
    "onnxruntime": load_onnxruntime,
    "openvino": load_openvino,
    "litert": load_litert,
}


def serve(engine: str, path: Path, threads: int, given: Path) -> None:
    """The worker: load, warm up, then time as many runs as each line asks for."""
    inputs = dict(np.load(given))
    began = time.perf_counter()
    run = LOADERS[engine](path, threads, inputs)
    run()
    print(json.dumps({"ready": time.perf_counter() - began}), flush=True)
    # From here on, the peak is that of running, not of loading.
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            start = time.perf_counter_ns()
            run()
            times.append(time.perf_counter_ns() - start)
        print(json.dumps({"times": times, "peak_kb": peak_kb()}), flush=True)


def peak_kb() -> int:
    """The most memory this process held since the peak was last reset."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def find_model(name: str) -> Path:
    """A model file by its path, or by its name in the zoo; after `qdq:`, its quantised form."""
    if name.startswith("qdq:"):
        return quantised(find_model(name.removeprefix("qdq:")))
    for path in (
        Path(name),
        *(cache_folder() / f"{name}{suffix}" for suffix in (".onnx", ".tflite", ".circle")),
    ):
        if path.is_file():
            return path
    raise SystemExit(
        f"no model '{name}': neither a file nor in {cache_folder()}; `make zoo` fetches the models"
    )


def engines_for(path: Path) -> list[str]:
    """Those that read such a file."""
    return (
        ["whence", "litert"] if path.suffix == ".tflite" else ["whence", "onnxruntime", "openvino"]
    )


@dataclass
class Worker:
    """An engine in a process of its own, running only while it is asked."""

    engine: str
    process: subprocess.Popen[str]
    ready: float = 0.0
    peak_kb: int = 0
    times: list[int] = field(default_factory=list)
    error: str = ""

    @classmethod
    def start(
        cls,
        engine: str,
        path: Path,
        threads: int,
        given: Path,
        settings: dict[str, str],
        *,
        precise: bool,
    ) -> Worker:
        served = PRECISE if precise and engine == "whence" else engine
        command = [
            sys.executable,
            "-m",
            "benchmarks.latency",
            "--serve",
            served,
            str(path),
            str(threads),
            str(given),
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), **settings}
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        worker = cls(engine, process)
        answer = worker._read()
        worker.ready = answer["ready"] if answer is not None else 0.0
        worker.stop()
        return worker

    def _read(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            assert self.process.stderr is not None
            said = self.process.stderr.read().strip().splitlines()
            code = self.process.wait()
            self.error = (
                said[-1][:200]
                if said
                else (
                    f"ended by {signal.Signals(-code).name}"
                    if code < 0
                    else f"ended with code {code}"
                )
            )
            return None
        return json.loads(line)

    def stop(self) -> None:
        if not self.error:
            self.process.send_signal(signal.SIGSTOP)

    def round(self, runs: int) -> None:
        if self.error:
            return
        assert self.process.stdin is not None
        self.process.send_signal(signal.SIGCONT)
        # One run to warm the caches that the others left cold.
        self.process.stdin.write(f"{runs + 1}\n")
        self.process.stdin.flush()
        answer = self._read()
        if answer is not None:
            self.times.extend(answer["times"][1:])
            self.peak_kb = answer["peak_kb"]
        self.stop()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def compare(
    path: Path,
    threads: int,
    rounds: int,
    engines: list[str],
    *,
    cold: bool = False,
    precise: bool = False,
) -> dict[str, Any]:
    """One model at one thread count. `cold` starts with an empty cache, `precise` leaves out matrix
    units.
    """
    with tempfile.TemporaryDirectory() as folder:
        given = write_inputs(path, folder)
        settings = {"WHENCE_CACHE": folder} if cold else {}
        workers = [
            Worker.start(engine, path, threads, given, settings, precise=precise)
            for engine in engines
        ]
    try:
        for worker in workers:
            worker.round(1)
        slowest = max((worker.times[-1] for worker in workers if worker.times), default=1)
        runs = max(1, min(50, int(_ROUND_NS / slowest)))
        for worker in workers:
            worker.times.clear()
        for _ in range(rounds):
            for worker in workers:
                worker.round(runs)
    finally:
        for worker in workers:
            worker.end()
    return {
        "model": path.stem,
        "threads": threads,
        "engines": {
            worker.engine: (
                {"error": worker.error}
                if worker.error
                else {
                    "median_ns": int(statistics.median(worker.times)),
                    "min_ns": min(worker.times),
                    "first_inference_s": worker.ready,
                    "peak_mb": round(worker.peak_kb / 1024, 1),
                    "runs": len(worker.times),
                }
            )
            for worker in workers
        },
    }


def rows(result: dict[str, Any], stamp: Stamp) -> list[Row]:
    """The result as it is recorded."""
    ran = {name: each for name, each in result["engines"].items() if "median_ns" in each}
    return [
        measured(
            stamp,
            "latency, 8 bits" if is_quantised(result["model"]) else "latency",
            result["model"],
            result["threads"],
            "ms",
            {name: each["median_ns"] / 1e6 for name, each in ran.items()},
            {f"{name} MB": each["peak_mb"] for name, each in ran.items()},
        )
    ]


def ratio(result: dict[str, Any]) -> float | None:
    """The faster peer's median to ours."""
    engines = result["engines"]
    peers = [
        engines[engine]["median_ns"]
        for engine in engines
        if engine != "whence" and "median_ns" in engines[engine]
    ]
    ours = engines.get("whence", {}).get("median_ns")
    return min(peers) / ours if peers and ours else None


def summarise(results: list[dict[str, Any]]) -> None:
    """The geometric mean of the ratios by thread count, and the worst."""
    for threads in sorted({result["threads"] for result in results}):
        found = {
            result["model"]: value
            for result in results
            if result["threads"] == threads and (value := ratio(result)) is not None
        }
        if len(found) > 1:
            worst = min(found, key=lambda model: found[model])
            mean = statistics.geometric_mean(found.values())
            print(
                f"{threads} thread(s), {len(found)} models: geometric mean {mean:.2f}, worst"
                f" {worst} {found[worst]:.2f}"
            )


def show(result: dict[str, Any]) -> None:
    engines = result["engines"]
    cells = []
    for engine in ENGINES:
        figures = engines.get(engine)
        cells.append(
            f"{'-':>10}"
            if figures is None
            else f"{'failed':>10}"
            if "error" in figures
            else f"{figures['median_ns'] / 1e6:8.3f}ms"
        )
    found = ratio(result)
    memory = "  ".join(
        (
            f"{engines[engine]['peak_mb']:6.0f}"
            if "peak_mb" in engines.get(engine, {})
            else f"{'-':>6}"
        )
        for engine in ENGINES
    )
    print(
        f"{result['model']:24} {result['threads']}  {'  '.join(cells)} "
        f" {'     -' if found is None else f'{found:6.2f}'}       {memory}",
        flush=True,
    )
    for engine, figures in engines.items():
        if "error" in figures:
            print(f"    {engine}: {figures['error']}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*")
    parser.add_argument("--zoo", action="store_true", help="the float32 models of the zoo")
    parser.add_argument("--int8", action="store_true", help="quantised models")
    parser.add_argument("--threads", type=int, action="append")
    parser.add_argument(
        "--cold",
        action="store_true",
        help="with an empty cache: whence compiles the model just before it runs it",
    )
    parser.add_argument(
        "--precise", action="store_true", help="whence without the processor's matrix units"
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--engine", action="append", choices=ENGINES)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--record", action="store_true", help="append to results.jsonl")
    parser.add_argument("--serve", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        engine, path, threads, given = options.serve
        serve(engine, Path(path), int(threads), Path(given))
        return
    if options.record and (options.cold or options.precise or options.engine):
        parser.error("--record is for whence as it comes, beside every peer that reads the model")
    results = []
    print(
        f"{'model':24} t  {'whence':>10}  {'ORT':>10}  {'OpenVINO':>10}  {'LiteRT':>10} "
        " peer/whence   MB, in this order"
    )
    for name in [*options.models, *(ZOO if options.zoo else ()), *(INT8 if options.int8 else ())]:
        path = find_model(name)
        for threads in options.threads or [1, 2]:
            results.append(
                compare(
                    path,
                    threads,
                    options.rounds,
                    options.engine or engines_for(path),
                    cold=options.cold,
                    precise=options.precise,
                )
            )
            show(results[-1])
    summarise(results)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    if options.record:
        stamp = stamp_now()
        append_rows(row for result in results for row in rows(result, stamp))


if __name__ == "__main__":
    main()
