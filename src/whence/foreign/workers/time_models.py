"""How long an engine takes for the models of a folder: `python -m
whence.foreign.workers.time_models MODULE FOLDER ROUNDS`, where the module has a function `load` for
that engine, as for `serve`.

The models are loaded and run in turns, on one thread, with the inputs in `inputs.npz` that they
take. What counts is the time that the process computes, in the shortest of a few runs in a row, so
that others who use the cores make little difference. The last line of the output is a JSON object:
by the model's name, nanoseconds of each round.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path

import numpy as np

_TURN = 5
"""Runs in a row: the first finds caches that hold another model's data."""


def main() -> None:
    module, folder, rounds = importlib.import_module(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    with np.load(folder / "inputs.npz") as stored:
        inputs = {name: stored[name] for name in stored.files}
    sessions = {
        path.stem: module.load(path, 1, inputs, folder) for path in sorted(folder.glob("*.onnx"))
    }
    took: dict[str, list[int]] = {name: [] for name in sessions}
    order = list(sessions)
    for _ in range(int(rounds)):
        for name in order:
            shortest = sys.maxsize
            for _ in range(_TURN):
                began = time.process_time_ns()
                sessions[name].run(counts=False)
                shortest = min(shortest, time.process_time_ns() - began)
            took[name].append(shortest)
        # Whoever is slow to give the cache back is not always the same one's neighbour.
        order.append(order.pop(0))
    print(json.dumps(took))


if __name__ == "__main__":
    main()
