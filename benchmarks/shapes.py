"""Many shapes through one compiled model: compilations, outputs and latency, beside the same model
compiled for each shape by itself, and beside ONNX Runtime.

    python -m benchmarks.shapes MODEL --dim sequence=8,16,32,64,128 --dim batch=1,2,4,8
    python -m benchmarks.shapes minilm_l6_int8 --dim batch=2 --dim sequence=8..160:8 --threads 2
    python -m benchmarks.shapes yolo11n --hot

Shapes are all combinations of the sizes given for the dimensions that the file names; for the
models of `USUAL`, twenty shapes if none are given. Each engine runs in a process of its own; for
every shape they take turns, and those whose turn it is not are stopped. Printed for each shape:
medians, how much longer the open model takes than the specialised one (1.1 is what we allow), ONNX
Runtime's time over the open model's (above 1, whence is faster), and the largest difference of the
outputs from ONNX Runtime's. With `--hot`, also how much longer a model takes that was left to
specialise each shape in the background, and ran until it had. At the end, how often each was
compiled.
"""

from __future__ import annotations

import argparse
import itertools
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.latency import find_model
from zoo.inputs import random_inputs

OPEN, SPECIALISED, HOT, PEER = "whence", "whence specialised", "whence hot", "onnxruntime"
KINDS = (OPEN, SPECIALISED, HOT, PEER)
_MOST_WAITED_S = 300
"""For a hot shape to be specialised."""
_TYPES = {
    "tensor(float)": np.float32,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
}
_ROUND_NS = 30_000_000
USUAL: Mapping[str, Sequence[str]] = {
    "minilm_l6_int8": ("batch=2", "sequence=8..160:8"),
    "t_distilgpt2_dyn": ("batch=2", "seq=8..160:8"),
    "t_bert_base_dyn": ("batch=2", "seq=8..160:8"),
    "ppocrv4_rec": ("p2o.DynamicDimension.0=1", "?=48", "p2o.DynamicDimension.1=96..400:16"),
    "ppocrv6_rec_tiny": ("DynamicDimension.0=1", "DynamicDimension.1=96..400:16"),
    "ppocrv4_det": (
        "p2o.DynamicDimension.0=1",
        "p2o.DynamicDimension.1=160,320,480,640",
        "p2o.DynamicDimension.2=192,256,384,512,640",
    ),
    "ppocrv6_det_tiny": (
        "DynamicDimension.0=1",
        "DynamicDimension.1=160,320,480,640",
        "DynamicDimension.2=192,256,384,512,640",
    ),
    "yolo11n": ("batch=1", "height=256,320,480,640", "width=192,256,384,512,640"),
    "mtcnn_pnet": ("N=1", "M1=24,48,96,192", "M2=32,64,100,150,200"),
    "pulsevad_int8": ("batch=2..21",),
}
"""By model: sizes of its dimensions, twenty shapes each."""
Inputs = dict[str, np.ndarray]


# ---- the processes ----


class Loaded(NamedTuple):
    """A model of one engine."""

    run: Callable[[Inputs], Any]
    compilations: Callable[[], int]
    is_specialised: Callable[[Inputs], bool]
    """Would a call with these inputs use a program for their shapes alone?"""


def load(kind: str, path: Path, threads: int) -> Loaded:
    if kind == PEER:
        import onnxruntime

        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = 3
        settings.intra_op_num_threads, settings.inter_op_num_threads = threads, 1
        providers = ["CPUExecutionProvider"]
        session = onnxruntime.InferenceSession(str(path), settings, providers=providers)
        return Loaded(lambda inputs: session.run(None, inputs), lambda: 1, lambda inputs: True)
    import whence

    specialise = {OPEN: False, SPECIALISED: True, HOT: None}[kind]
    model = whence.compile(path, threads=threads, specialise=specialise)

    def run(inputs: Inputs) -> Any:
        made = model(**inputs)
        return made if isinstance(made, tuple) else (made,)

    def is_specialised(inputs: Inputs) -> bool:
        ordered = [inputs[port.name] for port in model.inputs]
        return model.program_for(ordered).template is None

    return Loaded(run, lambda: model.compilations + model.specialised, is_specialised)


def serve(kind: str, path: Path, threads: int, folder: Path) -> None:
    """A line asks for so many runs of a shape; the first answer to a shape writes the outputs."""
    run, compilations, is_specialised = load(kind, path, threads)
    for line in sys.stdin:
        shape, runs = map(int, line.split())
        inputs = dict(np.load(folder / f"{shape}.npz"))
        outputs = folder / f"{shape} {kind}.npz"
        if not outputs.exists():
            np.savez(outputs, *run(inputs))
            until = time.monotonic() + _MOST_WAITED_S
            while kind == HOT and not is_specialised(inputs) and time.monotonic() < until:
                run(inputs)
        times = []
        for _ in range(runs):
            begin = time.perf_counter_ns()
            run(inputs)
            times.append(time.perf_counter_ns() - begin)
        print(json.dumps({"times": times, "compilations": compilations()}), flush=True)


