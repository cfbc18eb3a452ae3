"""Shares are what leaving an operator out saves, measured on graphs of which that is known.

How close they are `benchmarks/attribution_truth.py` measures on a machine that does nothing else.
Here other tests run beside, on the same cores, so the limits are wide: they tell a model of what is
going on from one that is wrong about it.
"""

from __future__ import annotations

import pytest

from benchmarks.attribution_cases import CASES, Case, Race, exact_share, modelled_share

pytestmark = pytest.mark.slow

_LOOKS = 3
_LIMIT = 0.25


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_shares_are_what_leaving_out_saves(case: Case) -> None:
    seen = []
    for _ in range(_LOOKS):
        race = Race(case)
        exact, modelled = exact_share(case, race), modelled_share(case, race)
        if max(abs(exact - race.gain), abs(modelled - race.gain)) <= _LIMIT:
            return
        seen.append(
            f"measured {exact:.1%}, modelled {modelled:.1%}, leaving it out saves {race.gain:.1%}"
        )
    pytest.fail("; ".join(seen))
