"""What makes the figures of a profile doubtful: made-up sizes, noise, a machine that was never
measured. There is no prize: it is about what can be believed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from whence.attribution.findings.finding import Finding

if TYPE_CHECKING:
    from whence.attribution.profile import Profile

GUESSED = "guessed sizes"
"""The name in a profile's environment of input sizes that nobody gave."""
_NOISY = 0.25


def guessed_shapes(profile: Profile) -> Iterator[Finding]:
    if sizes := profile.environment.get(GUESSED):
        yield Finding(
            "guessed_shapes",
            f"the sizes of inputs were guessed: {sizes}",
            f"Say which sizes the model runs with: {sizes}",
        )


def noise(profile: Profile) -> Iterator[Finding]:
    low, median, high = profile.band
    spread = (high - low) / median if median else 0.0
    if spread > _NOISY or not profile.overhead_is_credible:
        yield Finding(
            "noise",
            f"the machine is noisy: half of the runs differ by up to {100 * spread:.0f} %",
            "Close what else uses the cores, or take more runs (--runs 200).",
            evidence=(f"runs from {low / 1e6:.3g} to {high / 1e6:.3g} ms in the middle half",),
        )


def unmeasured_machine(profile: Profile) -> Iterator[Finding]:
    rates = profile.rates
    if rates is not None and (not rates.measured or rates.disturbed):
        what = "was never measured: shares of its peak are nominal"
        if rates.measured:
            what = "was measured while something else used its cores"
        yield Finding(
            "unmeasured_machine",
            f"this machine {what}",
            "`whence doctor --calibrate` measures it in seconds.",
        )