class Worker:
    """An engine in a process of its own, running only while it is asked."""

    def __init__(self, kind: str, path: Path, threads: int, folder: Path) -> None:
        command = ["-m", "benchmarks.shapes", "--serve", kind, str(path), str(threads), str(folder)]
        self.kind = kind
        self.compilations = 0
        self._process = subprocess.Popen(
            [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._process.send_signal(signal.SIGSTOP)

    def times(self, shape: int, runs: int) -> list[int]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.send_signal(signal.SIGCONT)
        # One more, for the caches that the others left cold.
        self._process.stdin.write(f"{shape} {runs + 1}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        self._process.send_signal(signal.SIGSTOP)
        if not line:
            raise SystemExit(f"{self.kind} failed")
        answer = json.loads(line)
        self.compilations = answer["compilations"]
        return list(answer["times"][1:])

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


# ---- the comparison ----


def sizes_of(text: str) -> tuple[str, list[int]]:
    """`name=8,16` or `name=8..64:8`."""
    name, _, values = text.partition("=")
    if ".." in values:
        first, _, rest = values.partition("..")
        last, _, step = rest.partition(":")
        return name, list(range(int(first), int(last) + 1, int(step or 1)))
    return name, [int(value) for value in values.split(",")]


def draw(path: Path, sizes: Mapping[str, int]) -> Inputs:
    """Random inputs with these sizes of the named dimensions."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    declared = [
        (
            each.name,
            _TYPES[each.type],
            [sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in each.shape],
        )
        for each in session.get_inputs()
    ]
    drawn = random_inputs(path.stem, declared, seed=0)
    # What is known of the model's inputs may include a shape: values are repeated for the others.
    return {
        name: np.resize(drawn[name], [dim if isinstance(dim, int) else had for dim, had in pairs])
        for name, _, dims in declared
        for pairs in [list(zip(dims, drawn[name].shape, strict=True))]
    }


def difference(folder: Path, shape: int) -> float:
    ours, theirs = (np.load(folder / f"{shape} {kind}.npz") for kind in (OPEN, PEER))
    return max(
        float(np.abs(ours[name].astype(np.float64) - theirs[name]).max(initial=0))
        for name in ours.files
    )


def compare(
    path: Path,
    shapes: Sequence[Mapping[str, int]],
    kinds: Sequence[str],
    threads: int,
    rounds: int,
) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, sizes in enumerate(shapes):
            np.savez(folder / f"{number}.npz", **draw(path, sizes))  # type: ignore[arg-type]
        workers = [Worker(kind, path, threads, folder) for kind in kinds]
        found = []
        try:
            for number, sizes in enumerate(shapes):
                slowest = max(worker.times(number, 1)[0] for worker in workers)
                runs = max(1, min(30, _ROUND_NS // slowest))
                times: dict[str, list[int]] = {kind: [] for kind in kinds}
                for _ in range(rounds):
                    for worker in workers:
                        times[worker.kind] += worker.times(number, runs)
                found.append(
                    {
                        "sizes": dict(sizes),
                        "median_ns": {kind: statistics.median(times[kind]) for kind in kinds},
                        "difference": difference(folder, number),
                        "compilations": {each.kind: each.compilations for each in workers},
                    }
                )
                print(_line(found[-1]), flush=True)
        finally:
            for worker in workers:
                worker.end()
    return found


def _line(row: dict[str, Any]) -> str:
    ns = row["median_ns"]
    sizes = " ".join(f"{name}={size}" for name, size in row["sizes"].items())
    hot = f"  hot/specialised {ns[HOT] / ns[SPECIALISED]:5.2f}" if HOT in ns else ""
    return (
        f"{sizes:32} {ns[OPEN] / 1e6:9.3f} ms  open/specialised {ns[OPEN] / ns[SPECIALISED]:5.2f}"
        f"{hot}  onnxruntime/open {ns[PEER] / ns[OPEN]:5.2f}  difference {row['difference']:.1e}"
    )


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        kind, path, threads, folder = sys.argv[2:]
        serve(kind, Path(path), int(threads), Path(folder))
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("model")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=SIZES")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--hot", action="store_true", help="wait for hot shapes to be specialised")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    dims = dict(map(sizes_of, arguments.dim or USUAL.get(Path(arguments.model).stem, ())))
    shapes = [dict(zip(dims, sizes, strict=True)) for sizes in itertools.product(*dims.values())]
    kinds = [kind for kind in KINDS if kind != HOT or arguments.hot]
    path = find_model(arguments.model)
    found = compare(path, shapes, kinds, arguments.threads, arguments.rounds)
    worst = max(row["median_ns"][OPEN] / row["median_ns"][SPECIALISED] for row in found)
    least = min(row["median_ns"][PEER] / row["median_ns"][OPEN] for row in found)
    counts = found[-1]["compilations"]
    print(
        f"{len(found)} shapes: compiled {counts[OPEN]} time(s), specialised {counts[SPECIALISED]};"
        f" open/specialised at most {worst:.2f}, onnxruntime/open at least {least:.2f}"
    )
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
