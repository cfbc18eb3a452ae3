"""Is attribution true? What a profile says an operator costs, beside what leaving it out of the
model saves.

    python -m benchmarks.attribution_truth [--case NAME] [--json out.json] [--record]

Each case is compiled once with an operator and once without; the two models run in turns, and the
medians count. Beside the truth stand the default model of attribution, which is to be right within
10 points, and `--exact`, within 3. The exit code is 1 if either is further off. Only a machine that
does nothing else gives an answer.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.attribution_cases import CASES, Case, Race, exact_share, keep_still, modelled_share
from benchmarks.record import Row, Stamp, append_rows, measured, stamp_now

_MODEL, _EXACT = 0.10, 0.03


def measure(case: Case) -> dict[str, Any]:
    race = Race(case)
    exact = exact_share(case, race)
    found: dict[str, Any] = {
        "case": case.name,
        "truth": race.gain,
        "error": race.error,
        "model": modelled_share(case, race),
        "exact": exact,
    }
    wrong = [
        name
        for name, limit in (("model", _MODEL), ("exact", _EXACT))
        if abs(found[name] - found["truth"]) > limit
    ]
    return {**found, "wrong": wrong}


def rows(result: dict[str, Any], stamp: Stamp) -> list[Row]:
    """The result as it is recorded: shares of the model's time. There is no peer."""
    shares = {name: result[name] for name in ("truth", "error", "model", "exact")}
    return [measured(stamp, "attribution", result["case"], 1, "share", {}, shares)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", help="only those whose names this is a part of", default="")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--record", action="store_true", help="append to results.jsonl")
    options = parser.parse_args()
    stamp = stamp_now()  # before this process keeps to one core
    keep_still()
    results = []
    print(f"{'leaving out':44} {'saves':>14} {'model':>14} {'exact':>14}")
    for case in CASES:
        if options.case not in case.name:
            continue
        found = measure(case)
        verdict = f"{' and '.join(found['wrong'])} off" if found["wrong"] else "ok"
        said = " ".join(
            f"{found[name]:7.1%} {100 * (found[name] - found['truth']):+6.1f}"
            for name in ("model", "exact")
        )
        print(
            f"{case.name:44} {found['truth']:7.1%} ±{100 * found['error']:5.1f} {said}  {verdict}",
            flush=True,
        )
        results.append(found)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if options.record:
        append_rows(row for result in results for row in rows(result, stamp))
    sys.exit(any(result["wrong"] for result in results))


if __name__ == "__main__":
    main()
