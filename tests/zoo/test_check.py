"""What counts as the same result."""

from __future__ import annotations

import pytest

from zoo.check import unless_engines_differ
from zoo.check_results import CheckResult


@pytest.mark.parametrize(
    ("error", "apart", "status"),
    [
        # An ill-conditioned model: the other engine differs from itself by as much.
        (1.2e-4, 1.9e-4, "ok"),
        (2.2e-4, 1.9e-4, "differs"),
        (1.2e-4, 0.0, "differs"),
        # Results of another shape are no measure.
        (1.2e-4, float("inf"), "differs"),
        (float("inf"), float("inf"), "differs"),
    ],
)
def test_no_further_than_engines_are_from_each_other(
    error: float, apart: float, status: str
) -> None:
    found = CheckResult("model", "differs", "by much", error)
    assert (
        unless_engines_differ(found, "other", CheckResult("model", "differs", "", apart)).status
        == status
    )
