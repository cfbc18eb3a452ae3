"""What to do next: rules that look at a profile, a file for each kind. To add one, write a function
that yields findings, and put it into `RULES`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whence.attribution.findings.elementwise_chains import elementwise_chains
from whence.attribution.findings.few_work_items import few_work_items
from whence.attribution.findings.finding import Finding, Rule
from whence.attribution.findings.layout_changes import data_movement, layout_changes
from whence.attribution.findings.low_share_of_peak import low_share_of_peak
from whence.attribution.findings.measurement_quality import (
    guessed_shapes,
    noise,
    unmeasured_machine,
)
from whence.attribution.findings.reference_operators import reference_operators
from whence.attribution.findings.tiny_kernels import much_dispatch, tiny_kernels

if TYPE_CHECKING:
    from whence.attribution.profile import Profile

RULES: tuple[Rule, ...] = (
    few_work_items,
    reference_operators,
    layout_changes,
    data_movement,
    low_share_of_peak,
    tiny_kernels,
    much_dispatch,
    elementwise_chains,
    guessed_shapes,
    noise,
    unmeasured_machine,
)

__all__ = ["RULES", "Finding", "Rule", "find"]


def find(profile: Profile) -> list[Finding]:
    """All that the rules find, the largest prize first; what has none stands last."""
    found = [each for rule in RULES for each in rule(profile)]
    return sorted(found, key=lambda each: -each.prize_ns)
