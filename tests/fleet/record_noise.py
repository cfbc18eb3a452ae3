"""Records how much an operator's time differs from one profile to the next, on a real machine:

    python -m tests.fleet.record_noise MODEL tests/fleet/noise.json

Each profile is made by a new process, as each cell of a sweep is. The file has a row for each
profile and a number for each operator: its time beside the median of all profiles.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from whence.fleet.cell import Cell
from whence.fleet.process import CellLimits, measure
from whence.fleet.versions import current

_PROFILES = 80
_OPERATORS = 24


def main() -> None:
    model, output = Path(sys.argv[1]), Path(sys.argv[2])
    limits = CellLimits(error=0.01, seconds=1.0)
    rows = []
    for number in range(_PROFILES):
        outcome = measure(Cell(model.stem, "", threads=1), model, limits, current())
        assert outcome.profile, outcome.error
        rows.append([source["band_ns"][0] for source in outcome.profile["sources"]])
        print(f"\r{number + 1} of {_PROFILES}", end="", flush=True)
    times = np.array(rows, np.float64)
    heaviest = np.argsort(-np.median(times, axis=0))[:_OPERATORS]
    ratios = times[:, heaviest] / np.median(times[:, heaviest], axis=0)
    lines = ",\n".join(json.dumps([round(float(ratio), 4) for ratio in row]) for row in ratios)
    output.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
