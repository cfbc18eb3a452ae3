"""What came of checking models, kept as it comes, from processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

_SMALL = 1 << 16
_BATCH = 20
MOST_REFERENCE = 0.05
"""Of a model's time: what is more is for want of a kernel."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one model: ok, differs, failed, or peer (the other engine failed)."""

    name: str
    status: str
    detail: str = ""
    error: float = 0.0
    operators: int = 0
    nodes: int = 0
    seconds: float = 0.0
    reference: float | None = None
    """The part of the time that compiled code spends in reference steps; `None` where nothing is
    compiled,
    """
    why_reference: str = ""
    """and why."""


class Record:
    """The verdicts of a run by file, appended to `path` as they come, so that a run that was
    stopped goes on where it was. Those of another engine, or of a file that has changed, do not
    count.
    """

    def __init__(self, path: Path | None, engine: str) -> None:
        self.path, self.engine = path, engine
        self.found: dict[Path, CheckResult] = {}
        self.lock = threading.Lock()
        text = path.read_text("utf-8") if path and path.exists() else ""
        self.cut_off = bool(text) and not text.endswith("\n")
        for line in text.splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # cut off where a process ended
            file = Path(entry["file"])
            if file.exists() and entry["key"] == self._key(file):
                self.found[file] = CheckResult(**entry["verdict"])

    def _key(self, file: Path) -> list[Any]:
        there = file.stat()
        return [self.engine, there.st_size, there.st_mtime_ns]

    def missing(self, files: Iterable[Path]) -> list[Path]:
        return [file for file in files if file not in self.found]

    def add(self, file: Path, verdict: CheckResult) -> None:
        with self.lock:
            self.found[file] = verdict
            if self.path is not None:
                entry = {"file": str(file), "key": self._key(file), "verdict": asdict(verdict)}
                with self.path.open("a", encoding="utf-8") as out:
                    out.write("\n" * self.cut_off + json.dumps(entry) + "\n")
                self.cut_off = False


def check_all(
    files: list[Path], record: Record, jobs: int, timeout: float, flags: list[str]
) -> None:
    began = time.monotonic()
    with (
        Progress(console=Console(stderr=True), transient=True) as bar,
        ThreadPoolExecutor(jobs) as pool,
    ):
        task = bar.add_task("checking", total=len(files))

        def done(file: Path, verdict: CheckResult) -> None:
            record.add(file, verdict)
            bar.update(task, advance=1)
            if not bar.console.is_terminal:
                left = len(record.missing(files))
                seconds = time.monotonic() - began
                print(
                    f"{len(files) - left}/{len(files)} in {seconds:.0f} s: {verdict.status}"
                    f" {file.name}, {verdict.seconds:.1f} s",
                    file=sys.stderr,
                    flush=True,
                )

        # By size, so that most verdicts come early and a slow model holds nothing up.
        ordered = sorted(files, key=lambda file: file.stat().st_size)
        for future in [
            pool.submit(_in_a_process, batch, timeout, flags, done) for batch in _batches(ordered)
        ]:
            future.result()


def _batches(files: list[Path]) -> list[list[Path]]:
    """A process each for large models; small ones share one, as starting it takes longest."""
    batches: list[list[Path]] = []
    for file in files:
        small = file.stat().st_size <= _SMALL
        if (
            small
            and batches
            and len(batches[-1]) < _BATCH
            and batches[-1][-1].stat().st_size <= _SMALL
        ):
            batches[-1].append(file)
        else:
            batches.append([file])
    return batches


def _in_a_process(
    files: list[Path], timeout: float, flags: list[str], done: Callable[[Path, CheckResult], None]
) -> None:
    """The verdicts of a process, as they come: a crash or a hang of either engine is one model's
    verdict and not the end of the run.
    """
    while files:
        answered, code, complaint = _answers(files, timeout, flags, done)
        files = files[answered:]
        if not files:
            return
        # The first without an answer is to blame; what comes after it is tried in a new process.
        file, files = files[0], files[1:]
        if code is None:
            done(file, CheckResult(file.stem, "failed", f"no answer in {timeout:.0f} s"))
        elif code < 0 and "--alone" not in flags:
            # Was it the other engine?
            _in_a_process([file], timeout, ["--alone"], done)
        else:
            done(file, CheckResult(file.stem, "failed", f"exit code {code}: {complaint[-300:]}"))


def _answers(
    files: list[Path], timeout: float, flags: list[str], done: Callable[[Path, CheckResult], None]
) -> tuple[int, int | None, str]:
    """How many files a process had an answer to, its exit code, None if one of them took too long,
    and what it complained of.
    """
    command = [sys.executable, "-m", "zoo.check", *flags, "--here", *map(str, files)]
    answered, late = 0, threading.Event()
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as complaints,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=complaints, text=True) as process,
    ):

        def limit() -> threading.Timer:
            def stop() -> None:
                late.set()
                process.kill()

            timer = threading.Timer(timeout, stop)
            timer.start()
            return timer

        assert process.stdout is not None
        timer = limit()
        for line in process.stdout:
            if line.startswith("{") and line.endswith("}\n"):
                timer.cancel()
                done(files[answered], CheckResult(**json.loads(line)))
                answered += 1
                timer = limit()
        code = process.wait()
        timer.cancel()
        complaints.seek(0)
        return answered, None if late.is_set() else code, complaints.read().strip()


def _in_reference(verdict: CheckResult) -> str:
    if verdict.reference is None:
        return ""
    why = f" ({verdict.why_reference})" if verdict.why_reference else ""
    return f"  reference {verdict.reference:6.1%}{why}"


def report(verdicts: list[CheckResult]) -> None:
    for verdict in verdicts:
        if verdict.status == "ok":
            print(
                f"ok       {verdict.name:32} {verdict.operators:6} operators → {verdict.nodes:6}"
                f" nodes  {verdict.error:.1e}  {verdict.seconds:6.1f} s{_in_reference(verdict)}"
            )
    for status in ("peer", "differs", "failed"):
        for verdict in verdicts:
            if verdict.status == status:
                print(f"{status:8} {verdict.name:32} {verdict.detail}")
    counts = {
        status: sum(verdict.status == status for verdict in verdicts)
        for status in ("ok", "peer", "differs", "failed")
    }
    slow = [verdict for verdict in verdicts if (verdict.reference or 0.0) > MOST_REFERENCE]
    if slow:
        print(
            f"{len(slow)} of {sum(verdict.reference is not None for verdict in verdicts)} compiled"
            f" models spend more than {MOST_REFERENCE:.0%} of their time in reference steps:"
            f" {', '.join(verdict.name for verdict in slow)}"
        )
    print(
        f"{counts['ok']} ok, {counts['differs']} differ, {counts['failed']} failed,"
        f" {counts['peer']} not comparable"
    )
