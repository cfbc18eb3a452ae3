"""How long an engine takes for the models of a folder: `python -m
whence.foreign.workers.time_models MODULE FOLDER ROUNDS`, where the module has a function `load` for
that engine, as for `serve`.

The models are loaded and run in turns, on one thread, with the inputs in `inputs.npz` that they
take. What counts is the time that the process computes, at its shortest, so that others who use the
cores make little difference. The last line of the output is a JSON object: nanoseconds by the
model's name.
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
    shortest = dict.fromkeys(sessions, sys.maxsize)
    for _ in range(int(rounds)):
        for name, session in sessions.items():
            for _ in range(_TURN):
                began = time.process_time_ns()
                session.run(counts=False)
                shortest[name] = min(shortest[name], time.process_time_ns() - began)
    print(json.dumps(shortest))


if __name__ == "__main__":
    main()
