"""How long an engine takes for the models of a folder: `python -m
whence.foreign.workers.time_models MODULE FOLDER ROUNDS SEED`, where the module has a function
`load` for that engine, as for `serve`.

The models are loaded and run in turns, on one thread, with the inputs in `inputs.npz` that they
take. Those of a subfolder have their own turns, after which they are gone: the more models are
loaded, the more it matters where in memory each lies. They are loaded in any order, by the seed, so
that it is not the same in all processes, and run in another one in each round. What counts is the
time that the process computes, in the shortest of a few runs in a row, so that others who use the
cores make little difference. The last line of the output is a JSON object: by the model's path in
the folder, nanoseconds of each round.
"""

from __future__ import annotations

import importlib
import json
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

_TURN = 5
"""Runs in a row: the first finds caches that hold another model's data."""


def main() -> None:
    module, folder = importlib.import_module(sys.argv[1]), Path(sys.argv[2])
    rounds, rng = int(sys.argv[3]), random.Random(int(sys.argv[4]))
    with np.load(folder / "inputs.npz") as stored:
        inputs = {name: stored[name] for name in stored.files}
    groups: dict[Path, list[Path]] = defaultdict(list)
    for path in sorted(folder.rglob("*.onnx")):
        groups[path.parent].append(path)
    took: dict[str, list[int]] = {}
    for paths in groups.values():
        rng.shuffle(paths)
        names = {path: path.relative_to(folder).with_suffix("").as_posix() for path in paths}
        # What engines write beside a model is none of the models.
        with tempfile.TemporaryDirectory(prefix="whence-timed-") as beside:
            sessions = {
                name: module.load(path, 1, inputs, Path(beside)) for path, name in names.items()
            }
            took |= _in_turns(sessions, rounds, rng)
            del sessions
    print(json.dumps(took))


def _in_turns(sessions: Mapping[str, Any], rounds: int, rng: random.Random) -> dict[str, list[int]]:
    took: dict[str, list[int]] = {name: [] for name in sessions}
    order = list(sessions)
    for _ in range(rounds):
        rng.shuffle(order)
        for name in order:
            shortest = sys.maxsize
            for _ in range(_TURN):
                began = time.process_time_ns()
                sessions[name].run(counts=False)
                shortest = min(shortest, time.process_time_ns() - began)
            took[name].append(shortest)
    return took


if __name__ == "__main__":
    main()
