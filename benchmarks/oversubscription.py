"""What it costs to have fewer cores than threads: beside the best number of threads, in one
interleaved run.

    python -m benchmarks.oversubscription MODEL... [--seconds 0.5] [--rounds 6]

Each case is a way to have too few cores: more threads than there are, a process that may use one
core only (by its affinity, or by the quota of its control group, where this user may make one), and
two processes at once that each want all of them. Every number of threads from one to all cores is
tried in the same place, the best of them is what the case is compared with. Printed are
milliseconds for a run (the mean: a process whose quota is spent stands still for a while, which a
median hides) and how much more than the best that is.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.latency import find_model, write_inputs

_GROUPS = Path("/sys/fs/cgroup")
_PERIOD_US = 100_000
ANYWHERE, ONE_CORE = "anywhere", "one core"


@dataclass(frozen=True, slots=True)
class Case:
    """So many processes at once, each with so many threads (0: whence's own choice), in a place
    that is anywhere, on one core, or in the control group of that path.
    """

    name: str
    place: str
    threads: int
    processes: int = 1


def cases(cores: int, group: str | None) -> list[Case]:
    found = [
        Case("twice as many threads as cores", ANYWHERE, 2 * cores),
        Case("eight times as many", ANYWHERE, 8 * cores),
        Case("affinity to one core", ONE_CORE, 0),
        Case("affinity to one core, all threads", ONE_CORE, cores),
    ]
    if group:
        found += [
            Case("quota of one core", group, 0),
            Case("quota of one core, all threads", group, cores),
        ]
    return [*found, Case("two processes", ANYWHERE, 0, processes=2)]


@contextmanager
def control_group() -> Iterator[str | None]:
    """A control group that may use one core, or None where this user may not make one."""
    first = (_GROUPS / "cpu" / "cpu.cfs_quota_us").exists()
    folder = (_GROUPS / "cpu" if first else _GROUPS) / f"whence-benchmark-{os.getpid()}"
    try:
        folder.mkdir()
        if first:
            (folder / "cpu.cfs_period_us").write_text(str(_PERIOD_US), encoding="ascii")
            (folder / "cpu.cfs_quota_us").write_text(str(_PERIOD_US), encoding="ascii")
        else:
            (folder / "cpu.max").write_text(f"{_PERIOD_US} {_PERIOD_US}", encoding="ascii")
    except OSError as error:
        print(f"no case with a quota: {error}", file=sys.stderr)
        yield None
        return
    try:
        yield str(folder)
    finally:
        folder.rmdir()


def serve(path: Path, threads: int, place: str, given: Path) -> None:
    """The worker: settle, load, warm up, then run for as many seconds as each line asks for, and
    print the seconds of a run.
    """
    if place == ONE_CORE:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    elif place != ANYWHERE:
        Path(place, "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
    import whence

    inputs = dict(np.load(given))
    model = whence.compile(path, threads=threads)
    for _ in range(3):
        model(**inputs)
    print("ready", flush=True)
    for line in sys.stdin:
        began, runs = time.perf_counter(), 0
        until = began + float(line)
        while (now := time.perf_counter()) < until:
            model(**inputs)
            runs += 1
        print((now - began) / runs, flush=True)


class Worker:
    """A process that is stopped while it is not its turn."""

    def __init__(self, path: Path, threads: int, place: str, given: Path) -> None:
        arguments = [str(path), str(threads), place, str(given)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.oversubscription", "--serve", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if self._read() != "ready":
            raise SystemExit(f"whence does not run {path.name}")
        self._process.send_signal(signal.SIGSTOP)

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def begin(self, seconds: float) -> None:
        assert self._process.stdin is not None
        self._process.send_signal(signal.SIGCONT)
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()

    def result(self) -> float:
        found = float(self._read())
        self._process.send_signal(signal.SIGSTOP)
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def measure(
    path: Path, chosen: list[Case], cores: int, seconds: float, rounds: int
) -> dict[Case, dict[int, float]]:
    """Milliseconds of a run for each case, by the number of threads: the case's own, and each from
    one to all cores in the same place.
    """
    found: dict[Case, dict[int, list[float]]] = {case: {} for case in chosen}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as open_workers:
        given, workers = write_inputs(path, folder), dict[tuple[str, int, int], list[Worker]]()
        tried = {case: sorted({case.threads, *range(1, cores + 1)}) for case in chosen}
        for case in chosen:
            for threads in tried[case]:
                key = (case.place, threads, case.processes)
                if key not in workers:
                    workers[key] = []
                    for _ in range(case.processes):
                        worker = Worker(path, threads, case.place, given)
                        open_workers.callback(worker.close)
                        workers[key].append(worker)
        for _ in range(rounds):
            taken = dict[tuple[str, int, int], float]()
            for key, together in workers.items():
                for worker in together:
                    worker.begin(seconds)
                taken[key] = 1e3 * statistics.fmean([worker.result() for worker in together])
            for case in chosen:
                for threads in tried[case]:
                    key = (case.place, threads, case.processes)
                    found[case].setdefault(threads, []).append(taken[key])
    return {
        case: {threads: statistics.median(times) for threads, times in by_threads.items()}
        for case, by_threads in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--serve", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        path, threads, place, given = options.serve
        serve(Path(path), int(threads), place, Path(given))
        return
    if not options.models:
        parser.error("name a model: a file, or one of the zoo")
    cores, worst = len(os.sched_getaffinity(0)), 0.0
    with control_group() as group:
        for name in options.models:
            path = find_model(name)
            chosen = cases(cores, group)
            results = measure(path, chosen, cores, options.seconds, options.rounds)
            print(f"{path.stem:36} {'run':>9}  {'best':>9}  threads   more")
            for case, by_threads in results.items():
                best = min(range(1, cores + 1), key=lambda threads: by_threads[threads])
                mine, least = by_threads[case.threads], by_threads[best]
                worst = max(worst, mine / least - 1)
                cells = f"{mine:6.2f} ms  {least:6.2f} ms  {best:7}  {mine / least - 1:+5.0%}"
                print(f"  {case.name:34} {cells}", flush=True)
    print(f"at most {worst:.0%} more than with the best number of threads")


if __name__ == "__main__":
    main()
