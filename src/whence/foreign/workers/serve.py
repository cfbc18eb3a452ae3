"""The process that runs one engine: `python -m whence.foreign.workers.serve MODULE FOLDER`, where
the module has a function `load` for that engine.

The folder has `request.json` and `inputs.npz`, in the order of their names in the request. Each
line on standard input asks for something, each line on standard output that begins with the mark
answers; engines may print what they like besides.

    warmup 5    runs that do not count
    runs 10     profiled runs, in turns with runs that are not profiled
    end         the engine's own files are written into the folder, and `recording.json`
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

MARK = "whence-foreign "
_LONGEST = 400


class Session(Protocol):
    """One model, loaded by one engine."""

    version: str

    def run(self, *, counts: bool) -> object:
        """As an application would. Runs that warm up do not count."""

    def run_profiled(self, *, counts: bool) -> object:
        """With the engine's profiler on."""

    def note(self) -> None:
        """After each profiled run, which is over."""

    def finish(self, folder: Path, warmup: int) -> None:
        """Write what the engine knows of itself and of the profiled runs."""


def main() -> None:
    module, folder = sys.argv[1], Path(sys.argv[2])
    try:
        _serve(module, folder)
    except Exception as error:  # whatever an engine raises is one line for the caller
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST]
        _answer({"error": reason})
        raise SystemExit(1) from None


def _serve(name: str, folder: Path) -> None:
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    with np.load(folder / "inputs.npz") as stored:
        names = zip(request["inputs"], stored.files, strict=True)
        inputs = {name: _as_given(stored[file]) for name, file in names}
    module = importlib.import_module(name)
    session: Session = module.load(Path(request["model"]), int(request["threads"]), inputs, folder)
    walls: list[int] = []
    plain: list[int] = []
    warmups = 0
    _answer({"ready": session.version})
    for line in sys.stdin:
        word, _, count = line.strip().partition(" ")
        if word == "end":
            break
        for _ in range(int(count)):
            if word == "warmup":
                session.run(counts=False)
                session.run_profiled(counts=False)
                warmups += 1
            elif len(walls) % 2:
                # The order within a pair changes, so that neither kind always runs in the other's
                # wake.
                plain.append(_timed(session.run))
                walls.append(_timed(session.run_profiled))
            else:
                walls.append(_timed(session.run_profiled))
                plain.append(_timed(session.run))
            session.note()
        _answer({"done": len(walls)})
    session.finish(folder, warmups)
    content: dict[str, Any] = {
        "engine": request["engine"],
        "version": session.version,
        "threads": request["threads"],
        "warmup": warmups,
        "runs_ns": walls,
        "plain_ns": plain,
    }
    (folder / "recording.json").write_text(json.dumps(content), encoding="utf-8")
    _answer({"ended": True})


def _as_given(value: np.ndarray) -> np.ndarray:
    """Text travels as fixed-width text, engines want objects."""
    return value.astype(object) if value.dtype.kind == "U" else value


def _timed(run: Callable[..., object]) -> int:
    began = time.perf_counter_ns()
    run(counts=True)
    return time.perf_counter_ns() - began


def _answer(content: dict[str, Any]) -> None:
    print(MARK + json.dumps(content), flush=True)


if __name__ == "__main__":
    main()
