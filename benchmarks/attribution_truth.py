"""Is attribution true? What a profile says an operator costs, beside what leaving it out of the model saves.

    python -m benchmarks.attribution_truth [--rounds 200] [--json out.json]

Each case is compiled once with an operator and once without; the two models run in turns, and the shortest times count. Beside the truth stand
the default model of attribution, which is to be right within 10 points, and `--exact`, within 5. The exit code is 1 if either is further off. Only
a machine that does nothing else gives an answer.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.attribution_cases import CASES, Case, Race, exact_share, modelled_share

_MODEL, _EXACT = 0.10, 0.05
_PAIRS = 3


def measure(case: Case, rounds: int) -> dict[str, Any]:
    # Where a model's memory happens to lie matters too: several pairs, of which the middle one counts.
    races = [Race(case.build(""), case.build(case.leave_out)) for _ in range(_PAIRS)]
    for race in races:
        race.run(rounds)
    truth = statistics.median(race.gain() for race in races)
    modelled = statistics.median(modelled_share(case, race) for race in races)
    return {"case": case.name, "truth": truth, "model": modelled, "exact": exact_share(case, races[0])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = []
    print(f"{'leaving out':44} {'saves':>7} {'model':>7} {'exact':>7}")
    for case in CASES:
        found = measure(case, options.rounds)
        results.append(found)
        wrong = [name for name, limit in (("model", _MODEL), ("exact", _EXACT)) if abs(found[name] - found["truth"]) > limit]
        print(
            f"{case.name:44} {found['truth']:7.1%} {found['model']:7.1%} {found['exact']:7.1%}  {' and '.join(wrong)}{' off' if wrong else ''}",
            flush=True,
        )
        found["wrong"] = wrong
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    sys.exit(any(result["wrong"] for result in results))


if __name__ == "__main__":
    main()
