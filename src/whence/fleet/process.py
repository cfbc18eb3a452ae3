"""A cell in a process of its own, with a limit on its time and memory."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whence.fleet.cell import Cell
from whence.fleet.cell_result import CellResult, Status
from whence.fleet.versions import Checkout
from whence.foreign.process import worker_environment

_WORKER = Path(__file__).with_name("worker.py")


@dataclass(frozen=True, slots=True)
class CellLimits:
    """What a cell may cost."""

    timeout: float = 600.0
    """Seconds, from the start of its process to the end."""
    memory: int = 0
    """Bytes of private memory; 0 for no limit."""
    error: float = 0.02
    """Runs are repeated until the standard error of their median is this part of it,"""
    seconds: float = 20.0
    """or so many seconds have gone into them."""
    warmup: int = 5
    tune: bool = False


def measure(cell: Cell, path: Path, limits: CellLimits, checkout: Checkout) -> CellResult:
    """Measure a cell, whose model lies at `path`. A failure is an outcome, not an error."""
    request = {
        "path": str(path),
        "engine": cell.engine,
        "threads": cell.threads,
        "shapes": {name: list(shape) for name, shape in cell.shapes.items()},
        "warmup": limits.warmup,
        "error": limits.error,
        "seconds": min(limits.seconds, limits.timeout),
        "memory": limits.memory,
        "tune": limits.tune,
    }
    environment = worker_environment(checkout.folder)
    if cell.target:
        environment["WHENCE_TARGET"] = cell.target
    began = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="whence-cell-") as folder:
        asked, answered, said = (Path(folder) / name for name in ("ask", "answer", "said"))
        asked.write_text(json.dumps(request), encoding="utf-8")
        with said.open("wb") as output:
            ended = _run(
                [sys.executable, "-P", str(_WORKER), str(asked), str(answered)],
                environment,
                output.fileno(),
                limits.timeout,
            )
        seconds = time.monotonic() - start
        result: dict[str, Any]
        if ended is None:
            result = {"status": Status.TIMEOUT, "error": f"not done after {limits.timeout:g} s"}
        elif not answered.exists():
            result = {"status": Status.CRASHED, "error": _last_words(ended, said)}
        else:
            result = json.loads(answered.read_text(encoding="utf-8"))
    status = Status(result.pop("status", Status.DONE))
    return CellResult(status, began=began, seconds=seconds, **result)


def _run(
    command: list[str], environment: dict[str, str], output: int, timeout: float
) -> int | None:
    """The exit code; `None` when it took too long. The process and all that it started are gone
    when this returns, or is interrupted.
    """
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _last_words(code: int, said: Path) -> str:
    """What a process that left no result died of."""
    how = f"exit code {code}"
    if code < 0:
        try:
            how = f"signal {signal.Signals(-code).name}"
        except ValueError:
            how = f"signal {-code}"
    lines = said.read_text(encoding="utf-8", errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"the process ended with {how}" + (f": {last[:300]}" if last else "")
