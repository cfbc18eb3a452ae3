"""A model whose weights are large: time to the first result and peak memory, beside ONNX Runtime.

    python -m benchmarks.large [--gigabytes 2.7] [--layers 24] [--threads 2] [--rounds 1]
        [--folder DIR] [--json out.json]

The model is a chain of feed-forward blocks (MatMul, Add, Relu, MatMul, Add) with its weights in an
external file, made in a temporary folder or in DIR, and deleted afterwards. Every start is a
process of its own: whence with an empty cache (`first`), whence again (`kept`), ONNX Runtime.
`ready` is from the call that loads the model to the first result, `cpu` the processor time of the
process and what it started, `peak` the most memory that one process had (its children's, if
larger), also as a multiple of the weights. The outputs are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

_WIDTH_PER_HIDDEN = 3.375
_ROWS = 16
_SEED = 7

_COMMON = """
import json, resource, sys, time
path, threads, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
"""
_SCRIPTS = {
    "whence": """
import whence
began = time.perf_counter()
model = whence.compile(path, threads=threads)
import numpy as np
x = np.load(folder + "/x.npy")
y = np.asarray(model(x=x))
""",
    "onnxruntime": """
import numpy as np, onnxruntime
x = np.load(folder + "/x.npy")
settings = onnxruntime.SessionOptions()
settings.log_severity_level, settings.intra_op_num_threads = 3, threads
began = time.perf_counter()
session = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
y = session.run(None, {"x": x})[0]
""",
}
_END = """
ready = time.perf_counter() - began
mine, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
np.save(folder + "/" + sys.argv[4], y)
print(json.dumps({
    "ready_s": ready,
    "cpu_s": sum(each.ru_utime + each.ru_stime for each in (mine, others)),
    "peak_bytes": 1024 * max(mine.ru_maxrss, others.ru_maxrss),
}))
"""
KINDS = ("whence first", "whence kept", "onnxruntime")


def write_model(folder: Path, weight_bytes: float, layers: int) -> tuple[Path, int]:
    """A model with so many bytes of weights, and how many they really are."""
    hidden = int((weight_bytes / (8 * layers * _WIDTH_PER_HIDDEN)) ** 0.5) // 64 * 64
    width = int(hidden * _WIDTH_PER_HIDDEN) // 64 * 64
    random = np.random.default_rng(_SEED)
    base = random.standard_normal(hidden * width, dtype=np.float32)
    nodes, initializers, value, offset = [], [], "x", 0
    with (folder / "weights.bin").open("wb") as file:

        def tensor(name: str, data: np.ndarray) -> str:
            nonlocal offset
            proto = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=data.shape)
            proto.data_location = TensorProto.EXTERNAL
            for key, entry in (
                ("location", "weights.bin"),
                ("offset", str(offset)),
                ("length", str(data.nbytes)),
            ):
                proto.external_data.add(key=key, value=entry)
            file.write(memoryview(np.ascontiguousarray(data)).cast("B"))
            offset += data.nbytes
            initializers.append(proto)
            return name

        for layer in range(layers):
            for half, shape in (("up", (hidden, width)), ("down", (width, hidden))):
                # Random numbers take longer to make than to read; shifted ones are as good.
                data = np.roll(base, 7919 * (layer + 1)).reshape(shape)
                data *= np.float32((1.0 if half == "up" else 0.5) / shape[0] ** 0.5)
                weights = tensor(f"layer{layer}.{half}.weight", data)
                bias = tensor(f"layer{layer}.{half}.bias", base[: shape[1]] * np.float32(0.1))
                name = f"layer{layer}.{half}"
                nodes.append(helper.make_node("MatMul", [value, weights], [f"{name}_m"], name))
                nodes.append(helper.make_node("Add", [f"{name}_m", bias], [f"{name}_a"]))
                value = f"{name}_a"
                if half == "up":
                    nodes.append(helper.make_node("Relu", [value], [f"{name}_r"]))
                    value = f"{name}_r"
    shape = [1, _ROWS, hidden]
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, shape)],
        initializers,
    )
    path = folder / "large.onnx"
    path.write_bytes(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9
        ).SerializeToString()
    )
    onnx.checker.check_model(str(path))
    np.save(folder / "x.npy", random.standard_normal(shape, dtype=np.float32))
    return path, offset


def start(kind: str, path: Path, threads: int, cache: Path) -> dict[str, float]:
    """One start of an engine in a process of its own."""
    engine = kind.split(" ", maxsplit=1)[0]
    if kind == "whence first":
        shutil.rmtree(cache, ignore_errors=True)
    command = [sys.executable, "-c", _COMMON + _SCRIPTS[engine] + _END]
    done = subprocess.run(
        [*command, str(path), str(threads), str(path.parent), f"{engine}.npy"],
        env={**os.environ, "WHENCE_CACHE": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{kind} failed: {done.stderr.strip()[-500:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    path, weight_bytes = write_model(folder, options.gigabytes * 1e9, options.layers)
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    for _ in range(options.rounds):
        for kind in KINDS:
            found[kind].append(start(kind, path, options.threads, folder / "cache"))
    ours, peer = (np.load(folder / f"{engine}.npy") for engine in _SCRIPTS)
    return {
        "weight_bytes": weight_bytes,
        "largest_difference": float(np.abs(ours - peer).max() / np.abs(peer).max()),
        "kinds": {
            kind: {what: statistics.median(row[what] for row in rows) for what in rows[0]}
            for kind, rows in found.items()
        },
    }


def show(result: dict[str, Any]) -> None:
    weights, kinds = result["weight_bytes"], result["kinds"]
    peer = kinds["onnxruntime"]["ready_s"]
    print(
        f"{weights / 1e9:.2f} GB of weights; outputs differ by {result['largest_difference']:.1e}"
    )
    print(f"{'':14} {'ready s':>8} {'of ORT':>7} {'cpu s':>7} {'peak GB':>8} {'of weights':>10}")
    for kind, row in kinds.items():
        print(
            f"{kind:14} {row['ready_s']:8.2f} {row['ready_s'] / peer:7.2f} {row['cpu_s']:7.2f}"
            f" {row['peak_bytes'] / 1e9:8.2f} {row['peak_bytes'] / weights:10.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=2.7)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where to write the model")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        result = measure(Path(folder), options)
    show(result)
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
