"""Mutated models, compiled with checked addresses and run, each compared with the interpreter.

    python -m tests.mutate --count 10000 --seed 1 --workers 2
    python -m tests.mutate --seed 1 --only 4711        one of them again, and its files

Every mutant must run and be right, or be refused with a WhenceError in one line. A report of the
sanitizer, a crash, a hang, another exception or another result is a defect, and its files are
written to --output. The same seed makes the same mutants: a run goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.mutation import sanitizer, seeds

GOOD = frozenset({"ran", "refused"})
SILENCE = 120


@dataclass
class Findings:
    """What mutants came to."""

    counts: Counter[str] = field(default_factory=Counter)
    defects: list[dict[str, Any]] = field(default_factory=list)

    def add(self, line: dict[str, Any]) -> None:
        self.counts[line["outcome"]] += 1
        if line["outcome"] not in GOOD:
            self.defects.append(line)


class Run:
    """Workers that take ranges of mutants, and start again after a crash."""

    def __init__(self, run: int, output: Path, *, batch: int = 50, plain: bool = False) -> None:
        self.run, self.output, self.batch = run, output, batch
        self.library = None if plain else sanitizer.runtime()
        if self.library is None and not plain:
            raise SystemExit("AddressSanitizer's runtime is not installed: install gcc or clang")
        output.mkdir(parents=True, exist_ok=True)
        self.seeds = output / "seeds.pickle"
        if not self.seeds.exists():
            seeds.save(seeds.everything(), self.seeds)

    def range(self, first: int, last: int) -> list[dict[str, Any]]:
        """The last words on every mutant from `first` to `last`."""
        log = self.output / f"seed{self.run}-{first}-{last}.jsonl"
        while True:
            found, begun = _read(log)
            skip = sorted(found)
            if len(found) == last - first:
                return [found[index] for index in sorted(found)]
            crash = self._work(log, first, last, skip)
            after, begun = _read(log)
            if len(after) == last - first:
                continue
            # The worker ended early: whatever was begun last is to blame.
            index, stage = begun if begun is not None else (first, "starting")
            line = {"index": index, "outcome": crash[0], "text": f"while {stage}\n{crash[1]}"}
            with log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    def _work(self, log: Path, first: int, last: int, skip: list[int]) -> tuple[str, str]:
        arguments = ["--seed", self.run, "--first", first, "--last", last, "--batch", self.batch]
        command = [sys.executable, "-m", "tests.mutation.worker", self.seeds, log, *arguments]
        if self.library is None:
            command.append("--plain")
        command += ["--skip", *skip]
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
            process = subprocess.Popen(
                [str(each) for each in command],
                stdout=said,
                stderr=said,
                env=None if self.library is None else sanitizer.environment(self.library),
            )
            silent = _wait(process, log)
            said.seek(0)
            text = said.read()
        at = text.find("ERROR: AddressSanitizer")
        if at >= 0:
            lines = text[at:].splitlines()
            summary = [line for line in lines if line.startswith("SUMMARY")]
            return "sanitizer", "\n".join([*lines[:14], *summary])
        return ("hang" if silent else "crash"), f"{text[-4000:]}\nexit code {process.returncode}"

    def save(self, index: int) -> None:
        """Write a mutant to a file."""
        command = [sys.executable, "-m", "tests.mutation.worker", self.seeds, "-", "--seed"]
        command += [self.run, "--first", index, "--last", index + 1, "--save", self.output]
        subprocess.run([str(each) for each in command], check=False, timeout=SILENCE)


def _wait(process: subprocess.Popen[bytes] | subprocess.Popen[str], log: Path) -> bool:
    """Until it ends, or says nothing for so long that it never will."""
    size, since = -1, time.monotonic()
    while True:
        try:
            process.wait(timeout=0.5)
            return False
        except subprocess.TimeoutExpired:
            now = log.stat().st_size if log.exists() else 0
            if now != size:
                size, since = now, time.monotonic()
            elif time.monotonic() - since > SILENCE:
                process.kill()
                process.wait()
                return True


def _read(log: Path) -> tuple[dict[int, dict[str, Any]], tuple[int, str] | None]:
    """What mutants came to, and which was begun last and is not done."""
    found: dict[int, dict[str, Any]] = {}
    begun: tuple[int, str] | None = None
    for text in log.read_text(encoding="utf-8").splitlines() if log.exists() else ():
        try:
            line = json.loads(text)
        except ValueError:
            continue  # cut off where a process ended
        if "outcome" in line:
            found[line["index"]] = line
            begun = None
        else:
            begun = (line["index"], line["begun"])
    return found, begun


def mutate(
    run: int,
    count: int,
    output: Path,
    *,
    workers: int = 1,
    batch: int = 50,
    plain: bool = False,
    progress: bool = False,
) -> Findings:
    """The outcome of `count` mutants."""
    whole = Run(run, output, batch=batch, plain=plain)
    findings, lock, began = Findings(), threading.Lock(), time.monotonic()

    def one(first: int) -> None:
        lines = whole.range(first, min(first + 2 * batch, count))
        with lock:
            for line in lines:
                findings.add(line)
            done = findings.counts.total()
            if progress:
                pace = done / (time.monotonic() - began)
                print(f"{done}/{count}  {pace:.1f}/s  {dict(findings.counts)}", flush=True)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(one, range(0, count, 2 * batch)))
    for defect in findings.defects:
        whole.save(defect["index"])
    return findings


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--only", type=int, help="one mutant again")
    parser.add_argument("--plain", action="store_true", help="without the sanitizer")
    parser.add_argument("--output", type=Path, default=Path("build/mutants"))
    options = parser.parse_args()
    if options.only is not None:
        whole = Run(options.seed, options.output, plain=options.plain)
        whole.save(options.only)
        with tempfile.TemporaryDirectory() as folder:
            whole.output = Path(folder)
            (line,) = whole.range(options.only, options.only + 1)
        print(line.pop("text", ""))
        print(line, f"files: {options.output}/mutant{options.only}.*")
        raise SystemExit(line["outcome"] not in GOOD)
    findings = mutate(
        options.seed,
        options.count,
        options.output,
        workers=options.workers,
        batch=options.batch,
        plain=options.plain,
        progress=True,
    )
    for defect in findings.defects:
        last = defect["text"].strip().splitlines()[-1:]
        print(f"{defect['outcome']} mutant {defect['index']} ({defect.get('seed', '?')}): {last}")
    print(f"seed {options.seed}: {findings.counts.total()} mutants, {dict(findings.counts)}")
    raise SystemExit(bool(findings.defects))


if __name__ == "__main__":
    main()
