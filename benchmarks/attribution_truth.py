"""Is attribution true? What a profile says an operator costs, beside what leaving it out of the
model saves.

    python -m benchmarks.attribution_truth [--case NAME] [--json out.json]

Each case is compiled once with an operator and once without; the two models run in turns, and the
medians count. Beside the truth stand the default model of attribution, which is to be right within
10 points, and `--exact`, within 5. The exit code is 1 if either is further off. Only a machine that
does nothing else gives an answer.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.attribution_cases import CASES, Case, Race, exact_share, keep_still, modelled_share

_MODEL, _EXACT = 0.10, 0.05


def measure(case: Case) -> dict[str, Any]:
    race = Race(case)
    exact = exact_share(case, race)
    return {
        "case": case.name,
        "truth": race.gain,
        "error": race.error,
        "model": modelled_share(case, race),
        "exact": exact,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", help="only those whose names this is a part of", default="")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    keep_still()
    results = []
    print(f"{'leaving out':44} {'saves':>14} {'model':>14} {'exact':>14}")
    for case in CASES:
        if options.case not in case.name:
            continue
        found = measure(case)
        wrong = [
            name
            for name, limit in (("model", _MODEL), ("exact", _EXACT))
            if abs(found[name] - found["truth"]) > limit
        ]
        verdict = f"{' and '.join(wrong)} off" if wrong else "ok"
        said = " ".join(
            f"{found[name]:7.1%} {100 * (found[name] - found['truth']):+6.1f}"
            for name in ("model", "exact")
        )
        print(
            f"{case.name:44} {found['truth']:7.1%} ±{100 * found['error']:5.1f} {said}  {verdict}",
            flush=True,
        )
        results.append({**found, "wrong": wrong})
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    sys.exit(any(result["wrong"] for result in results))


if __name__ == "__main__":
    main()
