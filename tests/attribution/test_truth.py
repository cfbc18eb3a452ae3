"""The cases whose attribution `benchmarks/attribution_truth.py` judges: each is compiled with and
without an operator, and its profiles are complete and add up.

How close shares are to what leaving an operator out saves is measured there, on a machine that does
nothing else. Here nothing depends on how long anything took.
"""

from __future__ import annotations

import functools

import pytest

from benchmarks.attribution_cases import CASES, Case
from whence.api import compile_model, prepare
from whence.attribution import leave_out
from whence.attribution.measure import profile_executable
from whence.attribution.policy import EXACT, MODELLED
from whence.attribution.profile import Profile
from whence.attribution.rounds import measure
from whence.runtime.engine import Engine


def _check(found: Profile, case: Case) -> None:
    assert found.attributed_ns + sum(found.residual_ns.values()) == found.wall_ns
    assert sum(source.time_ns for source in found.sources) == found.attributed_ns
    assert all(source.time_ns >= 0 for source in found.sources)
    own = [source for source in found.sources if source.name.startswith(case.leave_out)]
    assert own


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_profiles_of_the_cases_are_complete(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    # Two rounds will do where nobody looks at the figures.
    monkeypatch.setattr(leave_out, "measure", functools.partial(measure, budget_ns=0))
    engine = Engine(threads=1, precise=case.precise)
    whole, less = (
        compile_model(case.build(without), engine=engine) for without in ("", case.leave_out)
    )
    names = [source.name for source in whole.graph.ledger.sources]
    left = [source.name for source in less.graph.ledger.sources]
    assert set(left) < set(names)
    assert not any(name.startswith(case.leave_out) for name in left)
    found = profile_executable(whole, runs=2, warmup=0)
    assert found.policy == MODELLED
    _check(found, case)
    exact = profile_executable(whole, runs=2, warmup=0, exact=lambda _: prepare(whole.graph.copy()))
    assert exact.policy == EXACT
    _check(exact, case)
