"""An engine in a process of its own, running only while it is asked: thread pools of others that
spin would take its cores.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from whence.building.backend import Progress
from whence.errors import UnsupportedError
from whence.foreign.workers.serve import MARK


class EngineProcess:
    """One that `engine_process` started. It stands still unless it is asked."""

    def __init__(
        self, engine: str, folder: Path, process: subprocess.Popen[str], log: TextIO
    ) -> None:
        self.engine, self.folder = engine, folder
        self._process, self._log = process, log
        self.version = str(self._wait()["ready"])
        self._pause()

    def ask(self, what: str, count: int) -> None:
        """`warmup` or `runs`."""
        self._have_done(f"{what} {count}")
        self._pause()

    def finish(self) -> Path:
        """The folder with the engine's files, which lasts as long as `engine_process`."""
        self._have_done("end")
        return self.folder

    def _have_done(self, text: str) -> None:
        os.kill(self._process.pid, signal.SIGCONT)
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `_wait` says what happened
            self._process.stdin.write(text + "\n")
            self._process.stdin.flush()
        self._wait()

    def _wait(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(MARK):
                answer: dict[str, Any] = json.loads(line.removeprefix(MARK))
                if "error" in answer:
                    raise UnsupportedError(
                        f"{self.engine} does not run this model: {answer['error']}"
                    )
                return answer
        code = self._process.wait()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        self._log.seek(0)
        last = (self._log.read().strip().splitlines() or ["it said nothing"])[-1]
        raise UnsupportedError(f"{self.engine} does not run this model: it {how}; {last[:200]}")

    def _pause(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)


@contextlib.contextmanager
def engine_process(
    engine: str, model: Path, threads: int, inputs: Mapping[str, np.ndarray], worker: str = ""
) -> Iterator[EngineProcess]:
    """The engine with the model loaded, in a folder of its own, which is removed in the end.
    `worker` is the module that loads the engine, of those in `workers` unless given.
    """
    with tempfile.TemporaryDirectory(prefix="whence-foreign-") as name:
        folder = Path(name)
        request = {
            "engine": engine,
            "model": str(model.resolve()),
            "threads": threads,
            "inputs": list(inputs),
        }
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
        # By position: a name may be one of an argument of `savez`.
        stored = [each.astype(str) if each.dtype == object else each for each in inputs.values()]
        np.savez(folder / "inputs.npz", *stored)
        module = worker or f"whence.foreign.workers.{engine}_worker"
        with (folder / "log.txt").open("w+", encoding="utf-8", errors="replace") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "whence.foreign.workers.serve", module, name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                errors="replace",
                env=worker_environment(),
            )
            try:
                yield EngineProcess(engine, folder, process, log)
            finally:
                process.kill()
                # Streams are closed, and its end is waited for. What was not sent yet cannot be
                # sent any more.
                with contextlib.suppress(BrokenPipeError), process:
                    pass


def run_in_turns(
    processes: Sequence[EngineProcess],
    runs: int,
    at_once: int,
    doing: str,
    progress: Progress | None,
) -> None:
    """So many runs of each, a few of one before it is the next one's turn."""
    for done in range(0, runs, at_once):
        batch = min(at_once, runs - done)
        for process in processes:
            process.ask("runs", batch)
        if progress is not None:
            progress(doing, done + batch, runs)


def worker_environment(folder: Path | None = None) -> dict[str, str]:
    """That of this process, for one that finds whence in a folder: in that of this process, which
    need not be installed, unless another is named.
    """
    package = str(folder or Path(__file__).resolve().parents[2])
    paths = [package, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}
