"""Does `whence diff` tell changes from noise? Pairs of real profiles of one model, on this machine
as busy as it is, and busier by `--load` processes that compute for a while and rest for a while.

    python -m benchmarks.diff_truth MODEL [--pairs 40] [--runs 50] [--threads 1] [--load 2]
                                    [--save FOLDER] [--seconds 200]

Every profile is made by a process of its own, as `whence profile` is, and compared with the one
before it. Nothing changed between them: whatever is called changed is wrong, the whole model too.
It is counted how often nothing could be said about that. Then one operator of the second profile is
made a fifth slower, in what was measured of the kernels it is in, another one in each pair: it must
be the first that is named. Operators are taken in turns from those with 2 % of the model's time or
more, by their median times: one that was interrupted for long once is no large operator, and of
smaller ones a fifth is less than half a percent of a run. What was not named is printed. The exit
code is 1 when any operator is called changed wrongly, or when fewer than 19 in 20 are named first.

With `--save`, profiles that are in the folder are not measured again: with `--seconds` one measures
in pieces, and other rules are tried on the same profiles without measuring.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.latency import draw_inputs, find_model
from whence.api import compile_model
from whence.attribution import Profile, profile_executable
from whence.attribution.compare import Verdict, compare
from whence.attribution.read import read_profile
from whence.attribution.rows import Band, KernelRow, SourceRow
from whence.runtime.engine import Engine

_FACTOR = 1.2
# An operator that takes less of the model is not looked for.
_LEAST_SHARE = 0.02
_WORK_S = 0.3


def slowed(profile: Profile, operator: int) -> Profile:
    """The same profile with one operator slower, in every kernel that it is in."""

    def longer(row: SourceRow) -> SourceRow:
        return dataclasses.replace(
            row,
            band=Band(*(round(_FACTOR * each) for each in row.band)),
            blocks=tuple(round(_FACTOR * each) for each in row.blocks),
        )

    return dataclasses.replace(
        profile,
        sources=tuple(longer(row) if row.id == operator else row for row in profile.sources),
        kernels=tuple(slower_kernel(row, operator) for row in profile.kernels),
    )


def slower_kernel(kernel: KernelRow, operator: int) -> KernelRow:
    """The kernel with one operator in it slower; the others take what they did."""
    own = sum(part.weight for part in kernel.origin if part.id == operator)
    grown = 1 + (_FACTOR - 1) * own
    return dataclasses.replace(
        kernel,
        runs_ns=tuple(round(grown * each) for each in kernel.runs_ns),
        shortest_busy_ns=tuple(round(grown * each) for each in kernel.shortest_busy_ns),
        busy_quantiles_ns=tuple(round(grown * each) for each in kernel.busy_quantiles_ns),
        origin=tuple(
            part._replace(weight=part.weight * (_FACTOR if part.id == operator else 1) / grown)
            for part in kernel.origin
        ),
    )


def large_operators(profile: Profile) -> list[SourceRow]:
    """Those with enough of what all operators usually take."""
    usual = sum(row.band.median_ns for row in profile.sources)
    return [row for row in profile.sources if row.band.median_ns >= _LEAST_SHARE * usual]


def disturb(seed: int) -> None:
    """Computes in cache and in memory, and rests, each for a fraction of a second at random."""
    rng = random.Random(seed)
    small, large = np.ones((256, 256), np.float32), np.ones(16 << 20, np.float32)
    # Who started it may be killed, and could not stop it then.
    parent = os.getppid()
    while os.getppid() == parent:
        end = time.monotonic() + rng.uniform(0, _WORK_S)
        in_memory = rng.random() < 0.5
        while time.monotonic() < end:
            _ = large.sum() if in_memory else small @ small
        time.sleep(rng.uniform(0, _WORK_S))


@contextmanager
def load(processes: int) -> Iterator[None]:
    """So many processes that disturb, while it lasts."""
    context = multiprocessing.get_context("spawn")
    started = [
        context.Process(target=disturb, args=(seed,), daemon=True) for seed in range(processes)
    ]
    for each in started:
        each.start()
    try:
        yield
    finally:
        for each in started:
            each.terminate()
            each.join()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument(
        "--threads", type=int, default=0, help="0 for every core, as `whence profile`"
    )
    parser.add_argument("--load", type=int, default=0, help="processes that disturb")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="keep the profiles there")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="then stop measuring")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.save or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        judge([read_profile(file) for file in measure(options, folder)])


def write_profile(path: str, threads: int, runs: int, file: str) -> None:
    """What `whence profile` does, into a file."""
    model = compile_model(path, engine=Engine(threads=threads))
    found = profile_executable(
        model, draw_inputs(Path(path)), runs=runs, model=path, to_compare=True
    )
    part = Path(f"{file}.part")
    part.write_text(found.to_json(), encoding="utf-8")
    part.replace(file)  # one that was interrupted is measured again


def measure(options: argparse.Namespace, folder: Path) -> list[Path]:
    """Files of one profile more than there are pairs, each from a new process."""
    path = str(find_model(options.model))
    files = [
        folder / f"{Path(path).stem}_{options.threads}_{number}.json"
        for number in range(options.pairs + 1)
    ]
    missing = [file for file in files if not file.exists()]
    end = time.monotonic() + options.seconds
    context = multiprocessing.get_context("spawn")
    with load(options.load if missing else 0):
        for number, file in enumerate(missing):
            if time.monotonic() > end:
                sys.exit(f"{len(missing) - number} of {len(files)} profiles are left to measure")
            worker = context.Process(
                target=write_profile, args=(path, options.threads, options.runs, str(file))
            )
            worker.start()
            worker.join()
            if worker.exitcode:
                sys.exit("a profile failed, see above")
    return files


def judge(profiles: Sequence[Profile]) -> None:
    wrong, missed, asked, unknown = [], [], 0, 0
    for pair, (before, after) in enumerate(itertools.pairwise(profiles)):
        found = compare(before, after)
        unknown += found.total.verdict is Verdict.UNKNOWN
        wrong += [
            f"{each.name} {each.ratio:+.0%}"
            for each in (found.total, *found.operators)
            if each.verdict not in (Verdict.SAME, Verdict.UNKNOWN)
        ]
        large = large_operators(after)
        chosen = large[pair % len(large)]
        first = compare(before, slowed(after, chosen.id)).operators[0]
        asked += 1
        if first.name != chosen.name or first.verdict is not Verdict.SLOWER:
            missed.append(chosen.name)
        named = asked - len(missed)
        print(f"{pair + 1:3}  changed wrongly {wrong}, named {named} of {asked}", flush=True)
    print(
        f"of {asked} pairs of identical runs: {len(wrong)} operators or models called changed"
        f" {wrong}; the whole model not known in {unknown}"
    )
    named = asked - len(missed)
    print(f"an operator made a fifth slower was named first in {named} of {asked}; not {missed}")
    sys.exit(bool(wrong) or 20 * named < 19 * asked)


if __name__ == "__main__":
    main()
