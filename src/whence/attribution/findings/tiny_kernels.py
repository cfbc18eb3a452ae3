"""Kernels so small that starting them takes longer than their work, and work between kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from whence.attribution.findings.finding import Finding, Kernels, percent
from whence.plural import counted

if TYPE_CHECKING:
    from whence.attribution.profile import Profile

_MUCH = 0.1


def tiny_kernels(profile: Profile) -> Iterator[Finding]:
    """All of them are one finding."""
    tiny = [kernel for kernel in profile.kernels if kernel.bound == "dispatch" and kernel.origin]
    them = Kernels(profile, tiny)
    least = sum(kernel.least_ns * kernel.calls for kernel in tiny) / max(1, profile.runs)
    if tiny and them.are_worth(them.ns - least):
        take, their = ("takes", "its") if len(tiny) == 1 else ("take", "their")
        yield them.finding(
            "tiny_kernels",
            f"{counted(len(tiny), 'tiny kernel')} {take} {them.share} of the time, and {their} work"
            f" {percent(profile, least)}: {them.names}",
            "Larger batches, or fewer and larger operators; work on shapes and scalars is best done"
            " before export.",
            them.ns - least,
            (f"{them.ns / len(tiny):.0f} ns each, for {least / len(tiny):.0f} ns of work",),
        )


def much_dispatch(profile: Profile) -> Iterator[Finding]:
    """Time around kernels: before the first, after the last, between native code and Python. What
    other engines do in it is not known.
    """
    if profile.engine not in ("cpu", "opencl"):
        return
    spent = profile.residual_ns.get("dispatch", 0) / max(1, profile.runs)
    if spent >= _MUCH * profile.run_ns > 0:
        outside = sum(not kernel.native for kernel in profile.kernels)
        yield Finding(
            "much_dispatch",
            f"{percent(profile, spent)} of the time is dispatch, outside of all kernels",
            "Run more at once: `model.run_many`, or a larger batch."
            if not outside
            else "Native code returns to Python for every operator in reference.",
            spent / 2,
            (f"{outside} of {len(profile.kernels)} steps are in reference",),
        )
