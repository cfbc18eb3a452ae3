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
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from whence.building.backend import Progress
from whence.errors import UnsupportedError
from whence.foreign.workers.serve import MARK


class EngineProcess:
    """Started in a folder of its own, which is removed in the end. Use it in a `with`."""

    def __init__(
        self,
        engine: str,
        model: Path,
        threads: int,
        inputs: Mapping[str, np.ndarray],
        worker: str = "",
    ) -> None:
        """`worker` is the module that loads the engine, of those in `workers` unless given."""
        self.engine = engine
        self.version = ""
        self._temporary = tempfile.TemporaryDirectory(prefix="whence-foreign-")
        self.folder = Path(self._temporary.name)
        request = {
            "engine": engine,
            "model": str(model.resolve()),
            "threads": threads,
            "inputs": list(inputs),
        }
        (self.folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
        # By position: a name may be one of an argument of `savez`.
        stored = [each.astype(str) if each.dtype == object else each for each in inputs.values()]
        np.savez(self.folder / "inputs.npz", *stored)
        self._log = (self.folder / "log.txt").open("w+", encoding="utf-8", errors="replace")
        module = worker or f"whence.foreign.workers.{engine}_worker"
        command = [sys.executable, "-m", "whence.foreign.workers.serve", module, str(self.folder)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            errors="replace",
            env=worker_environment(),
        )

    def __enter__(self) -> Self:
        try:
            self.version = str(self._wait()["ready"])
            self._pause()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def ask(self, what: str, count: int) -> None:
        """`warmup` or `runs`."""
        self._resume()
        self._send(f"{what} {count}")
        self._wait()
        self._pause()

    def finish(self) -> Path:
        """The folder with the engine's files, which lasts as long as this object."""
        self._resume()
        self._send("end")
        self._wait()
        return self.folder

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                # What was not sent yet cannot be sent any more.
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        self._temporary.cleanup()

    def _send(self, text: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `_wait` says what happened
            self._process.stdin.write(text + "\n")
            self._process.stdin.flush()

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

    def _resume(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)


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
