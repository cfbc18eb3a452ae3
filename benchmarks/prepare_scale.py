"""How the cost of preparation grows with the size of the graph, beside ONNX Runtime's session
creation.

    python -m benchmarks.prepare_scale                 8k, 32k, 100k and 1M nodes; ONNX Runtime up to 100k
    python -m benchmarks.prepare_scale 8000 32000      these sizes
    python -m benchmarks.prepare_scale --record        and write the figures into results.jsonl

The models are chains of small operators with work for several passes: identities, cancelling
transposes, arithmetic with a shared constant. Each measurement is a process of its own, whence and
ONNX Runtime in turn. Both have prepared a model of eight operators before, so that importing
modules is not part of it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper, save

from benchmarks.record import Row, Stamp, append_rows, measured, stamp_now

SIZES = (8_000, 32_000, 100_000, 1_000_000)
PEER_LIMIT = 100_000
_TURNS = 5
_NODES_FOR_ONE = 100_000
_CYCLE = ("Relu", "Add", "Mul", "Identity", "Sigmoid", "Transpose", "Transpose", "Sub")


def chain(length: int) -> ModelProto:
    """A chain of `length` operators on an 8×8 tensor, repeating a cycle of eight."""
    nodes, value = [], "x"
    for index in range(length):
        op = _CYCLE[index % len(_CYCLE)]
        inputs = [value, "c"] if op in ("Add", "Mul", "Sub") else [value]
        value = f"t{index}"
        node = helper.make_node(op, inputs, [value], name=f"n{index}")
        if op == "Transpose":
            node.attribute.append(helper.make_attribute("perm", [1, 0]))
        nodes.append(node)
    square = [8, 8]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, square)],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, square)],
        [numpy_helper.from_array(np.ones(square, np.float32), "c")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _tiny(path: Path) -> Path:
    """A model beside the one at `path` that takes no time to prepare."""
    tiny = path.with_name("tiny.onnx")
    save(chain(len(_CYCLE)), tiny)
    return tiny


def time_whence(path: Path) -> dict[str, float]:
    import whence

    whence.prepare(whence.load(_tiny(path)))
    began = time.perf_counter()
    graph = whence.load(path)
    loaded = time.perf_counter()
    whence.prepare(graph)
    done = time.perf_counter()
    return {
        "load": loaded - began,
        "prepare": done - loaded,
        "total": done - began,
        "nodes": len(graph),
    }


def time_peer(path: Path) -> dict[str, float]:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    onnxruntime.InferenceSession(str(_tiny(path)), settings, providers=["CPUExecutionProvider"])
    began = time.perf_counter()
    onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    return {"total": time.perf_counter() - began}


def measure(engine: str, path: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.prepare_scale", "--measure", engine, str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{engine} failed on {path.name}: {done.stderr.strip()[-500:]}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def compare(size: int) -> dict[str, Any]:
    """One size: whence and ONNX Runtime, where that is not too long to wait for, in turns. The
    shortest of each counts: what else the machine did only adds to it.
    """
    turns = max(1, min(_TURNS, _NODES_FOR_ONE // size))
    ours, peers = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"chain{size}.onnx"
        save(chain(size), path)
        for _ in range(turns):
            ours.append(measure("whence", path))
            if size <= PEER_LIMIT:
                peers.append(measure("onnxruntime", path)["total"])
    best = min(ours, key=lambda each: each["total"])
    return {**best, "nodes": size, "onnxruntime": min(peers, default=None)}


def rows(result: dict[str, Any], stamp: Stamp) -> list[Row]:
    """The result as it is recorded."""
    peer = result["onnxruntime"]
    figures = {"whence": result["total"], **({"onnxruntime": peer} if peer is not None else {})}
    return [measured(stamp, "prepare", f"chain of {result['nodes']}", 1, "s", figures)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--record", action="store_true", help="append to results.jsonl")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        engine, path = options.measure
        print(json.dumps((time_whence if engine == "whence" else time_peer)(Path(path))))
        return
    results = []
    print(
        f"{'nodes':>9}  {'load':>8}  {'prepare':>8}  {'whence':>8}  {'ORT':>8}  {'ORT/whence':>10}"
    )
    for size in options.sizes:
        found = compare(size)
        peer = found["onnxruntime"]
        ratio = f"{peer / found['total']:10.2f}" if peer is not None else f"{'':>10}"
        shown = f"{peer:8.2f}" if peer is not None else f"{'':>8}"
        print(
            f"{size:9}  {found['load']:8.2f}  {found['prepare']:8.2f}  {found['total']:8.2f} "
            f" {shown}  {ratio}",
            flush=True,
        )
        results.append(found)
    by_size = {result["nodes"]: result["total"] for result in results}
    if {100_000, 1_000_000} <= by_size.keys():
        print(f"t(1M) / t(100k) = {by_size[1_000_000] / by_size[100_000]:.1f}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    if options.record:
        stamp = stamp_now()
        append_rows(row for result in results for row in rows(result, stamp))


if __name__ == "__main__":
    main()
