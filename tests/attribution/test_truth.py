"""What a profile says an operator costs is about what leaving it out saves, measured here on models compiled without it.

How close it is, `benchmarks/attribution_truth.py` measures on a machine that does nothing else. Here other tests run beside, so the limits are
wide: they tell a model of what is going on from one that is wrong about it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import pytest

from benchmarks.attribution_cases import CASES, Case, Race, exact_share, modelled_share

pytestmark = pytest.mark.slow

_LOOKS = 5
_ROUNDS = 20
_LIMIT = 0.25


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("share", [modelled_share, exact_share])
def test_shares_are_what_leaving_out_saves(share: Callable[[Case, Race], float], case: Case) -> None:
    race = Race(case.build(""), case.build(case.leave_out))
    answers: list[float] = []
    for look in range(_LOOKS):
        race.run(_ROUNDS * (look + 1))
        answers.append(share(case, race))
        if abs(statistics.median(answers) - race.gain()) <= _LIMIT:
            return
    pytest.fail(f"said {[f'{answer:.1%}' for answer in answers]}, leaving it out saves {race.gain():.1%}")
