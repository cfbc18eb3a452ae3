"""Models through the writer, and Circle models in onert.

onert prints to the console and ends the process when something is wrong with a model, so it runs in
a process of its own, all models of a test at once.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.frontends.tflite.making import Model, read
from whence.api import prepare, save
from whence.frontends.tflite.records import ModelRecord, read_records
from whence.graph.graph import Graph

_ONERT = """
import json, os, sys
import numpy as np
from onert.infer import session
for model, given, made in json.load(open(sys.argv[1])):
    child = os.fork()
    if child == 0:
        try:
            data = np.load(given)
            results = session(model).infer([data[name] for name in sorted(data.files)])
            np.savez(made, *results)
        except BaseException as error:
            open(made + ".txt", "w").write(str(error))
        os._exit(0)
    os.waitpid(child, 0)
"""


def convert(source: Model | bytes | Graph, path: Path, *, optimise: bool = True) -> ModelRecord:
    """Read a model, optimise it as `whence convert` does, and write it to `path`; the records of
    what was written.
    """
    graph = source.copy() if isinstance(source, Graph) else read(source)
    if optimise:
        prepare(graph, portable=True)
    save(graph, path)
    return read_records(path.read_bytes())


def operators(model: ModelRecord) -> list[str]:
    return [operator.name for subgraph in model.subgraphs for operator in subgraph.operators]


def run_onert(
    models: Sequence[tuple[Path, Sequence[np.ndarray]]], folder: Path
) -> list[list[np.ndarray]]:
    """The outputs of Circle models in onert."""
    jobs = []
    for number, (path, feeds) in enumerate(models):
        given, made = folder / f"given_{number}.npz", folder / f"made_{number}.npz"
        named: dict[str, Any] = {f"in_{position:03d}": feed for position, feed in enumerate(feeds)}
        np.savez(given, **named)
        jobs.append((str(path), str(given), str(made)))
    (folder / "jobs.json").write_text(json.dumps(jobs))
    done = subprocess.run(
        [sys.executable, "-c", _ONERT, str(folder / "jobs.json")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = []
    for model, _, file in jobs:
        note = Path(file + ".txt")
        assert Path(file).exists(), (
            f"onert cannot run {model}:"
            f" {note.read_text() if note.exists() else 'it crashed'}\n{done.stdout[-2000:]}"
        )
        with np.load(file) as found:
            results.append([found[name] for name in found.files])
    return results
